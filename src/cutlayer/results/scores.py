"""Predictions in a Parquet or CSV file or a table of a database: one row per id, written in pieces.

So they need not fit into memory.
"""

from __future__ import annotations

import json
import warnings as user_warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet
from torch import Tensor

from cutlayer.errors import ConfigError, Diverged
from cutlayer.problem.task import Task
from cutlayer.results.provenance import beside
from cutlayer.results.score_table import CONTRIBUTED, ID, PROBABILITY, VALUE, ScoreTable
from cutlayer.storage.durable import check_output, sync_file, sync_folder

Destination: TypeAlias = Path | ScoreTable
WARNINGS = "cutlayer.warnings"
"""Key of the metadata of a Parquet file whose rows are hardly those of the training."""
PIECE_ROWS = 1 << 17
"""Rows that are written at a time, a row group of a Parquet file."""
PARQUET, CSV = ".parquet", ".csv"
_FORMULA = r"^([=@\t\r]|[+-].*[^0-9 ().-])"
"""Texts that a spreadsheet program computes when it opens a CSV file, quoted or not; a telephone number is harmless."""


def score_columns(task: Task) -> tuple[str, ...]:
    """Names of the columns of a prediction.

    >>> score_columns(Task("binary", ("no", "yes"))), score_columns(Task("multiclass", ("a", "b", "c")))
    (('probability',), ('probability_a', 'probability_b', 'probability_c'))
    """
    return (*predicted_columns(task), *task.further_names)


def predicted_columns(task: Task) -> tuple[str, ...]:
    """Those of `score_columns` that hold what was predicted, without what a task has besides."""
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

    Raises:
        Diverged: A prediction is not finite, as of weights or columns so large that their products overflow.
    """
    predicted = task.predict(logits.double())
    if others := int((~predicted.reshape(len(predicted), -1).isfinite()).any(dim=1).sum()):
        got = f"{others} of {len(predicted)} that are not"
        raise Diverged.expected(
            "finite predictions", got, "look for huge numbers in the tables, or train the model again"
        )
    return as_columns(task, predicted.numpy())


def as_columns(task: Task, predicted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Predictions in the columns of `score_columns`, float64 (n, columns).

    Args:
        task: Task of the run.
        predicted: What `Task.predict` returned, (n, classes) or (n,).
    """
    if task.kind == "regression":
        scores = predicted[:, np.newaxis]
    else:
        scores = predicted[:, [task.positive]] if task.kind == "binary" else predicted
    return np.hstack([scores, task.further_values(predicted)]) if task.further_names else scores


class _Takes(Protocol):
    """What takes the rows of predictions."""

    def write_table(self, rows: pa.Table, /) -> None:
        """Add rows."""


class ScoreWriter:
    """Writes predictions piece by piece.

    The columns are `id` with the ids as the table has them; `probability` of the positive class of a binary task,
    `probability_CLASS` for each class of a multi-class task, or `value` of a regression, float64; the further numbers
    of a task (`Task.further_names`); and `contributed`, the list of the parties whose features the prediction rests on.
    CSV and databases have no lists: their names are separated by spaces, which no name holds. The numbers of CSV are as
    short as possible without loss, and its texts are quoted.

    Args:
        sink: Takes the rows, in the columns of `score_schema`.
        schema: These columns.
        parties: Names of the parties that have features, in the job's order.
    """

    def __init__(self, sink: _Takes, schema: pa.Schema, parties: Sequence[str]) -> None:
        self.parties = tuple(parties)
        self._lists = pa.types.is_list(schema.field(CONTRIBUTED).type)
        self.counts, self.formulas = dict.fromkeys(self.parties, 0), 0
        self._schema, self._sink = schema, sink

    def write(
        self, ids: pa.Array, scores: npt.NDArray[np.float64], present: Mapping[str, npt.NDArray[np.bool_]]
    ) -> None:
        """Write a piece: a row group of a Parquet file.

        Args:
            ids: Ids of the rows, (n,).
            scores: As `scores_of`, (n, columns).
            present: Which rows each party contributed to, (n,), by name.
        """
        text = self._schema.field(ID).type
        if not self._lists and (pa.types.is_string(text) or pa.types.is_large_string(text)):
            self.formulas += pc.sum(pc.match_substring_regex(ids.cast(text), _FORMULA)).as_py() or 0
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
        self._sink.write_table(pa.table([*columns, contributed], schema=self._schema))
        for name, count in zip(self.parties, mask.sum(axis=0).tolist(), strict=True):
            self.counts[name] += count


def score_schema(names: Sequence[str], ids: pa.DataType, *, lists: bool) -> pa.Schema:
    """The columns of predictions.

    Args:
        names: Names of those of numbers.
        ids: Type of the ids.
        lists: Whether the parties that contributed are a list, or a text.
    """
    numbers = [pa.field(name, pa.float64(), nullable=False) for name in names]
    parties = pa.list_(pa.dictionary(pa.int8(), pa.string())) if lists else pa.string()
    if pa.types.is_string_view(ids):  # the writer of CSV does not know it
        ids = pa.string()
    return pa.schema([pa.field(ID, ids, nullable=False), *numbers, pa.field(CONTRIBUTED, parties, nullable=False)])


