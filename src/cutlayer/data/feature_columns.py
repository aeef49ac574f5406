"""The feature columns, their kinds, and their values as text or as numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import FeaturesConfig
from cutlayer.data.faults import fault, missing_column
from cutlayer.data.images import is_image

ColumnKind = Literal["category", "number", "image"]

_INDEX = re.compile(r"__index_level_\d+__|")
_MICROSECONDS_PER_DAY = 86_400e6


def with_own_memory(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with text in memory of its own: a text of an engine's batch holds all columns of the batch in memory."""
    if not pa.types.is_string(column.type):
        return column
    copies = [[each and pa.py_buffer(each.to_pybytes()) for each in chunk.buffers()] for chunk in column.chunks]
    chunks = [
        pa.Array.from_buffers(chunk.type, len(chunk), buffers, chunk.null_count, chunk.offset)
        for chunk, buffers in zip(column.chunks, copies, strict=True)
    ]
    return pa.chunked_array(chunks, column.type)


def without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with dictionary codes replaced by their values."""
    if not pa.types.is_dictionary(column.type):
        return column
    kind = pa.large_string() if is_text(column.type.value_type) else column.type.value_type
    chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether this Arrow type is text of any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_coded_text(kind: pa.DataType) -> bool:
    """Whether this Arrow type is text that is coded by a dictionary."""
    return bool(pa.types.is_dictionary(kind) and is_text(kind.value_type))


def feature_names(
    known: Sequence[str],
    features: FeaturesConfig,
    where: str,
    reserved: Collection[str] = (),
    unless_named: Collection[str] = (),
) -> tuple[str, ...]:
    """Names of the feature columns, in the table's order.

    With `include: all`, columns that only number the rows of a saved data frame (without a name, or called
    `__index_level_0__`) are left out.

    Args:
        known: Names of all columns.
        features: Columns that the user asked for.
        where: Name of the data, for error messages.
        reserved: Id and label, which are never features.
        unless_named: Columns that are features only where `features.include` names them.

    Raises:
        DataError: A name is not in the table or is reserved, or nothing is left although `include` is not `none`.
    """
    named = () if isinstance(features.include, str) else features.include
    there = set(known)
    for name in (*named, *features.exclude, *features.categorical, *features.ranges, *features.vocabulary):
        if name not in there:
            raise missing_column(where, name, tuple(known))
    for name in named:
        if name in reserved:
            raise fault(where, "features apart from id and label", f"{name!r} in features.include", "leave it out")
    if features.include == "none":
        return ()
    every = [name for name in known if not _INDEX.fullmatch(name)] if features.include == "all" else named
    left_out = {*features.exclude, *reserved, *({*unless_named} - {*named})}
    chosen = {name for name in every if name not in left_out}
    if not chosen:
        raise fault(where, "a feature column", "none besides id and label", "features.include: none if that is meant")
    return tuple(name for name in known if name in chosen)


def column_kind(name: str, kind: pa.DataType, where: str) -> ColumnKind:
    """Whether a column of this Arrow type is a category, a number or an image.

    Text, booleans and dictionaries are categories. Integers, floats and decimals are numbers; so are dates and
    timestamps (days since 1970-01-01 UTC) and durations (days). A column without any value is a number. Tensors of
    bytes or float32 are images.

    Raises:
        DataError: Any other type, such as lists, structs, binary data and times of day.
    """
    types = pa.types
    if is_text(kind) or types.is_boolean(kind) or types.is_dictionary(kind):
        return "category"
    if any(check(kind) for check in (types.is_integer, types.is_floating, types.is_decimal, types.is_null)):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return "number"
    if is_image(kind):
        return "image"
    remedy = "turn it into numbers or text, or add it to features.exclude"
    raise fault(where, f"numbers, text or booleans in column {name!r}", f"{kind}", remedy)


def category_text(column: pa.ChunkedArray, name: str, where: str) -> pa.ChunkedArray:
    """Values as text, `large_string` (n,), NaN and missing as null.

    A whole float is written as the integer it is, so that 3 and 3.0 are one category.

    Raises:
        DataError: Lists, structs and other types that have no text.
    """
    column = without_nan(without_dictionary(column))
    try:
        return column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        remedy = "turn it into text, or add it to features.exclude"
        raise fault(where, f"text or numbers in column {name!r}", f"{column.type}", remedy) from None


def without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with NaN as null."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def number_values(column: pa.ChunkedArray, name: str, where: str) -> npt.NDArray[np.float64]:
    """Values as float64 (n,), missing as NaN.

    Raises:
        DataError: Text that is no number, in a column that was numeric when its encoder was fitted.
    """
    column = without_dictionary(column)
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column = _days(column.cast(pa.timestamp("us"), safe=False))
    elif pa.types.is_duration(kind):
        column = _days(column.cast(pa.duration("us"), safe=False))
    try:
        floats = column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise fault(where, f"numbers in column {name!r}", _not_a_number(column), "fix the column") from None
    return np.array(floats.to_numpy(), dtype=np.float64)


def _days(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), _MICROSECONDS_PER_DAY)


def _not_a_number(column: pa.ChunkedArray) -> str:
    if not is_text(column.type):
        return f"type {column.type}"
    for row, value in enumerate(column.to_pylist()):
        try:
            float(value or 0)
        except ValueError:
            return f"{value!r} in row {row} of those read"
    return "text"
