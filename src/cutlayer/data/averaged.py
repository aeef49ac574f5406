"""Several rows of one id as a single one: the mean of their numbers, and the most frequent of their categories."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.align import Positions
from cutlayer.data.columns import category_text, decoded, kind_of, number_values
from cutlayer.data.faults import fault
from cutlayer.data.ids import Digests, as_values


@dataclass(frozen=True)
class AveragedRows:
    """Averages the columns of a table over the rows of each id.

    Attributes:
        first: The first row of each id, ascending, int64 (u,).
        ids: Number of each row's id, by the order of their first rows, int64 (n,).
        unchanged: Columns of which an id has the value of its first row.
        categorical: Columns that are categories whatever their type.
        where: Name of the data, for error messages.
    """

    first: Positions
    ids: Positions
    unchanged: Collection[str]
    categorical: Collection[str]
    where: str

    @classmethod
    def of(cls, digests: Digests, unchanged: Collection[str], categorical: Collection[str], where: str) -> AveragedRows:
        """By the digests of the rows' ids, uint8 (n, 16)."""
        _, first, ids = np.unique(as_values(digests), return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(first[order], place[ids], unchanged, categorical, where)

    def __call__(self, table: pa.Table) -> pa.Table:
        """One row for each id, in the order of their first rows.

        Numbers become floats; a missing value does not count, and is missing where all are. Of equally frequent
        categories the smallest text is taken.

        Args:
            table: The rows (n).

        Raises:
            DataError: A column of images.
        """
        return pa.table({name: self._column(name, table.column(name)) for name in table.column_names})

    def _column(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        if name in self.unchanged:
            return column.take(pa.array(self.first))
        column = decoded(column)
        kind = "category" if name in self.categorical else kind_of(name, column.type, self.where)
        if kind == "number":
            return _means(number_values(column, name, self.where), self.ids, len(self.first))
        if kind == "category":
            return _most_frequent(category_text(column, name, self.where), self.ids, len(self.first))
        remedy = "use id.duplicates: first"
        raise fault(self.where, f"numbers or categories in column {name!r} with id.duplicates: mean", "images", remedy)


def _means(values: npt.NDArray[np.float64], ids: Positions, count: int) -> pa.Array:
    there = ~np.isnan(values)
    sums = np.bincount(ids[there], values[there], minlength=count)
    numbers = np.bincount(ids[there], minlength=count)
    means = np.divide(sums, numbers, out=np.full(count, np.nan), where=numbers > 0)
    return pa.array(means, from_pandas=True)


def _most_frequent(texts: pa.ChunkedArray, ids: Positions, count: int) -> pa.Array:
    words = pc.drop_null(pc.unique(texts)).sort()
    there = texts.is_valid().to_numpy()
    codes = pc.index_in(texts.drop_null(), value_set=words).to_numpy()
    pairs, times = np.unique(np.stack([ids[there], codes], axis=1), axis=0, return_counts=True)
    best = pairs[np.lexsort((pairs[:, 1], -times, pairs[:, 0]))]
    chosen = np.full(count, -1, dtype=np.int64)
    chosen[best[::-1, 0]] = best[::-1, 1]  # the last assignment stays: the first of each id
    return words.take(pa.array(chosen, mask=chosen < 0))