@contextmanager
def score_file(
    path: Path, names: Sequence[str], ids: pa.DataType, parties: Sequence[str], warnings: Sequence[str] = ()
) -> Iterator[ScoreWriter]:
    """Open a `ScoreWriter` whose file appears whole, readable by its owner alone, or not at all.

    Args:
        path: Path of the file, whose ending chooses the format; its folder exists. Another file there is replaced.
        names: Names of the columns of numbers.
        ids: Arrow type of the ids.
        parties: As in `ScoreWriter`.
        warnings: Sentences on the rows, a JSON list in the metadata of a Parquet file, by `WARNINGS`.

    Raises:
        ConfigError: The name ends in neither .parquet nor .csv, or its folder does not exist.
    """
    check_scores_path(path)
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        lists = path.suffix == PARQUET
        schema = score_schema(names, ids, lists=lists)
        if lists and warnings:
            schema = schema.with_metadata({WARNINGS: json.dumps([*warnings])})
        with (parquet.ParquetWriter if lists else csv.CSVWriter)(partial, schema) as file:
            yield (writer := ScoreWriter(file, schema, parties))
        if writer.formulas:  # ids are not changed: another table is joined by them
            user_warnings.warn(
                f"{path.name}: {writer.formulas:,} ids can be formulas, which begin with =, +, - or @: a spreadsheet "
                f"program that opens the file runs them; import the column as text, or write {PARQUET}",
                stacklevel=4,
            )
        sync_file(partial)
        partial.replace(path)
        sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _score_rows(
    table: ScoreTable, names: Sequence[str], ids: pa.DataType, parties: Sequence[str], _warnings: Sequence[str]
) -> Iterator[ScoreWriter]:
    """As `score_file`, to a table of a database, which has no place for warnings."""
    schema = score_schema(names, ids, lists=False)
    with table.open(schema) as sink:
        yield ScoreWriter(sink, schema, parties)


def destination(text: str, *, overwrite: bool = False) -> Destination:
    """Where predictions go: a file, or by a URL a table of a database.

    Args:
        text: Path, or URL#TABLE.
        overwrite: Whether an older table of predictions may be replaced.

    Raises:
        ConfigError: A URL of another form.
    """
    table = ScoreTable.of(text)
    return Path(text) if table is None else replace(table, overwrite=overwrite)


def write_scores(
    out: Destination,
    task: Task,
    ids: pa.ChunkedArray,
    logits: Tensor,
    present: Mapping[str, npt.NDArray[np.bool_]],
    warnings: Sequence[str] = (),
    further: Mapping[str, tuple[Task, Tensor]] | None = None,
) -> Mapping[str, int]:
    """Write the predictions of all rows.

    Args:
        out: As in `score_file`, or a table.
        task: Task of the run.
        ids: Ids of the rows, (n,).
        logits: Logits of the top model, (n, outputs).
        present: Which rows each party that has features contributed to, (n,), by name in the job's order.
        warnings: As in `score_file`.
        further: Task and logits of each further label, whose columns are called `LABEL_COLUMN`.

    Returns:
        Number of rows that each of these parties contributed to.
    """
    opened = _score_rows if isinstance(out, ScoreTable) else score_file
    every = [(task, logits), *(further or {}).values()]
    names = [*score_columns(task)]
    for label, (other, _) in (further or {}).items():
        names += [f"{label}_{name}" for name in score_columns(other)]
    with opened(out, names, ids.type, [*present], warnings) as writer:  # type: ignore[arg-type]
        for start in range(0, max(len(ids), 1), PIECE_ROWS):
            rows = slice(start, start + PIECE_ROWS)
            part = {name: mask[rows] for name, mask in present.items()}
            scores = np.hstack([scores_of(of, answers[rows]) for of, answers in every])
            writer.write(ids.slice(start, PIECE_ROWS).combine_chunks(), scores, part)
    return writer.counts


def check_scores_output(out: Destination, kept: Iterable[Path], *, overwrite: bool) -> None:
    """Raise unless predictions may be written somewhere.

    Args:
        out: The path, or the table.
        kept: Files that the prediction reads, and folders of which nothing is replaced.
        overwrite: Whether another file, or another table of predictions, may be replaced.

    Raises:
        ConfigError: The name ends in neither .parquet nor .csv, or its folder does not exist.
        DataError: The database cannot be written to.
        RunFolderError: A file or table is there that must not be replaced.
    """
    if isinstance(out, ScoreTable):
        out.check(kept)
        return
    check_scores_path(out)
    remedy = "choose another with --out, or replace it with --overwrite"
    check_output(out, beside(out), overwrite=overwrite, kept=kept, remedy=remedy)


def check_scores_path(path: Path) -> None:
    """Raise unless a file of predictions can have a path.

    Raises:
        ConfigError: The name ends in neither .parquet nor .csv, or its folder does not exist.
    """
    if path.suffix not in (PARQUET, CSV):
        wanted = f"a name that ends in {PARQUET} or {CSV} for the predictions"
        raise ConfigError.expected(wanted, path.name, "or give a table of a database as URL#TABLE")
    if not path.parent.is_dir():
        raise ConfigError.expected(f"a folder at {path.parent} for the predictions", "none", "make it first")
