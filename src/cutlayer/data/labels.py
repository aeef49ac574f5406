"""Labels of the active party as class codes or targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from cutlayer.config.job import TaskKind
from cutlayer.data.classes import folded, spelt_differently
from cutlayer.data.columns import category_text, decoded, is_text, number_values, without_nan
from cutlayer.data.faults import fault

LabelKind = Literal["text", "integer", "number", "boolean"]
_MEASURED = 100
_KINDS = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


@dataclass(frozen=True, eq=False)
class Labels:
    """True labels, in the order of the rows.

    Attributes:
        values: int64 (n,) class codes, or float32 (n,) targets of a regression.
        classes: names of the classes by code, in ascending order of the label values; of a binary task the second,
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
        DataError: labels are missing, all equal, or of another kind than the task's.

    >>> labels = encode_labels(pa.chunked_array([["yes", "no", "no"]]), "binary")
    >>> labels.values.tolist(), labels.classes
    ([1, 0, 0], ('no', 'yes'))
    """
    column = without_nan(decoded(column if rows is None else column.take(pa.array(rows))))
    if column.null_count:
        first = pc.index(pc.is_null(column), True).as_py()
        got = f"none in {column.null_count} rows, the first is {_row(first, rows)}"
        raise fault(where, "a label in every row", got, "drop the rows without one")
    if not is_text(column.type) and not any(check(column.type) for check in _KINDS):
        raise fault(where, "numbers, text or booleans", f"{column.type}", "turn the label column into one of these")
    if task == "regression":
        return _targets(column, where, rows)
    distinct = pc.unique(column)
    distinct = distinct.take(pc.array_sort_indices(distinct))
    classes = tuple(category_text(pa.chunked_array([distinct]), "label", where).to_pylist())
    if len(classes) < 2:
        got = f"only {classes[0]!r}" if classes else "no label"
        raise fault(where, "labels of two classes or more", got, "is it the right column, and are these all the rows?")
    if task == "binary" and len(classes) > 2:
        remedy = "set task: regression" if _is_measured(column, len(classes)) else "set task: multiclass"
        if len(folded(classes)) == 2:
            remedy = f"{spelt_differently(classes)}, or {remedy}"
        raise fault(where, "two classes for task binary", f"{len(classes)} ({_some(classes)})", remedy)
    if task == "multiclass" and _is_measured(column, len(classes)):
        raise fault(where, "classes", f"{len(classes)} different numbers ({_some(classes)})", "set task: regression")
    codes = pc.index_in(column, value_set=distinct).to_numpy()
    return Labels(torch.from_numpy(codes.astype(np.int64)), classes, _kind_of(column.type))


def check_training_labels(labels: Labels, training: Tensor, where: str) -> None:
    """Refuse training rows that all have the same label.

    Args:
        labels: Labels of all common rows.
        training: int64 (n,), which of them are training rows.
        where: Name of the data, for error messages.

    Raises:
        DataError: they are all equal.
    """
    chosen = labels.values[training]
    if len(chosen) and bool((chosen == chosen[0]).all()):
        raise fault(where, "different labels in the training rows", "the same in all", "provide more rows")


def _targets(column: pa.ChunkedArray, where: str, rows: npt.NDArray[np.int64] | None) -> Labels:
    if is_text(column.type) or pa.types.is_boolean(column.type):
        raise fault(where, "numbers for task regression", f"{column.type}", "set task: binary or multiclass")
    values = torch.from_numpy(number_values(column, "label", where)).to(torch.float32)
    if not bool(torch.isfinite(values).all()):
        row = int(torch.nonzero(~torch.isfinite(values))[0])
        raise fault(where, "finite labels", f"{column[row].as_py()} in {_row(row, rows)}", "fix or drop the row")
    if bool((values == values[:1]).all()):
        raise fault(where, "different labels", f"{values[0].item():g} in all rows", "is it the right column?")
    return Labels(values, (), _kind_of(column.type))


def _kind_of(kind: pa.DataType) -> LabelKind:
    if is_text(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "integer" if pa.types.is_integer(kind) else "number"


def _is_measured(column: pa.ChunkedArray, distinct: int) -> bool:
    """Whether the labels look like measurements: many different numbers that are not all whole."""
    if distinct <= _MEASURED or not (pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        return False
    values = number_values(column, "label", "labels")
    return bool((values != np.floor(values)).any())


def _row(index: int, rows: npt.NDArray[np.int64] | None) -> str:
    return f"row {index if rows is None else int(rows[index])} (counted from 0)"


def _some(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:3]) + (", ..." if len(classes) > 3 else "")
