"""The egress trail: a party's own record of every message that left it, chained by hashes so that changes show.

A folder next to the party's secret holds one file for each start of a process, `000001.jsonl` and so on. Each line is
an entry and a hash of it and of the hash before; the first line of a file continues the last line of the file before.
`head.json` holds the number of lines and the last hash of each file as of the last sync: lines that are missing at the
end show too. Nobody needs a secret to verify a trail. A person who changes a line must change all later ones and the
head: note the last hash elsewhere to exclude that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, StrictInt, TypeAdapter

from cutlayer.channel.kinds import Kind
from cutlayer.errors import RunFolderError
from cutlayer.storage.durable import locked, make_folder, sync_folder, write_whole

if TYPE_CHECKING:
    from cutlayer.channel.approvals import Approvals
    from cutlayer.channel.message import Message


_VERSION = 1
_MAX_LINE = 1 << 24
"""Maximum length of a line in bytes, of which a reader holds one at a time."""
_HEAD, _LOCK = "head.json", "trail.lock"
_HEADS = TypeAdapter(dict[str, tuple[Annotated[StrictInt, Field(ge=1)], str]])
"""Number of lines and last hash of each file, by its name."""
_SYNCED_AFTER = frozenset({Kind.EPOCH_END, Kind.COMMITTED, Kind.CLOSE, Kind.ORDER})


class Trail:
    """Writes one file of a trail; it is made by the first message.

    Args:
        folder: Folder of the trail.
        about: Entries of the first line besides the time: `party`, `job`, `ledger` and so on, as plain values.
        approvals: Approvals of the job, without which no message may leave; `None` where none are required.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], approvals: Approvals | None = None) -> None:
        self.folder = folder
        self._approvals = approvals
        self._about = dict(about)
        self._file: int | None = None
        self._name = ""
        self._hash = ""
        self._lines = 0

    @property
    def party(self) -> str:
        """Name of the party whose trail it is."""
        return str(self._about.get("party", ""))

    def record(self, message: Message) -> None:
        """Write a message's line; it is with the operating system before the message is sent.

        Raises:
            NotApproved: An approval is missing or was withdrawn; the message is not to be sent.
            RunFolderError: The trail cannot be continued, since its last file is damaged.
        """
        if self._approvals is not None:
            self._approvals.check_message(message)
        self.note(
            message.run,
            message.receiver,
            message.kind,
            message.nbytes,
            epoch=message.epoch,
            step=message.step,
            sequence=message.sequence,
            shape={name: list(tensor.shape) for name, tensor in message.tensors.items()},
            digest=content_digest(message),
        )
        if message.kind in _SYNCED_AFTER:
            self.sync()

    def note(self, run: str, receiver: str, kind: str, nbytes: int, **facts: Any) -> None:
        """Write a line of what leaves in another way than as a message, such as files.

        Args:
            run: Id of the run.
            receiver: Name of the party that it is for; this one's where nothing is sent.
            kind: Kind of message that it stands for, or in a word what happened to what was sent before.
            nbytes: Number of bytes.
            facts: Further entries, as plain values.

        Raises:
            RunFolderError: As `record`.
        """
        if self._file is None:
            self.begin(run)
        self._write({"time": _now(), "to": receiver, "kind": str(kind), "bytes": nbytes, **facts})

    def sync(self) -> None:
        """Return once all lines are on disk, and their number and last hash in the head."""
        if self._file is None:
            return
        os.fdatasync(self._file)
        with locked(self.folder / _LOCK, "an egress trail", wait=True):
            head = _read_head(self.folder)
            head[self._name] = self._lines, self._hash
            write_whole(self.folder / _HEAD, json.dumps(head) + "\n")

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            self.sync()
            os.close(self._file)
            self._file = None

    def begin(self, run: str) -> None:
        """Write the first line, before any message."""
        make_folder(self.folder)
        with locked(self.folder / _LOCK, "an egress trail", wait=True):
            files = _files(self.folder)
            before = next((lines[-1].hash for path in reversed(files) if (lines := list(read_lines(path)))), "")
            number = int(files[-1].stem) + 1 if files else 1
            self._name = f"{number:06}.jsonl"
            path = self.folder / self._name
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            self._hash = before
            self._write({"trail": _VERSION, **self._about, "run": run, "time": _now(), "before": before})
            sync_folder(self.folder)

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        body = _body(entry)
        self._hash = _chain_hash(self._hash, body)
        line = memoryview(f'{{"hash":"{self._hash}","entry":{body}}}\n'.encode())
        while line:  # a disk that becomes full takes a part of it, and only the next write is an error
            line = line[os.write(self._file, line) :]
        self._lines += 1


class TrailLine(NamedTuple):
    """One line of a file, which matches its hash.

    Attributes:
        entry: Entry of the line.
        hash: Hash of the entry and of the hash before it, in hexadecimal.
    """

    entry: Mapping[str, Any]
    hash: str


class TrailFile(NamedTuple):
    """The content of a file of a trail.

    Attributes:
        name: Name of the file.
        about: First line of the file.
        sent: Number of messages and of bytes of numbers, by receiver and kind.
        first: Time of the first line.
        last: Time of the last line.
        incomplete: Whether the last line was cut off when the process or machine went down; it is not counted.
    """

    name: str
    about: Mapping[str, Any]
    sent: Mapping[tuple[str, str], tuple[int, int]]
    first: str
    last: str
    incomplete: bool = False


