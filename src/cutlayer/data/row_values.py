"""One word for all values of a row, by which the rows of two releases are joined whose ids are of other columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.categories import fnv1a
from cutlayer.data.feature_columns import category_text, is_text, number_values, without_dictionary

ValueWords = npt.NDArray[np.int64]
ValuesOf = Callable[[Sequence[str]], ValueWords | None]
"""Words of some rows by columns of their table, or `None` where it lacks one of them."""


def value_words(batches: Iterable[pa.Table]) -> ValueWords:
    """A word for the values of each row, whatever the order of the columns, int64 (n,).

    Args:
        batches: Columns of numbers, times or text, batch after batch.

    >>> rows = pa.table({"a": [1, 1], "b": ["x", None]})
    >>> words = value_words([rows.select(["b", "a"])])
    >>> words.tolist() == value_words([rows]).tolist(), words[0] == words[1]
    (True, np.False_)
    """
    pieces = []
    for batch in batches:
        words = np.zeros(batch.num_rows, np.uint64)
        for name, column in zip(batch.column_names, batch.columns, strict=True):
            words += _mixed(_values(name, column) ^ fnv1a(pa.array([name], pa.large_string())))
        pieces.append(words.view(np.int64))
    return np.concatenate(pieces)


def single_words(words: ValueWords) -> ValueWords:
    """The words that are of one row alone, ascending."""
    ordered = np.sort(words)  # np.unique takes many times as long for a million different values
    differs = np.r_[True, ordered[1:] != ordered[:-1], True]
    single: ValueWords = ordered[differs[1:] & differs[:-1] & (ordered != 0)]
    return single


def _values(name: str, column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    if is_text(without_dictionary(column).type):
        texts = pc.dictionary_encode(category_text(column, name, "").combine_chunks(), null_encoding="encode")
        of_text: npt.NDArray[np.uint64] = fnv1a(texts.dictionary)[texts.indices.to_numpy()]
        return of_text
    numbers = number_values(column, name, "") + 0.0  # of two zeros one
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64)


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64, by which sums of words are no sums of values.

    Reference: Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators (OOPSLA), figure 17.
    """
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    return words
