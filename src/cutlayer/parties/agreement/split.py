"""The split of the common rows: computed by each party from the seed, or sent by the active party.

A split by a column, or by the labels, is computed by the active party alone, and sent as the part of every row. It is
fixed on disk before it is sent, so that a resumed run has the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from cutlayer.alignment.held_rows import ALL_HAVE_ALL, HeldRows
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive_chunks, send_in_chunks
from cutlayer.config import Job
from cutlayer.data.align import Positions, order_digest
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sort_values import sort_values
from cutlayer.data.split import (
    PARTS,
    Split,
    check_no_empty_part,
    check_part_sizes,
    split_by_id,
    split_by_values,
    split_rows,
    split_stratified,
)
from cutlayer.errors import CheckpointError, DataError, ProtocolError
from cutlayer.kernels.noise.aes import derive, word_pieces
from cutlayer.parties.session.local import LocalSide
from cutlayer.storage.durable import make_folder
from cutlayer.storage.row_arrays import CHUNK_ROWS, chunks_of, computed_rows, gathered_rows, row_array, with_rows
from cutlayer.storage.tensor_file import stored_tensors, write_tensors

SPLIT_FILE = "split.safetensors"


def split_at_active(
    job: Job, local: LocalSide, positions: Positions, ids: Digests, ports: Iterable[Port], held: HeldRows = ALL_HAVE_ALL
) -> Split:
    """The split at the active party, which sends it where the other parties cannot compute it.

    Args:
        job: The shared job.
        local: This party's private side.
        positions: Row numbers in its table of the common rows, in the common order, int64 (m,).
        ids: Ids of these rows that all parties know, uint8 (m, 16).
        ports: Ports to the passive parties.
        held: Which of the rows each passive party has.

    Raises:
        DataError: The column or the labels make no split of the stated shares.
        CheckpointError: The run is resumed, and its split is gone.
        BudgetExceeded: The party has a budget of all runs, which a split without a guarantee exceeds.
    """
    if not job.train.split.is_sent:
        split = computed_split(job, ids)
        check_no_empty_part(split, job.train.split)
        _store_if_by_id(job, local, split)
        return split
    stored = _read_stored(local, len(positions)) if local.resume else None
    split = draw_split(job, local.table, positions, local.secret) if stored is None else stored
    if stored is None:
        _store(local, split)
    # A peer that ends the run after this message has the split all the same. Where labels are drawn, which is not done
    # yet, the ledger names the draws, and the rest of the run counts with its first gradient; no such split depends on
    # labels.
    digests = gathered_rows(local.table.digests, positions)
    if not local.chain.acts_at("labels"):
        if (count := local.charge_run(digests)) is not None:
            count()
    elif local.all_runs is not None:
        local.all_runs.charge_split(digests)
    for port in ports:
        send_in_chunks(port, Kind.SPLIT, "parts", held.split(port.peer, split, job.train).codes)
    return split


def split_at_passive(job: Job, local: LocalSide, port: Port, ids: Digests) -> Generator[Port, Message, Split]:
    """The split at a passive party.

    Args:
        job: The shared job.
        local: This party's private side.
        port: Port to the active party.
        ids: Ids of the common rows in their order that all parties know, uint8 (m, 16).

    Raises:
        ProtocolError: The active party sent a split that the job does not allow, or another one than before a resume.
    """
    rows = len(ids)
    if not job.train.split.is_sent:
        split = computed_split(job, ids)
        _store_if_by_id(job, local, split)
        return split
    codes = yield from receive_chunks(port, Kind.SPLIT, "parts", rows)
    if len(codes) != rows or (codes >= len(PARTS)).any():
        wanted = f"a part (0 to {len(PARTS) - 1}) of each of the {rows:,} common rows from {port.peer}"
        raise ProtocolError.expected(wanted, f"{len(codes):,} with the largest {int(codes.max()) if len(codes) else 0}")
    split = Split.from_codes(codes)
    try:
        if job.rows == "common":  # the rows of one party can be of any part
            check_part_sizes(split, job.train.split)
    except DataError as refused:
        raise ProtocolError(f"the split that {port.peer} sent: {refused}") from None
    stored = _read_stored(local, rows) if local.resume else None
    if stored is None:
        _store(local, split)
    elif not torch.equal(stored.codes, codes):
        remedy = "start a new run; rows that change their part would be released more often than is counted"
        raise ProtocolError.expected(
            f"the split of the run before it was interrupted from {port.peer}", "another", remedy
        )
    return split


def draw_split(job: Job, table: PartyTable, positions: Positions, secret: bytes) -> Split:
    """Compute a split by a column, or draw one that is stratified by the labels.

    The draw is under the active party's secret: under the seed of the job, which all parties know, the rows at the edge
    of a part would reveal their class. It repeats with the rows, labels, seed and shares, so that repeated runs reveal
    no more than one; under any change of these it is a fresh one, since the rows that a small change moves from one
    part to another would reveal their class too.

    Args:
        job: The shared job.
        table: Rows of the active party.
        positions: Row numbers in it of the common rows, in the common order, int64 (m,).
        secret: Long-lived secret of the active party.

    Raises:
        DataError: The column or the labels make no split of the stated shares.
    """
    config = job.train.split
    if config.by is not None:
        values = sort_values(table.column(config.by, positions), config.by, table.where)
        split = split_by_values(values, config)
        if job.target == "ranking":
            _check_whole(_classes(table.column(table.second or "", positions)), split, table.second)
        return split
    classes = _classes(table.column(table.label or "", positions))
    inputs = (
        order_digest(gathered_rows(table.digests, positions)),
        hashlib.blake2b(classes.data, digest_size=16).digest(),
        repr((job.train.seed, config.test, config.validation)).encode(),
    )
    key = derive(secret, b"stratified split", *inputs)
    return split_stratified(classes, config, _drawn_order(key, len(classes)))


def _check_whole(groups: npt.NDArray[np.int64], split: Split, column: str | None) -> None:
    """Refuse a split that divides a group, (n,), which would be ranked by a model that knows some of its rows.

    Raises:
        DataError: It does.
    """
    codes, number = split.codes.numpy(), int(groups.max()) + 1
    least, most = np.full(number, len(PARTS)), np.full(number, -1)
    np.minimum.at(least, groups, codes)
    np.maximum.at(most, groups, codes)
    if divided := int((most > least).sum()):
        wanted, got = f"each group of {column} in one part of the split", f"{divided:,} of {number:,} in several"
        raise DataError.expected(wanted, got, f"write train.split.by: {column}, or another column that divides none")


def _classes(labels: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Number of the class of each row, in the order in which the classes come; a missing label is one."""
    distinct, codes = pc.unique(labels), row_array(len(labels), np.int64)
    for rows, chunk in with_rows(labels.chunks):
        codes[rows] = pc.index_in(chunk, value_set=distinct).to_numpy()
    return codes


