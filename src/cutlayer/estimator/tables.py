"""Turns the arguments of an estimator into tables and labels, or refuses them with an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.data.sources import open_source
from cutlayer.errors import DataError

LABEL, WEIGHT, EXPOSURE, EVENT = "label", "weight", "exposure", "event"
"""Names of the columns that an estimator adds to the active party's table."""
Tables = Mapping[str, Any]


def with_columns(table: pa.Table | None, added: Mapping[str, npt.NDArray[Any]]) -> pa.Table:
    """The active party's table with its labels, and what else it knows of the rows, in columns of their own."""
    for name, values in added.items():
        column = pa.array(values)
        if table is None:
            table = pa.table({name: column})
        elif name in table.column_names:
            raise DataError(f"a feature of the active party is called {name!r}; rename it")
        else:
            table = table.append_column(name, column)
    return table


def weights_of(sample_weight: Any, labels: npt.NDArray[Any], class_weight: object) -> npt.NDArray[np.float64] | None:
    """Weights (n,) of the rows in the loss, float64; `None` if all rows have the same.

    Args:
        sample_weight: Weights of the rows (n,), or `None`.
        labels: Labels (n,).
        class_weight: Weight of each class by label, 1 where it has none; anything but a mapping changes nothing.

    Raises:
        DataError: No numbers, another number than of rows, no weight above 0, or a class that no row has.
    """
    if sample_weight is None and not isinstance(class_weight, Mapping):
        return None
    weights = np.ones(len(labels)) if sample_weight is None else numbers_of("sample_weight", sample_weight, len(labels))
    if isinstance(class_weight, Mapping):
        for label, weight in class_weight.items():
            if not (rows := labels == label).any():
                known = ", ".join(map(str, np.unique(labels)))
                raise DataError.expected(f"class_weight of {known}", repr(label), "keys are labels of y")
            weights[rows] *= weight
    if not weights.any():
        raise DataError.expected("a sample_weight above zero in some row", "zero in all")
    return weights


def numbers_of(argument: str, values: Any, rows: int) -> npt.NDArray[np.float64]:
    """Numbers of the rows, float64 (n,), a copy.

    Raises:
        DataError: No numbers, or another number than of rows.
    """
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError.expected(f"{argument} as numbers (n,)", type(values).__name__) from None
    if numbers.shape != (rows,):
        raise DataError.expected(f"{argument} as numbers ({rows},), one per row", f"shape {numbers.shape}")
    return numbers


def labels_of(y: Any) -> npt.NDArray[Any]:
    """Labels (n,) of one kind; a single column counts as that."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or not len(labels):
        raise DataError.expected("y as labels (n,), one per row", f"shape {labels.shape}")
    try:
        np.unique(labels)
    except TypeError:
        got = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise DataError.expected("labels of one kind in y", got, "drop the rows without a label") from None
    return labels


def read_tables(tables: Tables, names: Sequence[str]) -> dict[str, pa.Table]:
    """The parties' tables; the index of a pandas frame is no column."""
    plain = {name: tables[name] for name in names}
    for name, table in plain.items():
        plain[name] = table.reset_index(drop=True) if hasattr(table, "reset_index") else table
    return {name: open_source(table, name).read_all() for name, table in plain.items()}


def check_mapping(tables: object) -> None:
    """Tables come by party."""
    if not isinstance(tables, Mapping):
        wanted = "X as a mapping from party name to table"
        raise DataError.expected(wanted, type(tables).__name__, "or set `columns`, which divides one table")


def check_order(inputs: Mapping[str, Any]) -> None:
    """Refuse tables whose pandas indexes share ids that stand in other rows: rows are joined by position.

    Indexes without a common value are accepted: only the owner knows what they mean. So is the index that a frame has
    by default beside another one, unless the other has the same values in another order.

    Args:
        inputs: Tables, labels and weights by name; those without an index are not compared.

    Raises:
        DataError: The rows of two of them have other ids.
    """
    indexes = {name: table.index for name, table in inputs.items() if hasattr(table, "iloc")}
    for (first, wanted), (name, index) in combinations(indexes.items(), 2):
        if len(index) != len(wanted) or index.equals(wanted):
            continue
        shared = len({*index} & {*wanted})
        same = shared == len({*index}) == len({*wanted})
        if same or (shared and not any(map(_is_default, (index, wanted)))):
            values, where = ("the", "in another order") if same else (f"{shared:,} of the", "in rows of their own")
            more = "" if same else ", and leave out ids that one of them lacks"
            got = f"an index of {name} with {values} values of that of {first} {where}"
            remedy = f"reindex {name} by the index of {first}{more}, or reset_index(drop=True) of both if they fit"
            raise DataError.expected("rows in one order everywhere, since they are joined by position", got, remedy)


def _is_default(index: Any) -> bool:
    """Whether an index only counts the rows from 0."""
    return (getattr(index, "start", None), getattr(index, "step", None)) == (0, 1)


def check_rows(tables: Mapping[str, pa.Table], labels: int | None = None) -> None:
    """The i-th rows of all tables belong together, so they have as many."""
    counts = {name: table.num_rows for name, table in tables.items()}
    counts |= {} if labels is None else {"y": labels}
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise DataError.expected("as many rows everywhere, in the same order", got)
