"""Splits a data set into the tables of parties, for simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.config.table import Part
from cutlayer.errors import DataError

Array = npt.NDArray[Any]


def part_of(images: Array, part: Part) -> Array:
    """One half of every image, or all of it.

    Args:
        images: (n, height, width) or (n, height, width, channels).
        part: `left` and `right` halve the width, `top` and `bottom` the height.

    Returns:
        A view of the images.

    Raises:
        DataError: The side to be halved is odd, or these are no images.

    >>> part_of(np.arange(8).reshape(1, 2, 4), "right").tolist()
    [[[2, 3], [6, 7]]]
    """
    if images.ndim not in (3, 4):
        raise DataError.expected("images (n, height, width) or (n, height, width, channels)", f"shape {images.shape}")
    if part == "all":
        return images
    axis, side = (2, "width") if part in ("left", "right") else (1, "height")
    size = images.shape[axis]
    if size % 2:
        raise DataError.expected(
            f"images of even {side} for part {part}", size, "crop or pad them, or take another part"
        )
    first, second = np.split(images, 2, axis=axis)
    return first if part in ("left", "top") else second


def halves(images: Array, across: Literal["width", "height"] = "width") -> dict[str, Array]:
    """Both halves of every image: `left` and `right`, or `top` and `bottom`.

    Args:
        images: (n, height, width) or (n, height, width, channels).
        across: Side that is halved.

    Raises:
        DataError: That side is odd, or these are no images.

    >>> {name: half.shape for name, half in halves(np.zeros((5, 28, 28))).items()}
    {'left': (5, 28, 14), 'right': (5, 28, 14)}
    """
    parts: tuple[Part, Part] = ("left", "right") if across == "width" else ("top", "bottom")
    return {part: part_of(images, part) for part in parts}


def columns(table: pa.Table, patterns: Mapping[str, Sequence[str]]) -> dict[str, pa.Table]:
    """A table's columns by party, in the table's order.

    A column may go to several parties, as an id does.

    Args:
        table: Table with all columns.
        patterns: Names by party, in which `*`, `?` and `[...]` stand for characters, as in file names.

    Raises:
        DataError: A pattern fits no column.

    >>> table = pa.table({"id": [1], "age": [40], "calls_3g": [5]})
    >>> columns(table, {"bank": ["id", "age"], "telco": ["id", "calls_*"]})["telco"].column_names
    ['id', 'calls_3g']
    """
    names = table.column_names
    parts: dict[str, pa.Table] = {}
    for party, wanted in patterns.items():
        idle = [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in names)]
        if idle:
            raise DataError.expected(f"columns of {party} that fit {', '.join(map(repr, idle))}", "none")
        parts[party] = table.select([name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)])
    return parts


def views(arrays: Sequence[Array], prefix: str = "view") -> dict[str, Array]:
    """Several views of the same rows, one per party: `view0`, `view1`, ...

    Args:
        arrays: (n, ...) each.
        prefix: Start of the parties' names.

    Raises:
        DataError: They have different numbers of rows, or there is none.

    >>> list(views([np.zeros((4, 2)), np.zeros((4, 7))]))
    ['view0', 'view1']
    """
    rows = [len(array) for array in arrays]
    if len(set(rows)) != 1:
        raise DataError.expected("views of one number of rows", ", ".join(map(str, rows)) or "no view")
    return {f"{prefix}{index}": array for index, array in enumerate(arrays)}
