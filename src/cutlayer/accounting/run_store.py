"""The ledger of all runs: what each run releases about a party's labels or rows, on disk before it is released.

It lies next to the party's secret, outside of every run folder, and only grows. Each line is chained to the one before
by a hash. The last line is written down a second time, next to the file and in the run folder, so that an older copy in
its place is noticed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.accounting.ledger import Ledger
from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.storage.checksum import seal, unseal
from cutlayer.storage.durable import make_folder, write_whole
from cutlayer.storage.json_values import parse_json
from cutlayer.storage.row_arrays import chunks_of, computed_rows

LEDGER_FILE = "ledger.sqlite"
"""Name of the file in the folder of a party's secret."""
RECEIPTS_FOLDER = "receipts"
"""Folder beside it, of the receipts of what was forgotten."""
RUN_MARKER_FILE = "all_runs.json"
"""Name of the file of a run folder that holds the run's last line."""
_WAIT_SECONDS = 60.0
_REMEDY = "restore the latest copy from a backup; without it, what earlier runs released is not counted"
_TABLES = """
CREATE TABLE IF NOT EXISTS rows (digest TEXT PRIMARY KEY, words BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS runs (number INTEGER PRIMARY KEY, entry TEXT NOT NULL, hash TEXT NOT NULL) STRICT;
"""
_SCHEMA = {line.replace("IF NOT EXISTS ", "").rstrip(";") for line in _TABLES.split("\n") if line}
"""The tables as SQLite notes them: a view or a column of another file may stand for more than memory holds."""
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class RunLine:
    """Releases of a run about the labels or rows of a party.

    Attributes:
        run: Name of the run; the same after a resume.
        party: Name of the party.
        job: Name of the job.
        source: Digest of the secret, which shows whether two runs draw labels alike.
        rows: Digest of the ids of the released rows, whatever their order.
        count: Number of these rows.
        plan: Digest of the ledger as planned.
        ledger: The party's entries, with those that say that nothing protects an asset.
        time: Time of the line, in UTC.
        folder: The run folder, where it was then.
    """

    run: str
    party: str
    job: str
    source: str
    rows: str
    count: int
    plan: str
    ledger: Ledger
    time: str = ""
    folder: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Lines of one key are of the same releases: the latest counts. Other rows or another plan add up."""
        return self.run, self.party, self.rows, self.plan

    @property
    def names(self) -> frozenset[str]:
        """Names of parties in the line. They are of one run, so that each is another party."""
        return frozenset({self.party, *(name for entry in self.ledger.entries for name in entry.towards)})


def words_of(digests: npt.NDArray[np.uint8]) -> Words:
    """The first 8 bytes of each digest (n, 16), uint64 (n,)."""
    words: Words = np.ascontiguousarray(digests[:, :8]).view("<u8")[:, 0].astype(np.uint64)
    return words


def row_words(digests: npt.NDArray[np.uint8]) -> Words:
    """Rows' ids as the ledger stores them, by their digests (n, 16): `words_of` them, ascending, uint64 (n,)."""
    ascending = computed_rows(len(digests), np.uint64, lambda part: words_of(digests[part]))
    ascending.sort()
    return ascending


def rows_digest(words: Words) -> str:
    """Digest of a set of rows, from `row_words`."""
    hashed = blake2b(digest_size=16, person=b"ledger rows")
    for start, end in chunks_of(len(words)):
        hashed.update(words[start:end].astype("<u8").data)
    return hashed.hexdigest()


