"""Encoded rows, and the shape of their columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.data.faults import fault
from cutlayer.data.images import ImageSpec
from cutlayer.problem.inputs import Inputs
from cutlayer.storage.row_arrays import row_array, with_rows

CHUNK_ROWS = 131_072


@dataclass(frozen=True)
class ColumnSpec:
    """The shape of a party's encoded features, for its bottom model.

    Attributes:
        cardinalities: Codes per categorical column, the reserved ones included.
        numeric: Number of numeric columns.
        category_names: Names of the categorical columns, in the order of the matrix.
        number_names: Names of the numeric columns, in the order of the matrix.
        image: Shape and scale of the image column; None if there is none.
        has_rare_categories: Whether most categories of some column are too rare to learn from.
    """

    cardinalities: tuple[int, ...]
    numeric: int
    category_names: tuple[str, ...] = ()
    number_names: tuple[str, ...] = ()
    image: ImageSpec | None = None
    has_rare_categories: bool = False

    @property
    def inputs(self) -> Inputs:
        """Inputs of a bottom model over these columns: the pixels of the image are the last numbers."""
        if self.image is None:
            return Inputs(self.cardinalities, self.numeric, has_rare_categories=self.has_rare_categories)
        numbers = self.numeric + self.image.pixels
        return Inputs(self.cardinalities, numbers, self.image.shape, self.has_rare_categories)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded rows, row-major.

    Attributes:
        codes: int32 (n, categorical columns).
        numbers: float32 (n, numeric columns).
        images: uint8 or float32 (n, channels, height, width), not scaled yet; None if there is no image column.
    """

    codes: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.float32]
    images: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Encoded:
        """Some of the rows, without a copy."""
        return Encoded(self.codes[rows], self.numbers[rows], None if self.images is None else self.images[rows])


def collect_chunks(chunks: Iterable[Encoded], columns: ColumnSpec, rows: int) -> Encoded:
    """Encoded rows of several chunks, one after the other; large matrices are mapped from files.

    Args:
        chunks: Together all rows.
        columns: Shape of the columns.
        rows: Number of rows.
    """
    image = columns.image
    whole = Encoded(
        row_array((rows, len(columns.cardinalities)), np.int32),
        row_array((rows, columns.numeric), np.float32),
        None if image is None else row_array((rows, *image.shape), image.dtype),
    )
    for place, chunk in with_rows(chunks):
        part = whole[place]
        part.codes[:], part.numbers[:] = chunk.codes, chunk.numbers
        if part.images is not None:
            part.images[:] = chunk.images
    return whole


def check_codes(encoded: Encoded, columns: ColumnSpec, where: str) -> None:
    """Refuse codes that are out of range for an embedding table of this shape.

    Args:
        encoded: Codes int32 (n, c), numbers float32 (n, m), and images if there are any.
        columns: Shape that they must have.
        where: Name of the data, for error messages.

    Raises:
        DataError: A matrix of another shape, or a code below 0 or at least its column's cardinality.
    """
    wanted = (len(encoded), len(columns.cardinalities)), (len(encoded), columns.numeric)
    got = encoded.codes.shape, encoded.numbers.shape
    if wanted != got:
        raise fault(where, f"codes and numbers of shape {wanted[0]} and {wanted[1]}", f"{got[0]} and {got[1]}")
    seen = None if encoded.images is None else (encoded.images.shape, str(encoded.images.dtype))
    due = None if columns.image is None else ((len(encoded), *columns.image.shape), columns.image.dtype)
    if seen != due:
        raise fault(where, f"images {due}", seen)
    if not encoded.codes.size:
        return
    low, high = encoded.codes.min(axis=0), encoded.codes.max(axis=0)
    wrong = np.flatnonzero((low < 0) | (high >= np.array(columns.cardinalities)))
    if len(wrong):
        first = int(wrong[0])
        name = columns.category_names[first] if columns.category_names else first
        span = f"{low[first]}..{high[first]}"
        raise fault(where, f"codes of column {name!r} in 0..{columns.cardinalities[first] - 1}", span)
