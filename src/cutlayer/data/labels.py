"""Labels of the active party as class codes or targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.job import TaskKind
from cutlayer.config.target import SECOND_COLUMNS, Target
from cutlayer.data.classes import folded_names, spelling_note
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import category_text, is_text, number_values, without_dictionary, without_nan
from cutlayer.data.stored import contiguous
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import chunks_of, computed_rows, gathered_rows
from cutlayer.storage.row_tensors import first_column

MISSING_LABELS = "in a CSV file NA, NaN, nan, null and ? are no labels, unless its table.missing says otherwise"
LabelKind = Literal["text", "integer", "number", "boolean"]
_MAX_UNMEASURED = 100
_MAX_GROUPS = 1 << 24
_KINDS = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


@dataclass(frozen=True, eq=False)
class Labels:
    """True labels, in the order of the rows.

    Attributes:
        values: int64 (n,) class codes, or float32 targets of a regression: (n,), or (n, 2) with a second column of the
            label: rates and exposures, times and events, or grades and groups.
        classes: Names of the classes by code, in ascending order of the label values; of a binary task the second,
            greater one is the positive class. Empty for regression.
        kind: type of the labels in the table.
    """

    values: Tensor
    classes: tuple[str, ...]
    kind: LabelKind = "text"

    @property
    def single(self) -> Tensor:
        """A number for each row, (n,): of two columns the first, a rate or a time."""
        return first_column(self.values)


def encode_labels(
    column: pa.Array | pa.ChunkedArray,
    task: TaskKind,
    where: str = "labels",
    rows: npt.NDArray[np.int64] | None = None,
    target: Target = "value",
    second: tuple[str, pa.Array] | None = None,
) -> Labels:
    """Turn a label column into the targets of the task's loss.

    Numbers are in numeric order, text in the order of its characters, false before true. So of 0 and 1, no and yes,
    or <=50K and >50K, the second one is the positive class.

    Args:
        column: Labels of the whole table as numbers, text or booleans.
        task: `binary`, `multiclass` or `regression`.
        where: Name of the data, for error messages.
        rows: int64 (n,), the rows of the column to return, in this order; all if None. Classes and errors are those of
            the whole column: a partner has a part in which rows are common, and sees whether a run fails.
        target: What the numbers of a regression are.
        second: Name, for error messages, and values of the column of exposures, events or groups.

    Raises:
        DataError: Labels are missing, all equal, or of another kind than the task's or its target.

    >>> labels = encode_labels(pa.chunked_array([["yes", "no", "no"]]), "binary")
    >>> labels.values.tolist(), labels.classes
    ([1, 0, 0], ('no', 'yes'))
    """
    whole = contiguous([column]) if isinstance(column, pa.ChunkedArray) else column
    rows = np.arange(len(whole)) if rows is None else rows
    pieces = [*chunks_of(len(whole))] or [(0, 0)]
    values = contiguous(without_nan(pa.chunked_array([whole.slice(start, end - start)])) for start, end in pieces)
    if values.null_count:
        got = f"none in {values.null_count} rows, the first is {_row(pc.index(values.is_null(), True).as_py())}"
        remedy = f"drop the rows without one, or set unlabelled: drop{_words(values)}"
        raise fault(where, "a label in every row", got, remedy)
    if not is_text(values.type) and not any(check(values.type) for check in _KINDS):
        raise fault(where, "numbers, text or booleans", f"{values.type}", "turn the label column into one of these")
    if task == "regression":
        return _targets(values, where, rows, target, second)
    distinct = pc.unique(values)
    distinct = distinct.take(pc.array_sort_indices(distinct))
    classes = tuple(category_text(pa.chunked_array([distinct]), "label", where).to_pylist())
    if len(classes) < 2:
        got = f"only {classes[0]!r}" if classes else "no label"
        remedy = f"is it the right column, and are these all the rows?{_words(values)}"
        raise fault(where, "labels of two classes or more", got, remedy)
    if task == "binary" and len(classes) > 2:
        remedy = "set task: regression" if _is_measured(distinct) else "set task: multiclass"
        if len(folded_names(classes)) == 2:
            remedy = f"{spelling_note(classes)}, or {remedy}"
        raise fault(where, "two classes for task binary", f"{len(classes)} ({_some(classes)})", remedy)
    if task == "multiclass" and _is_measured(distinct):
        raise fault(where, "classes", f"{len(classes)} different numbers ({_some(classes)})", "set task: regression")
    codes = computed_rows(
        len(rows), np.int64, lambda part: pc.index_in(values.take(pa.array(rows[part])), value_set=distinct).to_numpy()
    )
    return Labels(torch.from_numpy(codes), classes, _kind_of(values.type))


def check_training_labels(labels: Tensor, where: str) -> None:
    """Refuse training rows that all have the same label.

    Args:
        labels: Labels of the training rows as they are trained on: drawn ones where labels are protected.
        where: Name of the data, for error messages.

    Raises:
        DataError: They are all equal.
    """
    values = labels.numpy()
    if len(values) and values.min() == values.max():
        raise fault(where, "different labels in the training rows", "the same in all", "provide more rows")


def _targets(
    values: pa.Array, where: str, rows: npt.NDArray[np.int64], target: Target, second: tuple[str, pa.Array] | None
) -> Labels:
    if is_text(values.type) or pa.types.is_boolean(values.type):
        got = str(values.type).removeprefix("large_")
        raise fault(where, "numbers for task regression", got, "set task: binary or multiclass")

    targets = computed_rows(len(values), np.float32, partial(_numbers, values, "label", where, *_ALLOWED[target]))
    if not len(targets) or targets.min() == targets.max():
        first = f"{targets[0]:g}" if len(targets) else "none"
        raise fault(where, "different labels", f"{first} in all rows", "is it the right column?")
    if second is not None:
        beside, column = second
        kind = SECOND_COLUMNS[target]
        if kind == "group":
            column = _numbered(column, beside)
        numbers = computed_rows(len(column), np.float32, partial(_numbers, column, kind, beside, *_ALLOWED[kind]))
        if kind == "event" and not numbers.any():
            raise fault(beside, "an event, 1, in some row", "none", "is it the right column?")
        targets = np.stack([targets / numbers if kind == "exposure" else targets, numbers], axis=1)
    return Labels(torch.from_numpy(gathered_rows(targets, rows)), (), _kind_of(values.type))


def _numbered(groups: pa.Array, where: str) -> pa.Array:
    """Number of the group of each row, int64 (n,), from 0.

    Raises:
        DataError: A row has none, or there are more than a float32 counts.
    """
    groups = without_nan(without_dictionary(groups))
    distinct = pc.unique(groups)
    if groups.null_count or len(distinct) > _MAX_GROUPS:
        got = f"none in {groups.null_count:,} rows" if groups.null_count else f"{len(distinct):,} of them"
        raise fault(where, f"a group in every row, and {_MAX_GROUPS:,} groups at most", got, "fix or drop the rows")
    return pc.index_in(groups, value_set=distinct)


_Wanted = tuple[str, Callable[[npt.NDArray[np.float32]], npt.NDArray[np.bool_]]]
_ALLOWED: Mapping[str, _Wanted] = {
    "value": ("finite labels", np.isfinite),
    "count": ("counts: whole numbers, 0 or more", lambda numbers: (numbers >= 0) & (numbers == np.floor(numbers))),
    "amount": ("amounts of 0 or more", lambda numbers: numbers >= 0),
    "severity": ("amounts above 0", lambda numbers: numbers > 0),
    "survival": ("times of 0 or more", lambda numbers: numbers >= 0),
    "ranking": ("grades of relevance: whole numbers, 0 to 30", lambda n: (n >= 0) & (n <= 30) & (n == np.floor(n))),
    "group": ("numbers of groups", lambda numbers: numbers >= 0),
    "exposure": ("exposures above 0 in all rows", lambda numbers: numbers > 0),
    "event": ("1, an event, or 0, a censored row, in all rows", lambda numbers: (numbers == 0) | (numbers == 1)),
}
"""What a number of a label may be: in words, and as a test."""


def _numbers(
    values: pa.Array, kind: str, where: str, wanted: str, is_allowed: Callable[[Any], Any], part: slice
) -> npt.NDArray[np.float32]:
    piece = values.slice(part.start, part.stop - part.start)
    if pa.types.is_boolean(piece.type):
        piece = piece.cast(pa.int8())
    read = number_values(pa.chunked_array([piece]), kind, where)
    numbers = torch.from_numpy(read).to(torch.float32).numpy()
    wrong = np.flatnonzero(~(np.isfinite(numbers) & is_allowed(numbers)))
    if len(wrong):
        first = int(wrong[0])
        beyond = ", beyond the 3.4e+38 of float32" * bool(np.isfinite(read[first]) and np.isinf(numbers[first]))
        got = f"{piece[first].as_py()} in {_row(part.start + first)}{beyond}"
        raise fault(where, wanted, got, "fix or drop the row")
    return numbers


def _kind_of(kind: pa.DataType) -> LabelKind:
    if is_text(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "integer" if pa.types.is_integer(kind) else "number"


def _is_measured(distinct: pa.Array) -> bool:
    """Whether the labels look like measurements: many different numbers that are not all whole."""
    kind = distinct.type
    if len(distinct) <= _MAX_UNMEASURED or not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return False
    values = number_values(pa.chunked_array([distinct]), "label", "labels")
    return bool((values != np.floor(values)).any())


def _words(values: pa.Array) -> str:
    """What reads as no label in a file of text, to append to a remedy; empty of labels that are no text."""
    return f"; {MISSING_LABELS}" if is_text(values.type) else ""


def _row(number: int | np.int64) -> str:
    return f"row {number} (counted from 0)"


def _some(classes: tuple[str, ...]) -> str:
    shown = [repr(name) if "," in name else name for name in classes[:3]]
    return ", ".join(shown) + (", ..." if len(classes) > 3 else "")