def _drawn_order(key: bytes, rows: int) -> Positions:
    """The rows sorted by a word of the keystream for each; equal words stay in the order of the rows."""
    words = row_array(rows, np.uint64)
    drawn = (piece.numpy().view(np.uint64) for piece in word_pieces(key, b"split", rows, 2, CHUNK_ROWS))
    for at, piece in with_rows(drawn):
        words[at] = piece
    if rows <= CHUNK_ROWS:
        return np.argsort(words, kind="stable")
    ascending = computed_rows(rows, np.uint64, lambda part: words[part])
    ascending.sort()
    order = row_array(rows, np.int64)
    order.fill(-1)
    for start, end in chunks_of(rows):
        order[np.searchsorted(ascending, words[start:end])] = np.arange(start, end)
    return order if order.min() >= 0 else np.argsort(words, kind="stable")  # two words are equal once in 10,000 runs


def split_of_run(job: Job, folder: Path, party: str, rows: int) -> Split:
    """The split of a run that has begun.

    Args:
        job: Job of the run.
        folder: Folder of the run.
        party: Name of a party whose part is in the folder.
        rows: Number of common rows.

    Raises:
        CheckpointError: The file of the split is missing or damaged.
    """
    if not (job.train.split.is_sent or job.train.split.by_id):
        return split_rows(rows, job.train.split, job.train.seed)
    return _read(_path(folder, party), rows)


def computed_split(job: Job, ids: Digests) -> Split:
    """The split that every party computes by itself, of rows with these ids, uint8 (m, 16)."""
    config, seed = job.train.split, job.train.seed
    if config.by_id:
        return split_by_id(ids, config, seed)
    return split_rows(len(ids), config, seed)


def _read_stored(local: LocalSide, rows: int) -> Split | None:
    """The split of the run before it was interrupted; `None` if it was interrupted before it had one."""
    path = _path(local.folder, local.name)
    return _read(path, rows) if path.exists() else None


def _store_if_by_id(job: Job, local: LocalSide, split: Split) -> None:
    """Keep a computed split for those who read the run without the ids; one by the number of rows is computed again."""
    if job.train.split.by_id:
        _store(local, split)


def _store(local: LocalSide, split: Split) -> None:
    path = _path(local.folder, local.name)
    make_folder(path.parent)
    write_tensors(path, {"parts": split.codes}, {})


def _path(folder: Path, party: str) -> Path:
    return folder / "checkpoint" / party / SPLIT_FILE


def _read(path: Path, rows: int) -> Split:
    codes = stored_tensors(path, "the split of the run", "parts")["parts"]
    if len(codes) != rows:
        raise CheckpointError.expected(f"{path}: a split of {rows:,} rows", f"{len(codes):,}", "run the job again")
    return Split.from_codes(codes)
