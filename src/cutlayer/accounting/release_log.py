"""The log of a run's releases, on disk before they are sent: counts that no checkpoint and no peer can undo."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cutlayer.accounting.row_draws import Pairs, RowDraws
from cutlayer.accounting.slots import Occasion, Slot, Tally
from cutlayer.errors import CheckpointError
from cutlayer.storage.durable import append_line, locked, make_folder, sync_file, write_whole
from cutlayer.storage.json_values import parse_json

MARKER = "release_log.json"
"""Name of the file in a run folder that holds the path of a party's release log."""
_VERSION = 1
_MAX_HEADER_BYTES = 2**16
"""Maximum length of the first line, in bytes."""
_MAX_OCCASIONS = 4
"""Number of occasions whose contents are held in memory: the current and the previous epoch."""
_REMEDY = "restore it from a backup; without it, what the run released is missing from every later account"


class ReleaseLog:
    """The releases of a party in a run: an append-only file; each line is on disk before its release is sent.

    An entry names a slot of the party's own schedule and the keyed digest of what is released there. The same content
    at the same slot has the same noise, so that a repetition reveals nothing new and is not counted; other content is.
    The file lies outside of the run folder, next to the party's long-lived secret: neither an older copy of the folder
    nor its removal undoes a count.

    Args:
        path: Path of the file, made by the first release; `None` counts in memory alone.
        identity: `party`, `job`, `rows` and `folder` of the run, for the first line of the log.
        marker: A file of the run folder that is made with the log, so that a lost log is noticed; `None` for none.
    """

    def __init__(
        self, path: Path | None = None, identity: Mapping[str, str] | None = None, marker: Path | None = None
    ) -> None:
        self.path = path
        self.identity = dict(identity or {})
        self.marker = marker
        self.tally = Tally()
        self.entries = 0
        self.allowed_releases = 0
        self.allowed_steps = 0
        self.closed = False
        self.draws = RowDraws()
        self.draws_name = ""
        self._read_others = False
        self._seen: OrderedDict[Occasion, dict[int, set[str]]] = OrderedDict()
        self._size = 0

    def open(self, release_cost: float, step_cost: float) -> None:
        """Read the releases of the run so far.

        A last line that is incomplete was being written when the machine went down, before its message was sent; it is
        dropped. A line that only lacks its line break counts.

        Args:
            release_cost: Squared parameter mu of Gaussian differential privacy of one release of a row; costs add up.
            step_cost: Squared parameter mu of one private step that a row is in.

        Raises:
            CheckpointError: The log is damaged, missing, or of another job, other rows or other noise.
        """
        self.identity |= {"release_cost": release_cost.hex(), "step_cost": step_cost.hex()}
        if self.path is None:
            return
        if not self.path.exists():
            self._check_never_made()
            return
        with self._together():
            pass  # it has read what there is

    def contents(self, slot: Slot) -> int:
        """Number of different contents that were released at a slot."""
        return len(self._contents_of(slot.occasion).get(slot.batch, ()))

    def has(self, slot: Slot, digest: str) -> bool:
        """Whether this content was released at this slot before."""
        return digest in self._contents_of(slot.occasion).get(slot.batch, ())

    def append(self, slot: Slot, digest: str, rows: int) -> None:
        """Count a release; returns once the entry is on disk.

        Args:
            slot: Slot of the schedule.
            digest: Keyed digest of what is released, in hexadecimal.
            rows: Number of rows in the batch.
        """
        number = self.contents(slot) + 1
        self._write({**slot.occasion._asdict(), "batch": slot.batch, "digest": digest, "rows": rows, "number": number})
        self._contents_of(slot.occasion).setdefault(slot.batch, set()).add(digest)

    def allow(self, releases: int, steps: int) -> None:
        """Record that the owner accepts a number of releases and steps beyond the plan."""
        if releases or steps:
            self._write({"allow": releases, "steps": steps})

    def count_draws(self, name: str, pairs: Pairs, check: Callable[[int, int], None], *, named: bool = True) -> None:
        """Count draws of rows that are about to be released; returns once they are on disk.

        A prediction and a service of one run may count at the same time.

        Args:
            name: Name of the draws, which repeat in a run that is begun again: its counts are those of both.
            pairs: Rows and the values that they are drawn for, from `row_pairs`.
            check: Called before one of the rows is drawn again, with the maximum number of draws of these rows, and the
                number of all rows that have been drawn again by then; it raises where that must not be.
            named: Whether rows have ids; else these stand for all rows of a table.

        Raises:
            CheckpointError: The log is damaged, or of other draws.
        """
        if name == self.draws_name and not len(self.draws.new_pairs(pairs)):
            return
        with self._together():
            self._name_draws(name)
            new = self.draws.new_pairs(pairs)
            most, again = self.draws.counts_with(new) if named else (self.draws.most + 1, self.draws.again)
            if most > 1:
                check(most, again)
            what = {"pairs": b64encode(new.astype("<u8").tobytes()).decode(), **({} if named else {"unnamed": 1})}
            self._write({"draws": name, **what})

    def count(self, name: str, what: Literal["unseen", "refused"]) -> None:
        """Count a release by batches, or a refusal, of the draws of a name; see `RowDraws`."""
        with self._together():
            self._name_draws(name)
            self._write({"draws": name, what: 1})

    def _name_draws(self, name: str) -> None:
        """Name the draws of this log, and read what other runs of the job with the same draws have counted."""
        if self.draws_name not in ("", name):
            raise CheckpointError.expected(f"draws of one key in {self.path}", "another", "start a new run")
        if not self._read_others and self.path is not None:
            self._read_others = True
            for path in sorted(self.path.parent.glob("*.jsonl")):
                other = ReleaseLog(path)
                if path != self.path and any("draws" in entry for entry, _ in islice(other._lines(), 2)):
                    for entry, _ in other._lines():
                        if entry.get("draws") == name:
                            self._count_drawn(entry)
        self.draws_name = name

    def _count_drawn(self, entry: Mapping[str, Any]) -> None:
        self.draws_name = entry["draws"]
        self.draws.unnamed += entry.get("unnamed", 0)
        self.draws.unseen += entry.get("unseen", 0)
        self.draws.refused += entry.get("refused", 0)
        if "pairs" in entry:
            self.draws.add(np.frombuffer(b64decode(entry["pairs"]), "<u8").astype(np.uint64))

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Go on after what other processes have written, while none of them writes."""
        if self.path is None:
            yield
            return
        make_folder(self.path.parent)
        with locked(self.path.with_suffix(".writing"), "a count of releases", wait=True):
            for entry, end in self._lines(self._size):
                self._read_entry(entry)
                self._size = end
            if self.path.exists() and self._size != self.path.stat().st_size:
                self._cut(self._size)
            yield

    def close(self) -> None:
        """Record that the run has ended: a later run of the same job does not count its releases."""
        with self._together() if self.draws_name else nullcontext():
            if self.entries and not self.closed:
                self._write({"end": True})

    def unfinished(self) -> tuple[float, tuple[str, ...]]:
        """Cost of other runs of the same job that did not end, whatever their common rows.

        Returns:
            The sum of their squared parameters of Gaussian differential privacy, and their run folders.

        Raises:
            CheckpointError: One of their logs is damaged.
        """
        spent = 0.0
        folders = []
        others = sorted(self.path.parent.glob("*.jsonl")) if self.path is not None else []
        for path in others:
            other = ReleaseLog(path)
            if path == self.path or other._ends_closed():
                continue
            for entry, _ in other._lines():
                other._read_entry(entry)
            if other.tally.highest:
                release, step = (float.fromhex(other.identity[name]) for name in ("release_cost", "step_cost"))
                spent += other.tally.releases("embedding", "gradient") * release + other.tally.releases("update") * step
                folders.append(other.identity["folder"])
        return spent, tuple(folders)

    def _ends_closed(self) -> bool:
        """Whether the last line is that of `close`: read alone, since a log may be long."""
        if self.path is None:
            return False
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - 4096))
            last = file.read().splitlines(keepends=True)[-1:]
        return bool(last) and _parsed(last[0]) == {"end": True}

    def _check_never_made(self) -> None:
        """Raise if the run folder names a log that does not exist."""
        if self.path is None or self.marker is None or not self.marker.exists():
            return
        _log_named(self.marker)
        raise CheckpointError(
            f"expected the release log {self.path}, as {self.marker} says, got none; it lies next to the secret of its "
            "party: move both together, or restore it from a backup"
        )

    def _lines(self, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
        """Every entry from a byte on, with the byte at which its line ends; stops at a last line without its end.

        Raises:
            CheckpointError: A line is damaged.
        """
        if self.path is None or not self.path.exists():
            return
        end = start
        with self.path.open("rb") as file:
            file.seek(start)
            for line in file:
                entry = _parsed(line)
                if not line.endswith(b"\n"):
                    entry = entry or _parsed(line[:-1])
                    if entry is None:
                        return
                    line = _line(entry).encode() + b"\n"
                if entry is None:
                    raise CheckpointError(f"{self.path} is damaged at byte {end:,}; {_REMEDY}")
                end += len(line)
                yield entry, end

    def _cut(self, size: int) -> None:
        """End the file after its last complete line."""
        if self.path is not None:
            with os.fdopen(os.open(self.path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
                file.truncate(size)
                file.seek(max(0, size - 1))
                file.write(b"\n" if size else b"")
            sync_file(self.path)

    def _read_entry(self, entry: Mapping[str, Any]) -> None:
        """Count an entry of the file.

        Raises:
            CheckpointError: The first entry does not identify the log, or identifies another one.
        """
        if not self.entries and "version" not in entry:
            raise CheckpointError.expected(f"a first line of {self.path} that names its job", "an entry", _REMEDY)
        if "version" in entry:
            self._check_identity(entry)
        elif "digest" in entry:
            occasion = _occasion_of(entry)
            if occasion in self._seen or occasion not in self.tally.highest:
                self._recent(occasion).setdefault(entry["batch"], set()).add(entry["digest"])
        self._count(entry)

    def _count(self, entry: Mapping[str, Any]) -> None:
        self.entries += 1
        self.closed = "end" in entry
        if "allow" in entry:
            self.allowed_releases += entry["allow"]
            self.allowed_steps += entry["steps"]
        elif "draws" in entry:
            self._count_drawn(entry)
        elif "digest" in entry:
            self.tally.add(_occasion_of(entry), entry["number"])

    def _check_identity(self, header: Mapping[str, Any]) -> None:
        """Raise unless the log is of this job, these rows and this noise; a log without identity accepts any."""
        stated = {name: value for name, value in header.items() if name not in ("version", "folder")}
        expected = {name: value for name, value in self.identity.items() if name != "folder"}
        if expected and stated != expected:
            if stated | {"rows": ""} == expected | {"rows": ""}:
                wanted = f"the common rows that the releases in {self.path} are of, in every party's table"
                raise CheckpointError.expected(wanted, "other common rows", "restore them, or start a new run")
            differing = ", ".join(sorted(name for name in stated | expected if stated.get(name) != expected.get(name)))
            wanted = f"{self.path} of this job, rows and protections"
            got = f"one of another {differing}"
            raise CheckpointError.expected(wanted, got, "resume with what the run was begun with, or start a new run")
        self.identity |= {name: value for name, value in header.items() if name != "version"}

    def _contents_of(self, occasion: Occasion) -> dict[int, set[str]]:
        """Digests by batch; digests of an older occasion are read from the file again."""
        if occasion in self._seen or occasion not in self.tally.highest:
            return self._recent(occasion)
        contents: dict[int, set[str]] = {}
        for entry, _ in self._lines():
            if "digest" in entry and _occasion_of(entry) == occasion:
                contents.setdefault(entry["batch"], set()).add(entry["digest"])
        self._recent(occasion).update(contents)
        return self._seen[occasion]

    def _recent(self, occasion: Occasion) -> dict[int, set[str]]:
        """The contents of an occasion that are held in memory, of a few occasions at once."""
        contents = self._seen.setdefault(occasion, {})
        self._seen.move_to_end(occasion)
        while self.path is not None and len(self._seen) > _MAX_OCCASIONS:
            self._seen.popitem(last=False)
        return contents

    def _write(self, entry: dict[str, Any]) -> None:
        """Append an entry, after the header and the marker where it is the first."""
        if self.path is not None:
            if not self.entries:
                make_folder(self.path.parent)
                self._append(self.path, {"version": _VERSION, **self.identity})
                self.entries += 1
            if self.entries == 1 and self.marker is not None:
                # After the log and before the first entry: a marker without a log would refuse a resume, and entries
                # without a marker would let an error remove the key of their noise.
                make_folder(self.marker.parent)
                # Absolute: predictions may be made from another working directory, where a copy of the project may be.
                write_whole(self.marker, json.dumps({"log": str(self.path.absolute())}) + "\n")
            self._append(self.path, entry)
        self._count(entry)

    def _append(self, path: Path, entry: dict[str, Any]) -> None:
        """Write a line at the end of the file.

        Raises:
            CheckpointError: Another process wrote to the log meanwhile, whose releases are not counted here.
        """
        size = path.stat().st_size if path.exists() else 0
        if size != self._size:
            wanted = f"{path} as this run left it, {self._size:,} bytes"
            remedy = "another process runs from a copy of the same run folder; end it, then resume"
            raise CheckpointError.expected(wanted, f"{size:,} bytes", remedy)
        line = _line(entry)
        append_line(path, line)
        self._size += len(line.encode()) + 1


def log_of_run(party_folder: Path) -> Path:
    """The path of the release log that a run has written.

    Args:
        party_folder: The party's folder in the run folder, which holds the log or its path.

    Raises:
        CheckpointError: There is no log, another file is in its place, or the file that holds its path is damaged.
    """
    marker = party_folder / MARKER
    logs = [_log_named(marker)] if marker.exists() else sorted((party_folder / "releases").glob("*/*.jsonl"))
    # A run folder may come from somebody else, and name a device, or a file that is no log and must not be changed.
    if len(logs) != 1 or not logs[0].is_file() or not _is_log(logs[0]):
        got = ", ".join(map(str, logs)) or "none"
        raise CheckpointError.expected(f"the release log of the run in {party_folder}", got, _REMEDY)
    return logs[0]


def _is_log(path: Path) -> bool:
    with path.open("rb") as file:
        return "version" in (_parsed(file.readline(_MAX_HEADER_BYTES)) or ())


def _log_named(marker: Path) -> Path:
    """The log that a marker names; a damaged marker is a `CheckpointError`."""
    try:
        return Path(parse_json(marker.read_text())["log"])
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{marker} is damaged; {_REMEDY}") from None


def _occasion_of(entry: Mapping[str, Any]) -> Occasion:
    return Occasion(*(entry[name] for name in Occasion._fields))


def _line(entry: Mapping[str, Any]) -> str:
    body = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    check = blake2b(body.encode(), digest_size=8, person=b"release log").hexdigest()
    return f'{{"check":"{check}","entry":{body}}}'


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The entry of a line, or `None` where the line is damaged."""
    try:
        whole = parse_json(line)
        entry: dict[str, Any] = whole["entry"]
        return entry if _line(entry).encode() == line.rstrip(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None
