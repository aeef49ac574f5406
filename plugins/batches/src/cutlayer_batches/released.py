"""A release that an engine computes in many processes: begun, checked and counted once, by one process."""

from __future__ import annotations

import hashlib
import json
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
from pyarrow import csv, parquet
from pydantic import StrictInt, StrictStr, TypeAdapter, ValidationError

from cutlayer.channel import Kind, Message
from cutlayer.channel.parcel import Head, Parcel, ParcelWriter
from cutlayer.channel.security import Security
from cutlayer.config import Job
from cutlayer.config.load import load_closed_job, load_private_part, with_private_part
from cutlayer.data.engine import pattern_of
from cutlayer.data.forgotten import FORGOTTEN_REASON, ForgottenRows
from cutlayer.data.ids import canonical_ids, digests_of
from cutlayer.errors import ConfigError, DataError, ProtocolError, RunFolderError
from cutlayer.jobs.links import open_trail, security_of, trail_folder
from cutlayer.storage.durable import locked
from cutlayer_batches.functions import Releaser, releaser
from cutlayer_batches.parts import ID, OwnPart, ReleasingPart, part_at, release_fields

MANIFEST = "_cutlayer.release"
"""Name of the file that says what a folder of a release holds; readers of Parquet folders leave out names with `_`."""
_MEMORY_LIMIT = "1GB"
_ROWS_AT_A_TIME = 8_000_000
"""Rows whose ids are compared at a time, within that memory."""
_MAX_SHARES = 256
"""Maximum number of such comparisons, each of which reads the files: a file may state any number of rows.

Of more rows, a comparison takes room on the disk."""
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class CommittedRelease:
    """What a folder of a release holds, as its manifest states it.

    Attributes:
        training: Id of the training that it is by.
        party: Name of the party.
        rows: Number of rows.
        files: Number of Parquet files.
        bytes: Their size.
        digest: SHA-256 of their names, sizes and contents, in hexadecimal.
        made: Time at which they were counted, UTC: an older release of the training is as valid.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - read by pydantic

    training: StrictStr
    party: StrictStr
    rows: StrictInt
    files: StrictInt
    bytes: StrictInt
    digest: StrictStr
    made: StrictStr


class OpenRelease:
    """A release that has begun; `release` opens one.

    Attributes:
        out: Folder that the engine writes Parquet files to.
        function: What releases the rows of a batch.
        committed: What was released, once the block has ended without an error; `None` before.
    """

    def __init__(self, out: Path, function: Releaser) -> None:
        self.out, self.function = out, function
        self.committed: CommittedRelease | None = None


@contextmanager
def release(
    run: Path | str,
    party: str,
    out: Path | str,
    *,
    local: Path | str,
    rows: Path | str | Literal["all"],
    key: Path | str | None = None,
    plaintext: bool = False,
) -> Iterator[OpenRelease]:
    """Release rows by any number of workers, and count it once.

    Workers compute, and write to no ledger or trail. At the end of the block this process reads the files back, and
    refuses a row that is not agreed, an id that two rows have, and any other column. Then it writes one line to the
    egress trail, and after it the signed manifest. Until then nothing of the folder may leave; a folder without a
    manifest is none that `check_release` takes. If a process ends before, remove the folder and repeat: the draws are
    the same.

    Args:
        run: The party's run folder.
        party: Name of the party.
        out: Folder for the Parquet files; it is empty, or absent.
        local: The private file: its certificates sign the manifest, and its secret's folder has the trail.
        rows: The file of `cutlayer align` with the common rows; `all` where the label owner may know every id that is
            released.
        key: The key of a run that was made with `--key`.
        plaintext: Whether the manifest has no signature.

    Raises:
        ConfigError: As `releaser`.
        RunFolderError: `out` has files, or another release of the run is open.
        NotApproved: The job, or the party, requires approvals, and one is missing, at the start or at the end.
        DataError: The files are not the release of these rows; nothing is counted, and there is no manifest.

    Guarantee: as `releaser`. A row that is released again repeats its draw. One whose grade has changed is drawn anew,
    which no worker sees: the ledger states how many releases by batches there were, and a budget refuses them.
    """
    function = releaser(run, party, local=local, key=key)
    folder, private = Path(run), load_private_part(Path(local))
    # With the private file as it is now, whose approvals count, not those of the training.
    job = with_private_part(load_closed_job(folder / "job.yaml"), party, private)
    security = None if plaintext else security_of(job, party, private, Path(local).parent, _quiet)
    trail = trail_folder(private, party, Path(local).parent)
    opened = OpenRelease(Path(out).resolve(), function)
    lock = folder / "checkpoint" / party / "batches.lock"
    with locked(lock, f"a release of {party} by batches"):
        if opened.out.exists() and (not opened.out.is_dir() or any(opened.out.iterdir())):
            raise RunFolderError.expected(f"no files at {opened.out}", "some", "remove them, or name another folder")
        open_trail(job, party, trail, security, folder)  # which refuses without approvals, before anything is computed
        _count(function)
        opened.out.mkdir(parents=True, exist_ok=True)
        yield opened
        opened.committed = _commit(opened, job, party, None if rows == "all" else Path(rows), trail, security)


def _count(function: Releaser) -> None:
    """Count that grades are released which workers, who share no state, cannot compare with earlier ones.

    Raises:
        BudgetExceeded: The run has a budget.
    """
    part = ReleasingPart.open(Path(function.run), function.party, function.training, function.key)
    if part.graded:
        chain = part.chain_that(counted=False)
        chain.charge_unseen()
        chain.close_account()


def _commit(
    opened: OpenRelease,
    job: Job,
    party: str,
    agreed: Path | None,
    folder: Path,
    security: Security | None,
) -> CommittedRelease:
    part = ReleasingPart.open(Path(opened.function.run), party, opened.function.training, opened.function.key)
    files = _files(opened.out)
    rows = _check_columns(files, list(part.schema))
    _check_ids(files, rows, part, agreed)
    _check_remaining(files, part, ForgottenRows.for_trail(folder))
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    done = CommittedRelease(part.record.training, party, rows, len(files), *_size_and_digest(opened.out, files), made)
    facts = {name: value for name, value in asdict(done).items() if name != "bytes"}
    trail = open_trail(job, party, folder, security, Path(opened.function.run))
    with ExitStack() as ending:
        ending.callback(trail.close)
        trail.note(done.training, job.active, Kind.EVALUATION, done.bytes, **facts)
        trail.sync()  # before the manifest: what may leave is on record
        head = Head(sender=party, receiver=job.active, run=secrets.token_hex(8))
        message = Message(
            Kind.EVIDENCE, party, job.active, head.run, -1, -1, 0, fields={"json": json.dumps(asdict(done))}
        )
        with ParcelWriter(opened.out / MANIFEST, head, security) as parcel:
            parcel.add(message)
    return done


def check_release(
    folder: Path | str, run: Path | str, party: str, *, local: Path | str, plaintext: bool = False
) -> CommittedRelease:
    """Check a folder that a partner released, before it is joined and predicted with.

    Args:
        folder: The folder of Parquet files with its manifest.
        run: The label owner's run folder.
        party: Name of the label owner.
        local: The label owner's private file, for its certificates.
        plaintext: Whether to take a manifest without a signature.

    Returns:
        What it holds.

    Raises:
        TrustError: The manifest is not signed by the partner.
        ProtocolError: Files were changed, added or removed, or they are of another training.
        RunFolderError: There is no manifest.
        DataError: The files are no release: another column, or an id that two rows have.
    """
    folder, private = Path(folder), load_private_part(Path(local))
    job, _, model = part_at(Path(run), party)
    security = None if plaintext else security_of(job, party, private, Path(local).parent, _quiet)
    parcel = Parcel(folder / MANIFEST, party, security)
    message = next(parcel.messages(), None)
    try:
        stated = TypeAdapter(CommittedRelease).validate_json(str(message.fields.get("json")) if message else "")
    except ValidationError:
        raise ProtocolError.expected(f"{folder / MANIFEST}: what the folder holds", "something else") from None
    sender = parcel.head.sender
    if stated.party != sender or sender not in job.passives:
        raise ProtocolError.expected(f"{folder}: a release of a partner", f"one of {ascii(stated.party)[:64]}")
    if stated.training != (wanted := model.record.training_with(sender)):
        got = f"one of {ascii(stated.training)[:64]}"
        raise ProtocolError.expected(f"{folder}: a release of training {wanted}", got, "name the folders of one run")
    files = _files(folder)
    if (len(files), *_size_and_digest(folder, files)) != (stated.files, stated.bytes, stated.digest):
        raise ProtocolError.expected(f"{folder}: the files that {sender} released", "others", "have it sent again")
    # A signature says who wrote the files, not that they are what a release is: a second row of an id would be a second
    # row of this party in the join.
    fields = [pa.field(ID, pa.string()), *release_fields(job, sender, model.record.widths[sender])]
    if (rows := _check_columns(files, fields)) != stated.rows:
        raise ProtocolError.expected(f"{folder}: {stated.rows:,} rows, as {sender} states", f"{rows:,}")
    _check_ids(files, rows)
    return stated


def _files(folder: Path) -> list[Path]:
    """The Parquet files of a release, by name.

    Raises:
        DataError: There is another file, a folder or a link among them.
    """
    files = sorted(path for path in folder.iterdir() if path.name != MANIFEST and not _is_marker(path))
    for path in files:
        if path.suffix != ".parquet" or path.is_symlink() or not path.is_file():
            raise DataError.expected(f"Parquet files alone in {folder}", path.name, "remove what is no release")
    if not files:
        raise DataError.expected(f"Parquet files in {folder}", "none", "write the result of the function there")
    return files


def _is_marker(path: Path) -> bool:
    """Whether it is an empty file by which Spark marks its end, or a checksum that Hadoop writes beside each file."""
    if path.name == "_SUCCESS":
        return path.stat().st_size == 0
    beside = path.with_name(path.name[1 : -len(".crc")])
    # Four bytes for each 512 of the file, after eight: no room for anything else.
    return (
        path.name.startswith(".")
        and path.suffix == ".crc"
        and beside.exists()
        and path.stat().st_size <= 8 + 4 * -(-beside.stat().st_size // 512)
    )


def _size_and_digest(folder: Path, files: Sequence[Path]) -> tuple[int, str]:
    """Size of files, and SHA-256 of their names, sizes and contents."""
    whole, size = hashlib.sha256(), 0
    for path in files:
        hasher = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_CHUNK_BYTES):
                hasher.update(piece)
        size += path.stat().st_size
        whole.update(f"{path.relative_to(folder)}\n{path.stat().st_size}\n{hasher.hexdigest()}\n".encode())
    return size, whole.hexdigest()


def _check_columns(files: Sequence[Path], wanted: Sequence[pa.Field]) -> int:
    """Raise unless all files have just these columns; returns their number of rows."""
    rows = 0
    for path in files:
        try:
            read = parquet.ParquetFile(path)
        except (OSError, pa.ArrowException):
            raise DataError.expected(f"{path}: a Parquet file", "something else") from None
        with read:
            got = [(each.name, each.type) for each in read.schema_arrow]
            rows += read.metadata.num_rows
        if got != [(each.name, each.type) for each in wanted]:
            names = ", ".join(each.name for each in wanted)
            shown = ", ".join(f"{name} {kind}" for name, kind in got)[:200]
            raise DataError.expected(f"{path}: the columns {names} of a release", ascii(shown))
    return rows


def _check_ids(files: Sequence[Path], rows: int, part: OwnPart | None = None, agreed: Path | None = None) -> None:
    """Raise unless each id is in one row, and among some agreed rows.

    Args:
        files: Parquet files of a release.
        rows: Their number of rows.
        part: The party's part of the run, with `agreed`.
        agreed: The file of the common rows; `None` for any.
    """
    with tempfile.TemporaryDirectory(prefix=".cutlayer-") as place, duckdb.connect() as database:
        for name, value in (("memory_limit", _MEMORY_LIMIT), ("temp_directory", place), ("threads", "1")):
            database.execute(f"SET {name} = '{value}'")
        names = [pattern_of(path) for path in files]  # the engine would take some names for those of other files
        # The ids of a share of the hashes at a time: those of all rows may be more than memory.
        count = min(max(1, -(-rows // _ROWS_AT_A_TIME)), _MAX_SHARES)
        shares = [f"(FROM read_parquet(?) WHERE hash({ID}) % {count} = {share})" for share in range(count)]
        repeated = (f"SELECT {ID} FROM {share} GROUP BY {ID} HAVING count(*) > 1 LIMIT 1" for share in shares)  # noqa: S608 - constants
        if (found := _first_id(database, repeated, [names])) is not None:
            remedy = "one row per id: a second row of an id would be a second draw"
            raise DataError.expected("every id once in a release", f"{found!r:.80} in two rows", remedy)
        if part is None or agreed is None:
            return
        common = Path(place) / "agreed.parquet"
        _write_agreed(agreed, part, common)
        others = (f"SELECT r.{ID} FROM {share} r ANTI JOIN {share} a ON r.{ID} = a.{ID} LIMIT 1" for share in shares)  # noqa: S608 - as above
        if (found := _first_id(database, others, [names, str(common)])) is not None:
            remedy = "join the table with this file before: an id that is not common would become known"
            raise DataError.expected(f"rows of {agreed} alone", f"id {found!r:.80}", remedy)


def _check_remaining(files: Sequence[Path], part: OwnPart, forgotten: ForgottenRows) -> None:
    """Raise unless no row was forgotten, also since the function was made, and by what wrote the files without it."""
    ids = part.job.parties[part.name].id
    if ids is None or not forgotten.path.exists():
        return
    for path in files:
        for batch in parquet.ParquetFile(path).iter_batches(columns=[ID]):
            texts = canonical_ids(batch.column(ID), str(path), ids.rules[0] if len(ids.columns) == 1 else "none")
            if gone := int(forgotten.contains(digests_of(texts), ids.rule).sum()):
                raise DataError.expected(f"{path}: no rows {FORGOTTEN_REASON}", f"{gone:,}", "release the others again")


def _first_id(database: Any, queries: Iterable[str], values: Sequence[object]) -> str | None:
    """The first id that one of some queries finds; `None` where none does."""
    try:
        rows = (database.execute(query, values).fetchone() for query in queries)
        return next((str(row[0]) for row in rows if row is not None), None)
    except duckdb.Error as failure:  # damaged, or texts that take more memory than there is
        got = str(failure).splitlines()[0][:120]
        raise DataError.expected("Parquet files of a release that can be read", ascii(got)) from None


def _write_agreed(agreed: Path, part: OwnPart, out: Path) -> None:
    """The ids of a file of `cutlayer align` by which rows are compared, as Parquet, in pieces.

    Raises:
        ConfigError: An id has several columns, which the file has as one text.
        DataError: It is no such file.
    """
    ids = part.job.parties[part.name].id
    if ids is None or len(ids.columns) > 1:
        raise ConfigError.expected("rows: all, where an id has several columns", "a file of rows", "join before")
    try:
        text = csv.ConvertOptions(column_types={ID: pa.string()}, include_columns=[ID])
        with (
            csv.open_csv(agreed, convert_options=text) as reader,
            parquet.ParquetWriter(out, pa.schema([(ID, pa.string())])) as writer,
        ):
            for piece in reader:
                texts = canonical_ids(piece.column(ID), str(agreed), ids.rules[0]).cast(pa.string())
                writer.write_table(pa.table({ID: texts}))
    except (OSError, KeyError, pa.ArrowInvalid) as failure:
        raise DataError(f"{agreed}: expected the column id, as cutlayer align writes it ({failure})") from None


def _quiet(_: str) -> None:
    """A release says nothing of certificates that were replaced meanwhile."""
