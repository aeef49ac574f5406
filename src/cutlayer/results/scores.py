"""Predictions in a Parquet or CSV file: one row per id, written in pieces, so that they need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet
from torch import Tensor

from cutlayer.errors import ConfigError
from cutlayer.problem.task import Task
from cutlayer.storage.durable import check_output, sync_file, sync_folder

ID, CONTRIBUTED = "id", "contributed"
PIECE_ROWS = 1 << 17
"""Rows that are written at a time, a row group of a Parquet file."""
PROBABILITY, VALUE = "probability", "value"
PARQUET, CSV = ".parquet", ".csv"


def score_columns(task: Task) -> tuple[str, ...]:
    """Names of the columns of a prediction.

    >>> score_columns(Task("binary", ("no", "yes"))), score_columns(Task("multiclass", ("a", "b", "c")))
    (('probability',), ('probability_a', 'probability_b', 'probability_c'))
    """
    if task.kind == "regression":
        return (VALUE,)
    if task.kind == "binary":
        return (PROBABILITY,)
    return tuple(f"{PROBABILITY}_{name}" for name in task.classes)


def scores_of(task: Task, logits: Tensor) -> npt.NDArray[np.float64]:
    """Predictions in the columns of `score_columns`, float64 (n, columns).

    Args:
        task: Task of the run.
        logits: Logits (n, outputs) of the top model.
    """
    return as_columns(task, task.predict(logits.double()).numpy())


def as_columns(task: Task, predicted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Predictions in the columns of `score_columns`, float64 (n, columns).

    Args:
        task: Task of the run.
        predicted: What `Task.predict` returned, (n, classes) or (n,).
    """
    if task.kind == "regression":
        return predicted[:, np.newaxis]
    return predicted[:, [task.positive]] if task.kind == "binary" else predicted


class ScoreWriter:
    """Writes predictions piece by piece.

    The columns are `id` with the ids as the table has them; `probability` of the positive class of a binary task,
    `probability_CLASS` for each class of a multi-class task, or `value` of a regression, float64; and `contributed`,
    the list of the parties whose features the prediction rests on. CSV has no lists: their names are separated by
    spaces, which no name holds. Its numbers are as short as possible without loss, and its texts are quoted.

    Args:
        path: Path of the file.
        ending: Format of the file, `.parquet` or `.csv`; a temporary file has another ending.
        task: Task of the run.
        ids: Arrow type of the ids.
        parties: Names of the parties that have features, in the job's order.
    """

    def __init__(self, path: Path, ending: str, task: Task, ids: pa.DataType, parties: Sequence[str]) -> None:
        self.parties = tuple(parties)
        self._lists = ending == PARQUET
        self.counts = dict.fromkeys(self.parties, 0)
        self._names = score_columns(task)
        numbers = [pa.field(name, pa.float64(), nullable=False) for name in self._names]
        names = pa.list_(pa.dictionary(pa.int8(), pa.string())) if self._lists else pa.string()
        named = pa.field(CONTRIBUTED, names, nullable=False)
        if pa.types.is_string_view(ids):  # the writer of CSV does not know it
            ids = pa.string()
        self._schema = pa.schema([pa.field(ID, ids, nullable=False), *numbers, named])
        self._file = (parquet.ParquetWriter if self._lists else csv.CSVWriter)(path, self._schema)

    def write(
        self, ids: pa.Array, scores: npt.NDArray[np.float64], present: Mapping[str, npt.NDArray[np.bool_]]
    ) -> None:
        """Write a piece: a row group of a Parquet file.

        Args:
            ids: Ids of the rows, (n,).
            scores: As `scores_of`, (n, columns).
            present: Which rows each party contributed to, (n,), by name.
        """
        mask = np.column_stack([present[name] for name in self.parties])
        offsets = np.concatenate([[0], mask.sum(axis=1).cumsum()]).astype(np.int32)
        indices = pa.array(np.nonzero(mask)[1].astype(np.int8))
        named = pa.DictionaryArray.from_arrays(indices, pa.array(self.parties, pa.string()))
        lists = pa.ListArray.from_arrays(pa.array(offsets), named if self._lists else named.dictionary_decode())
        columns = [
            ids.cast(self._schema.field(ID).type),
            *(pa.array(np.ascontiguousarray(column)) for column in scores.T),
        ]
        contributed = lists if self._lists else pc.binary_join(lists, " ")
        self._file.write_table(pa.table([*columns, contributed], schema=self._schema))
        for name, count in zip(self.parties, mask.sum(axis=0).tolist(), strict=True):
            self.counts[name] += count

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


@contextmanager
def score_file(path: Path, task: Task, ids: pa.DataType, parties: Sequence[str]) -> Iterator[ScoreWriter]:
    """Open a `ScoreWriter` whose file appears whole, readable by its owner alone, or not at all.

    Args:
        path: Path of the file, whose ending chooses the format; its folder exists. Another file there is replaced.
        task: As in `ScoreWriter`.
        ids: As in `ScoreWriter`.
        parties: As in `ScoreWriter`.

    Raises:
        ConfigError: The name ends in neither .parquet nor .csv, or its folder does not exist.
    """
    check_scores_path(path)
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        writer = ScoreWriter(partial, path.suffix, task, ids, parties)
        try:
            yield writer
        finally:
            writer.close()
        sync_file(partial)
        partial.replace(path)
        sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_scores(
    path: Path, task: Task, ids: pa.ChunkedArray, logits: Tensor, present: Mapping[str, npt.NDArray[np.bool_]]
) -> Mapping[str, int]:
    """Write the predictions of all rows.

    Args:
        path: As in `score_file`.
        task: As in `ScoreWriter`.
        ids: Ids of the rows, (n,).
        logits: Logits of the top model, (n, outputs).
        present: Which rows each party that has features contributed to, (n,), by name in the job's order.

    Returns:
        Number of rows that each of these parties contributed to.
    """
    with score_file(path, task, ids.type, [*present]) as writer:
        for start in range(0, max(len(ids), 1), PIECE_ROWS):
            rows = slice(start, start + PIECE_ROWS)
            part = {name: mask[rows] for name, mask in present.items()}
            writer.write(ids.slice(start, PIECE_ROWS).combine_chunks(), scores_of(task, logits[rows]), part)
    return writer.counts


def check_scores_output(path: Path, kept: Iterable[Path], *, overwrite: bool) -> None:
    """Raise unless predictions may be written to a path.

    Args:
        path: The path.
        kept: Files that the prediction reads, and folders of which nothing is replaced.
        overwrite: Whether another file may be replaced.

    Raises:
        ConfigError: The name ends in neither .parquet nor .csv, or its folder does not exist.
        RunFolderError: A file is there that must not be replaced.
    """
    check_scores_path(path)
    remedy = "choose another with --out, or replace it with --overwrite"
    check_output(path, overwrite=overwrite, kept=kept, remedy=remedy)


def check_scores_path(path: Path) -> None:
    """Raise unless a file of predictions can have a path.

    Raises:
        ConfigError: The name ends in neither .parquet nor .csv, or its folder does not exist.
    """
    if path.suffix not in (PARQUET, CSV):
        raise ConfigError.expected(f"a name that ends in {PARQUET} or {CSV} for the predictions", path.name)
    if not path.parent.is_dir():
        raise ConfigError.expected(f"a folder at {path.parent} for the predictions", "none", "make it first")