class RunStore:
    """The ledger of all runs of the parties whose secrets are in a folder.

    Two runs count as being of the same rows where one id is in both. So the sum bounds what was released of each row of
    a run, if the rows have the same ids in all tables.

    Args:
        path: Path of the file, made by the first run that releases anything.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = path.with_name(f"{path.name}.head")

    def lines(self) -> list[RunLine]:
        """The latest line of every run, in order; none where no run has released anything.

        Raises:
            CheckpointError: The file is damaged, or an older copy is in its place.
        """
        if not self.path.exists():
            self._check_never_made()
        if not self.path.exists():
            return []
        with self._open() as database:
            return _latest(self._checked_lines(database))

    def sharing_rows(self, words: Words) -> list[RunLine]:
        """The latest lines of the runs, of all parties, that share a row with some rows.

        Args:
            words: The rows, from `row_words`.
        """
        lines = self.lines()
        if not lines:
            return []
        with self._open() as database:
            return self._sharing(database, words, lines)

    def sharing(self, line: RunLine, lines: Sequence[RunLine]) -> list[RunLine]:
        """The runs, of all parties, that share a row with a run, itself included.

        Args:
            line: Line of the run.
            lines: Lines to choose from.
        """
        with self._open() as database:
            return self._sharing(database, self._words(database, line.rows), lines)

    def has_rows(self, digests: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Whether a run of any party here has each of some rows, (n,), by the digests of their ids (n, 16)."""
        words, found = words_of(digests), np.zeros(len(digests), np.bool_)
        if lines := self.lines():
            with self._open() as database:
                for rows in {line.rows for line in lines}:
                    found |= np.isin(words, self._words(database, rows))
        return found

    def has_run(self, marker: Path) -> bool:
        """Whether the run of a folder is counted here, by the file of the folder that names its line."""
        if not marker.exists() or not self.lines():
            return False
        with self._open() as database, suppress(CheckpointError):
            self._check_marker(marker, database)
            return True
        return False

    def add(
        self,
        line: RunLine,
        words: Words,
        marker: Path,
        check: Callable[[list[RunLine]], None],
        *,
        beyond_plan: bool = False,
        note: Path | None = None,
    ) -> None:
        """Count a run before it releases anything; returns once the line is on disk.

        A run that has a line gets no other one, so that a resumed run counts once.

        Args:
            line: What the run releases at most.
            words: Its rows, from `row_words`.
            marker: File of the run folder that names the line.
            check: Called with the lines of the other runs, of all parties, that share a row, while no other process
                can add one; it raises where the run must not release anything.
            beyond_plan: Whether the line replaces that of the plan.
            note: File in the folder of the secret's releases that names the line, too: of each run there is one, so
                that no older copy of ledger and head hides what the secret has released.

        Raises:
            CheckpointError: The ledger is damaged, or older than the run or the file next to it says.
        """
        with self._locked_lines() as (database, known):
            self._check_marker(marker, database)
            same = [each for each in known if each.key == line.key]
            check(self._sharing(database, words, [each for each in known if each.key != line.key]))
            if not same or (beyond_plan and replace(same[0], time="") != line):
                self._append(database, line, words)
        for place in (marker, note):
            if place is not None:
                make_folder(place.parent)
                write_whole(place, self.head.read_bytes())

    def restate(self, change: Callable[[RunLine], RunLine], check: Callable[[RunLine, list[RunLine]], None]) -> None:
        """Replace lines of runs that are about to release more, or have; returns once that is on disk.

        Args:
            change: Returns the line as it is to be, the same where nothing changes.
            check: Called with a changed line and the lines of the other runs, of all parties, that share a row with it;
                it raises where that much must not be released.

        Raises:
            CheckpointError: The ledger is damaged, or an older copy is in its place.
        """
        if not self.lines():
            return
        with self._locked_lines() as (database, known):
            for line in known:
                if (changed := change(line)) != line:
                    words = self._words(database, line.rows)
                    check(changed, self._sharing(database, words, [each for each in known if each.key != line.key]))
                    self._append(database, changed, words)

    @contextmanager
    def _locked_lines(self) -> Iterator[tuple[sqlite3.Connection, list[RunLine]]]:
        """A connection to add lines by, and the latest line of every run, while no other process can add one."""
        make_folder(self.path.parent)
        if not self.path.exists():
            self._check_never_made()
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            lines = self._checked_lines(database)
            if not self.head.exists():
                write_whole(self.head, seal(_last_line(database)))
            yield database, _latest(lines)
            database.execute("COMMIT")
            last = _last_line(database)
        # After the line: a marker of a line that is not there would refuse every later run.
        write_whole(self.head, seal(last))

    def _append(self, database: sqlite3.Connection, line: RunLine, words: Words) -> None:
        entry = json.dumps({**asdict(line), "ledger": line.ledger.to_json(), "time": _now()}, sort_keys=True)
        last = _last_line(database)
        number = int(last["number"]) + 1
        self._append_rows(database, line.rows, words)
        database.execute("INSERT INTO runs VALUES (?, ?, ?)", (number, entry, _chain_hash(last["hash"], number, entry)))

    def _append_rows(self, database: sqlite3.Connection, digest: str, words: Words) -> None:
        """Store a set of rows, some at a time, unless it is there."""
        insert = "INSERT OR IGNORE INTO rows VALUES (?, zeroblob(?))"
        if not database.execute(insert, (digest, 8 * len(words))).rowcount:
            return
        row_id = database.execute("SELECT rowid FROM rows WHERE digest = ?", (digest,)).fetchone()[0]
        with database.blobopen("rows", "words", row_id) as stored:
            for start, end in chunks_of(len(words)):
                stored.write(words[start:end].astype("<u8").tobytes())

    def _checked_lines(self, database: sqlite3.Connection) -> list[RunLine]:
        """All lines, after a check of the chain and of the line that the file next to it names."""
        # Before the lines: another process may add some meanwhile.
        known, noted = _read_mark(self.head) if self.head.exists() else {}, self._noted()
        lines, hashes = [], dict[int, str]()
        previous = head_hash = ""
        for number, (stored_number, entry, digest) in enumerate(
            database.execute("SELECT * FROM runs ORDER BY number"), start=1
        ):
            if stored_number != number or digest != _chain_hash(previous, number, entry):
                raise CheckpointError(f"{self.path} is damaged at line {number:,}; {_REMEDY}")
            previous = hashes[number] = digest
            if number == known.get("number"):
                head_hash = digest
            lines.append(_read(entry, self.path))
        # A process that died right after its line has not noted that line, but an earlier one, or that there is none.
        if (not known and lines) or head_hash != known.get("hash", ""):
            wanted = f"{known['number']:,} lines or more in {self.path}" if known else f"{self.head}"
            raise CheckpointError.expected(f"{wanted}, as was written down next to it", "an older copy", _REMEDY)
        self._check_notes(noted, hashes)
        return lines

    def _noted(self) -> dict[Path, dict[str, Any]]:
        """Lines of runs that the secrets here have noted."""
        return {path: _read_mark(path) for path in sorted(self.path.parent.glob("*.releases/*.line"))}

    def _check_notes(self, marks: Mapping[Path, Mapping[str, Any]], hashes: Mapping[int, str]) -> None:
        """Raise if runs that were noted are not in the ledger, by the hash of each of its lines."""
        lost = [path for path, mark in marks.items() if hashes.get(mark["number"]) != mark["hash"]]
        if lost:
            most = max(marks[path]["number"] for path in lost)
            wanted = f"{most:,} lines or more in {self.path}, as the notes of {len(lost):,} runs say, such as {lost[0]}"
            remedy = f"{_REMEDY}; if there is none, remove these notes, and the sum is known to be too small"
            raise CheckpointError.expected(wanted, f"{len(hashes):,}: an older copy", remedy)

    def _check_never_made(self) -> None:
        noted, has_head = self._noted(), self.head.exists()
        if self.path.exists():  # another process has made it meanwhile
            return
        self._check_notes(noted, {})
        if has_head:
            raise CheckpointError.expected(f"the ledger of all runs {self.path}, as {self.head} says", "none", _REMEDY)

    def _check_marker(self, marker: Path, database: sqlite3.Connection) -> None:
        """Raise if the ledger does not have the line that the run folder names."""
        if not marker.exists():
            return
        mark = _read_mark(marker)
        row = database.execute("SELECT hash FROM runs WHERE number = ?", (mark["number"],)).fetchone()
        if row is None or row[0] != mark["hash"]:
            raise CheckpointError.expected(
                f"line {mark['number']:,} of {self.path} as {marker} says", "none or another", _REMEDY
            )

    def _sharing(self, database: sqlite3.Connection, words: Words, lines: Sequence[RunLine]) -> list[RunLine]:
        """The lines of the runs that share a row with some rows."""
        digests = {digest for digest in {line.rows for line in lines} if self._share(database, digest, words)}
        return [line for line in lines if line.rows in digests]

    def _share(self, database: sqlite3.Connection, digest: str, words: Words) -> bool:
        """Whether one of the rows is in a stored set of rows."""
        stored = self._words(database, digest)
        if not len(stored):
            return False
        for start, end in chunks_of(len(words)):
            piece = words[start:end]
            if (stored[np.minimum(np.searchsorted(stored, piece), len(stored) - 1)] == piece).any():
                return True
        return False

    def _words(self, database: sqlite3.Connection, digest: str) -> Words:
        """A stored set of rows."""
        row = database.execute("SELECT rowid FROM rows WHERE digest = ?", (digest,)).fetchone()
        stored: Words = np.zeros(0, np.uint64)
        if row is not None:
            with database.blobopen("rows", "words", row[0], readonly=True) as blob:
                stored = computed_rows(
                    len(blob) // 8,
                    np.uint64,
                    lambda part: np.frombuffer(blob.read(8 * (part.stop - part.start)), "<u8"),
                )
        if rows_digest(stored) != digest:
            raise CheckpointError(f"{self.path} is damaged: the ids of a run's rows; {_REMEDY}")
        return stored

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection that returns from a commit once it is on disk."""
        new = not self.path.exists()
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)) as database:
                if new:
                    self.path.chmod(0o600)
                database.execute("PRAGMA synchronous = EXTRA")
                database.executescript(_TABLES)
                if {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql NOTNULL")} != _SCHEMA:
                    raise CheckpointError(f"{self.path} is damaged: it has other tables than a ledger; {_REMEDY}")
                yield database
        except sqlite3.OperationalError as failure:
            raise ConfigError(f"{self.path} cannot be used: {failure}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as damage:
            raise CheckpointError(f"{self.path} is damaged ({damage}); {_REMEDY}") from None


def new_source(secret: bytes) -> str:
    """Digest of a secret that reveals nothing of it."""
    return blake2b(secret, digest_size=8, person=b"ledger source").hexdigest()


def _latest(lines: Sequence[RunLine]) -> list[RunLine]:
    return list({line.key: line for line in lines}.values())


def _last_line(database: sqlite3.Connection) -> dict[str, Any]:
    row = database.execute("SELECT number, hash FROM runs ORDER BY number DESC LIMIT 1").fetchone()
    return {"number": row[0], "hash": row[1]} if row else {"number": 0, "hash": ""}


def _chain_hash(previous: str, number: int, entry: str) -> str:
    return blake2b(f"{previous} {number} {entry}".encode(), digest_size=16, person=b"ledger chain").hexdigest()


def _read_mark(path: Path) -> dict[str, Any]:
    try:
        mark = unseal(path.read_bytes())
        return {"number": int(mark["number"]), "hash": str(mark["hash"])}
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path} is damaged; {_REMEDY}") from None


def _read(text: str, path: Path) -> RunLine:
    try:
        entry = parse_json(text)
        return RunLine(**{**entry, "ledger": Ledger.from_json(entry["ledger"])})
    except (TypeError, KeyError, ValueError, AttributeError):
        raise CheckpointError(f"{path} is of another version; {_REMEDY}") from None


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
