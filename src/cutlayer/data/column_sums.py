"""Checksums of encoded columns: which of them have other values than in an earlier start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

import numpy as np

from cutlayer.data.encoded import ColumnSpec, Encoded


class ColumnSums:
    """Sums encoded rows up on their way to a store, each column by itself.

    CRC-32, as of the store's files: it takes a few percent of the time of encoding, and finds what changed by accident.

    Args:
        columns: Shape and names of the columns.
    """

    def __init__(self, columns: ColumnSpec) -> None:
        categories = columns.category_names or [f"category {index}" for index in range(len(columns.cardinalities))]
        numbers = columns.number_names or [f"number {index}" for index in range(columns.numeric)]
        self._names = [(name, "category") for name in categories] + [(name, "number") for name in numbers]
        self._names += [("the images", "image")] if columns.image is not None else []
        self._sums = [0] * len(self._names)

    def tracked(self, chunks: Iterable[Encoded]) -> Iterator[Encoded]:
        """The same chunks, each summed up as it passes."""
        for chunk in chunks:
            columns = [*np.ascontiguousarray(chunk.codes.T), *np.ascontiguousarray(chunk.numbers.T)]
            columns += [] if chunk.images is None else [np.ascontiguousarray(chunk.images)]
            self._sums = [crc32(column, value) for column, value in zip(columns, self._sums, strict=True)]
            yield chunk

    def checksums(self) -> dict[str, str]:
        """Kind and checksum of the rows so far, by the name of the column."""
        return {name: f"{kind} {value:08x}" for (name, kind), value in zip(self._names, self._sums, strict=True)}
