"""Labels of the active party as class codes or targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.job import TaskKind
from cutlayer.data.classes import folded, spelt_differently
from cutlayer.data.columns import category_text, decoded, is_text, number_values, without_nan
from cutlayer.data.faults import fault
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import chunks_of, row_array

LabelKind = Literal["text", "integer", "number", "boolean"]
Pieces = Callable[[], Iterator[pa.ChunkedArray]]
"""Returns the pieces of a column in the order of its rows, at each call anew."""
_MEASURED = 100
_KINDS = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


@dataclass(frozen=True, eq=False)
class Labels:
    """True labels, in the order of the rows.

    Attributes:
        values: int64 (n,) class codes, or float32 (n,) targets of a regression.
        classes: Names of the classes by code, in ascending order of the label values; of a binary task the second,
            greater one is the positive class. Empty for regression.
        kind: type of the labels in the table.
    """

    values: Tensor
    classes: tuple[str, ...]
    kind: LabelKind = "text"


def encode_labels(
    column: pa.ChunkedArray, task: TaskKind, where: str = "labels", rows: npt.NDArray[np.int64] | None = None
) -> Labels:
    """Turn a label column into the targets of the task's loss.

    Numbers are in numeric order, text in the order of its characters, false before true. So of 0 and 1, no and yes,
    or <=50K and >50K, the second one is the positive class.

    Args:
        column: Labels as numbers, text or booleans.
        task: `binary`, `multiclass` or `regression`.
        where: Name of the data, for error messages.
        rows: int64 (n,), which rows of the column, in this order; all if None.

    Raises:
        DataError: Labels are missing, all equal, or of another kind than the task's.

    >>> labels = encode_labels(pa.chunked_array([["yes", "no", "no"]]), "binary")
    >>> labels.values.tolist(), labels.classes
    ([1, 0, 0], ('no', 'yes'))
    """
    chosen = column if rows is None else column.take(pa.array(rows))
    return encode_label_pieces(lambda: iter((chosen,)), task, where, rows)


def encode_label_pieces(
    pieces: Pieces, task: TaskKind, where: str = "labels", rows: npt.NDArray[np.int64] | None = None
) -> Labels:
    """As `encode_labels`, for a column that comes in pieces and is never in memory as a whole.

    Args:
        pieces: Returns the pieces in the order of the rows, of one type, at each call anew.
        task: As there.
        where: As there.
        rows: Numbers of the rows in the table, for error messages, int64 (n,).

    Raises:
        DataError: As there.
    """
    column = _Column.read(pieces, task, where, rows)
    if task == "regression":
        return _targets(column, where)
    distinct = column.distinct.take(pc.array_sort_indices(column.distinct))
    classes = tuple(category_text(pa.chunked_array([distinct]), "label", where).to_pylist())
    if len(classes) < 2:
        got = f"only {classes[0]!r}" if classes else "no label"
        raise fault(where, "labels of two classes or more", got, "is it the right column, and are these all the rows?")
    if task == "binary" and len(classes) > 2:
        remedy = "set task: regression" if _is_measured(distinct) else "set task: multiclass"
        if len(folded(classes)) == 2:
            remedy = f"{spelt_differently(classes)}, or {remedy}"
        raise fault(where, "two classes for task binary", f"{len(classes)} ({_some(classes)})", remedy)
    if task == "multiclass" and _is_measured(distinct):
        raise fault(where, "classes", f"{len(classes)} different numbers ({_some(classes)})", "set task: regression")
    codes = row_array(column.count, np.int64)
    for part, piece in column.pieces():
        codes[part] = pc.index_in(piece, value_set=distinct).to_numpy()
    return Labels(torch.from_numpy(codes), classes, _kind_of(column.type))


def check_training_labels(labels: Labels, training: Tensor, where: str) -> None:
    """Refuse training rows that all have the same label.

    Args:
        labels: Labels of all common rows.
        training: int64 (n,), which of them are training rows.
        where: Name of the data, for error messages.

    Raises:
        DataError: They are all equal.
    """
    values, rows = labels.values.numpy(), training.numpy()
    first = values[rows[:1]]
    if len(rows) and all(bool((values[rows[start:end]] == first).all()) for start, end in chunks_of(len(rows))):
        raise fault(where, "different labels in the training rows", "the same in all", "provide more rows")


@dataclass(frozen=True)
class _Column:
    """A label column in pieces, without a missing value.

    Attributes:
        type: Arrow type.
        count: Number of rows.
        distinct: Different values, in no order; empty for a regression.
        rows: Numbers of the rows in the table, for error messages.
    """

    type: pa.DataType
    count: int
    distinct: pa.Array
    rows: npt.NDArray[np.int64] | None
    _pieces: Pieces

    @classmethod
    def read(cls, pieces: Pieces, task: TaskKind, where: str, rows: npt.NDArray[np.int64] | None) -> _Column:
        """Read the column once.

        Raises:
            DataError: Labels are missing, or of a type that is none of labels.
        """
        count, missing, first, kind = 0, 0, -1, pa.null()  # the first by its number in the table
        distinct: pa.Array | None = None
        for piece in map(_values, pieces()):
            kind = piece.type
            if piece.null_count:
                absent = count + np.flatnonzero(pc.is_null(piece).to_numpy(zero_copy_only=False))
                row = int(absent[0] if rows is None else rows[absent].min())
                first = min(first, row) if missing else row
            missing += piece.null_count
            count += len(piece)
            if task != "regression" and not missing and _is_label(kind):
                values = pc.unique(piece)
                distinct = values if distinct is None else pc.unique(pa.concat_arrays([distinct, values]))
        if missing:
            got = f"none in {missing} rows, the first is {_row(first, None)}"
            raise fault(where, "a label in every row", got, "drop the rows without one, or set unlabelled: drop")
        if not _is_label(kind):
            raise fault(where, "numbers, text or booleans", f"{kind}", "turn the label column into one of these")
        return cls(kind, count, pa.array([], kind) if distinct is None else distinct, rows, pieces)

    def pieces(self) -> Iterator[tuple[slice, pa.ChunkedArray]]:
        """The pieces, each with the rows that it has."""
        first = 0
        for piece in map(_values, self._pieces()):
            yield slice(first, first + len(piece)), piece
            first += len(piece)


def _values(piece: pa.ChunkedArray) -> pa.ChunkedArray:
    return without_nan(decoded(piece))


def _is_label(kind: pa.DataType) -> bool:
    return is_text(kind) or any(check(kind) for check in _KINDS)


def _targets(column: _Column, where: str) -> Labels:
    if is_text(column.type) or pa.types.is_boolean(column.type):
        raise fault(where, "numbers for task regression", f"{column.type}", "set task: binary or multiclass")
    values, same = row_array(column.count, np.float32), True
    for part, piece in column.pieces():
        numbers = torch.from_numpy(number_values(piece, "label", where)).to(torch.float32).numpy()
        if not np.isfinite(numbers).all():
            row = int(np.flatnonzero(~np.isfinite(numbers))[0])
            got = f"{piece[row].as_py()} in {_row(part.start + row, column.rows)}"
            raise fault(where, "finite labels", got, "fix or drop the row")
        values[part] = numbers
        same = same and bool((numbers == values[:1]).all())
    if same:
        first = f"{values[0]:g}" if len(values) else "none"
        raise fault(where, "different labels", f"{first} in all rows", "is it the right column?")
    return Labels(torch.from_numpy(values), (), _kind_of(column.type))


def _kind_of(kind: pa.DataType) -> LabelKind:
    if is_text(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "integer" if pa.types.is_integer(kind) else "number"


def _is_measured(distinct: pa.Array) -> bool:
    """Whether the labels look like measurements: many different numbers that are not all whole."""
    kind = distinct.type
    if len(distinct) <= _MEASURED or not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return False
    values = number_values(pa.chunked_array([distinct]), "label", "labels")
    return bool((values != np.floor(values)).any())


def _row(index: int, rows: npt.NDArray[np.int64] | None) -> str:
    return f"row {index if rows is None else int(rows[index])} (counted from 0)"


def _some(classes: tuple[str, ...]) -> str:
    shown = [repr(name) if "," in name else name for name in classes[:3]]
    return ", ".join(shown) + (", ..." if len(classes) > 3 else "")
