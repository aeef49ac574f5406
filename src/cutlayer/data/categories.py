"""A categorical column as codes: 0 missing, 1 unknown, then the values seen in training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from cutlayer.config import CategoriesConfig, FrozenModel
from cutlayer.storage.row_arrays import with_rows

MISSING_CODE = 0
UNKNOWN_CODE = 1
FIRST_VALUE_CODE = 2
_MIN_MANY_CATEGORIES = 100
"""Number of categories up to which each may have few rows."""
_MIN_MEAN_ROWS = 10
"""Rows of a category, on average, below which most categories are too rare to learn from."""

_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


def are_categories_rare(categories: int, rows: int) -> bool:
    """Whether most of so many categories are too rare to learn from, given so many rows."""
    return categories > _MIN_MANY_CATEGORIES and rows < _MIN_MEAN_ROWS * categories


class CategoryEncoder(FrozenModel):
    """The fitted encoding of a categorical column; plain values, so that it can be saved as JSON.

    Attributes:
        name: Name of the column.
        cardinality: Number of codes, the two reserved ones included.
        values: Training values, or stated ones, of the codes 2, 3, ... in ascending order; empty if hashed.
        hashed: Whether the column was wider than `max_codes`: then every value, seen in training or not, has the code
            2 + FNV-1a-64(UTF-8 bytes) mod (cardinality - 2), and code 1 is not used.
        missing: `code`, or `error` to refuse missing values.
        min_count: Training rows that a value with a code has at least; 0 of a stated vocabulary.
    """

    kind: Literal["category"] = "category"
    name: str
    cardinality: int = Field(ge=FIRST_VALUE_CODE)
    values: tuple[str, ...] = ()
    hashed: bool = False
    missing: Literal["code", "error"] = "code"
    min_count: int = 1

    @classmethod
    def from_training(cls, name: str, values: pa.Array | None, config: CategoriesConfig) -> CategoryEncoder:
        """Codes of values seen in training, or of hashes of all values.

        Args:
            name: Name of the column.
            values: Those of at least `min_count` training rows, `large_string`; `None` if they are too many for
                `max_codes`.
            config: Widest column, what to do about missing values.
        """
        if values is None:
            return cls(name=name, cardinality=config.max_codes, hashed=True, missing=config.missing)
        return cls.from_vocabulary(name, values.to_pylist(), config, min_count=config.min_count)

    @classmethod
    def from_vocabulary(
        cls, name: str, values: Sequence[str], config: CategoriesConfig, *, min_count: int = 0
    ) -> CategoryEncoder:
        """Codes of a public vocabulary, without a look at the rows.

        Args:
            name: Name of the column.
            values: Distinct, in any order.
            config: Treatment of missing values.
            min_count: As the attribute.
        """
        ordered = tuple(sorted(values))
        count = FIRST_VALUE_CODE + len(values)
        return cls(name=name, cardinality=count, values=ordered, missing=config.missing, min_count=min_count)

    @property
    def title(self) -> str:
        """Name of the column of codes."""
        return self.name

    def apply(self, text: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        """Codes of values.

        Args:
            text: `large_string` (n,).

        Returns:
            int32 (n,), each in 0..cardinality-1.
        """
        if self.hashed:
            return self._hashed(text)
        indices = pc.fill_null(pc.index_in(text, value_set=self._lookup), UNKNOWN_CODE - FIRST_VALUE_CODE)
        codes: npt.NDArray[np.int32] = indices.to_numpy() + np.int32(FIRST_VALUE_CODE)
        if text.null_count:
            codes[pc.is_null(text).to_numpy()] = MISSING_CODE
        return codes

    def apply_coded(self, text: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        """Codes of dictionary-coded text (n,), as `apply`."""
        parts = []
        for chunk in text.chunks:
            codes = np.append(self.apply(pa.chunked_array([chunk.dictionary.cast(pa.large_string())])), MISSING_CODE)
            parts.append(codes[pc.fill_null(chunk.indices.cast(pa.int64()), len(chunk.dictionary)).to_numpy()])
        return np.concatenate([np.empty(0, np.int32), *parts], dtype=np.int32)

    @cached_property
    def _lookup(self) -> pa.Array:
        return pa.array(self.values, pa.large_string())

    def _hashed(self, text: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        codes = np.empty(len(text), dtype=np.int32)
        for rows, chunk in with_rows(text.chunks):
            buckets = fnv1a(chunk) % np.uint64(self.cardinality - FIRST_VALUE_CODE)
            part = codes[rows]
            part[:] = buckets.astype(np.int32) + FIRST_VALUE_CODE
            part[chunk.is_null().to_numpy(zero_copy_only=False)] = MISSING_CODE
        return codes


def fnv1a(text: pa.Array) -> npt.NDArray[np.uint64]:
    """FNV-1a with 64 bits of each value's UTF-8 bytes, all rows at once, one byte position after the other.

    Args:
        text: `large_string` (n,); a null counts as no bytes.

    Returns:
        uint64 (n,).

    Reference: Fowler, Noll, Vo; http://www.isthe.com/chongo/tech/comp/fnv/.

    >>> [hex(word) for word in fnv1a(pa.array(["", "foobar"], pa.large_string())).tolist()]
    ['0xcbf29ce484222325', '0x85944171f73967e8']
    """
    lengths = pc.fill_null(pc.binary_length(text), 0).to_numpy()
    _, offsets, data = text.buffers()
    if not lengths.any():
        return np.full(len(text), _FNV_OFFSET)
    letters = np.frombuffer(data, dtype=np.uint8)
    starts = np.frombuffer(offsets, dtype=np.int64)[text.offset : text.offset + len(text)]
    by_length = np.argsort(lengths, kind="stable")
    starts = starts[by_length]
    words = np.full(len(text), _FNV_OFFSET)
    longer = np.searchsorted(lengths[by_length], np.arange(lengths.max()), side="right")
    for position, first in enumerate(longer):
        words[first:] = (words[first:] ^ letters[starts[first:] + position]) * _FNV_PRIME
    result = np.empty_like(words)
    result[by_length] = words
    return result