@dataclass(frozen=True)
class VerifiedTrail:
    """The result of a verification.

    Attributes:
        files: What the files say that could be read.
        lines: Number of lines that match their hashes.
        hash: Hash of the last line, to be noted elsewhere.
        problems: What was changed or is missing; empty if nothing was.
    """

    files: tuple[TrailFile, ...]
    lines: int
    hash: str
    problems: tuple[str, ...] = field(default=())


def verify_trail(folder: Path) -> VerifiedTrail:
    """Read a whole trail and compare every line with its hash.

    Raises:
        RunFolderError: There is no trail.
    """
    files = _files(folder)
    if not files:
        raise RunFolderError.expected(f"the files of an egress trail in {folder}", "none", "it is next to the secret")
    read: list[TrailFile] = []
    problems = [f"{name} is missing" for name in _missing_files(files, folder)]
    head = _read_head(folder)
    seen = {""}
    total = 0
    last = ""
    for path in files:
        lines: list[TrailLine] = []
        try:
            for line in read_lines(path):
                lines.append(line)  # noqa: PERF402 - what was read before the damage is wanted
        except RunFolderError as damage:
            problems.append(str(damage))
        hashes = [line.hash for line in lines]
        stated, noted = head.get(path.name, (0, ""))
        if len(lines) < stated or (stated and hashes[stated - 1] != noted):
            problems.append(f"{path.name}: expected at least {stated} lines, as {_HEAD} says, got {len(lines)} of them")
        if not lines:
            continue
        if lines[0].entry.get("before", "") not in seen:
            problems.append(f"{path.name} does not continue the file before it, which lacks lines at its end")
        seen |= set(hashes)
        total = total + len(lines)
        last = hashes[-1]
        read.append(_summary(path, lines))
    return VerifiedTrail(tuple(read), total, last, tuple(problems))


def read_lines(path: Path) -> Iterator[TrailLine]:
    """The lines of a file; an incomplete last one, which a killed process leaves, is not among them.

    Raises:
        RunFolderError: A line does not match its hash: it was changed, or one before it was removed.
    """
    before = None
    with path.open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), start=1):
            if not raw.endswith(b"\n") and len(raw) < _MAX_LINE:
                return
            try:
                whole = json.loads(raw)
                entry, stated = whole["entry"], whole["hash"]
                before = entry["before"] if number == 1 else before
                matches = stated == _chain_hash(str(before), _body(entry)) and _is_entry(entry, first=number == 1)
            except (ValueError, KeyError, TypeError, RecursionError):
                matches = False
            if not matches:
                raise RunFolderError(f"{path.name}, line {number}: it was changed, or a line before it was removed")
            before = stated
            yield TrailLine(entry, stated)


def _is_entry(entry: Any, *, first: bool) -> bool:
    """Whether an entry has what a reader needs: a hash needs no secret, so that anyone can write any line."""
    if not isinstance(entry, dict) or not isinstance(entry.get("time"), str):
        return False
    if first:
        return all(isinstance(entry.get(key, []), list) for key in ("limits", "ledger", "approvals"))
    return type(entry.get("bytes")) is int and {"to", "kind"} <= entry.keys()


def content_digest(message: Message) -> str:
    """SHA-256 of the content of a message, tensors and fields, in hexadecimal."""
    hasher = hashlib.sha256(json.dumps(dict(message.fields), sort_keys=True).encode())
    for name, tensor in sorted(message.tensors.items()):
        hasher.update(name.encode())
        if tensor.numel():
            numbers: Any = tensor.numpy()
            hasher.update(memoryview(numbers.reshape(-1)).cast("B"))
    return hasher.hexdigest()


def _summary(path: Path, lines: list[TrailLine]) -> TrailFile:
    sent: dict[tuple[str, str], tuple[int, int]] = {}
    for line in lines[1:]:
        key = str(line.entry["to"]), str(line.entry["kind"])
        count, size = sent.get(key, (0, 0))
        sent[key] = count + 1, size + int(line.entry["bytes"])
    ends = path.read_bytes()[-1:] == b"\n"
    times = [str(line.entry["time"]) for line in lines]
    return TrailFile(path.name, lines[0].entry, sent, times[0], times[-1], not ends)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.jsonl") if path.stem.isascii() and path.stem.isdigit())


def _missing_files(files: list[Path], folder: Path) -> list[str]:
    """Names of the files that must have been there: up to the last one, and those in the head."""
    present = {path.name for path in files}
    wanted = {f"{number:06}.jsonl" for number in range(1, int(files[-1].stem) + 1)} | set(_read_head(folder))
    return sorted(wanted - present)


def _read_head(folder: Path) -> dict[str, tuple[int, str]]:
    try:
        return _HEADS.validate_json((folder / _HEAD).read_bytes())
    except OSError:
        return {}
    except ValueError:
        raise RunFolderError(f"{folder / _HEAD} is damaged; restore it from a backup") from None


def _body(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"))


def _chain_hash(before: str, body: str) -> str:
    return hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()[:32]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
