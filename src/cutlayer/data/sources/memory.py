"""Tables in memory: data frames, arrays and mappings of columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cutlayer.data.faults import fault
from cutlayer.data.images import IMAGE, image_column
from cutlayer.data.sources.base import Names, Source, check_names
from cutlayer.errors import DataError


class MemorySource(Source):
    """An Arrow table."""

    is_file = False

    def __init__(self, where: str, table: pa.Table) -> None:
        self._table = table
        super().__init__(where, table.column_names)

    def _pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        yield self._table.select(names)


def as_table(data: object, where: str) -> pa.Table:
    """Turn a data frame, an array or a mapping of columns into an Arrow table.

    Args:
        data: An Arrow table or record batch; a pandas or polars frame, or anything else with `__arrow_c_stream__`; a
            mapping from column name to values, images among them; a numpy array (rows,) or (rows, columns), whose
            columns are called x0, x1, ...; images (rows, height, width) or (rows, height, width, channels), whose
            column is called image.
        where: Whose table, for messages.

    Raises:
        DataError: It is none of these, or a column mixes types.
    """
    if isinstance(data, pa.Table):
        return data
    try:
        if isinstance(data, Mapping):
            return pa.table({name: _values(values, f"{where}: {name}") for name, values in data.items()})
        if hasattr(data, "iloc") and hasattr(data, "columns"):
            check_names(where, [*data.columns])
        if isinstance(data, pa.RecordBatch) or hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        if isinstance(data, np.ndarray) or hasattr(data, "__array__"):
            return _of_array(np.asarray(data), where)
    except (pa.ArrowException, TypeError, ValueError) as failure:
        raise _mixed(data, failure, where) from failure
    raise fault(where, "a file, a data frame or an array", type(data).__name__)


def _mixed(data: Any, failure: Exception, where: str) -> DataError:
    """The error of a table that Arrow cannot take, with the column if Arrow names it."""
    text = " ".join(map(str, failure.args))
    column = re.search(r"Conversion failed for column (.+) with type", text)
    got = text.partition("\n")[0][:200]
    if column is not None and hasattr(data, "iloc") and column[1] in data:
        kinds = sorted({type(value).__name__ for value in data[column[1]]})
        got = f"{', '.join(kinds)} in column {column[1]!r}"
    remedy = "convert it: astype(str) for categories, pandas.to_numeric for numbers"
    return fault(where, "columns of one type each", got, remedy)


def _values(values: object, where: str) -> object:
    """A column of a mapping in a form that `pa.table` accepts."""
    return image_column(values, where) if isinstance(values, np.ndarray) and values.ndim > 2 else values


def _of_array(array: np.ndarray[Any, Any], where: str) -> pa.Table:
    if array.ndim in (3, 4):
        return pa.table({IMAGE: image_column(array, where)})
    if array.ndim not in (1, 2):
        wanted = "an array of one to four dimensions"
        raise fault(where, wanted, f"shape {array.shape}", "reshape it to (rows, columns)")
    columns = np.asfortranarray(array.reshape(len(array), -1)).T
    return pa.table({f"x{index}": pa.array(column) for index, column in enumerate(columns)})
