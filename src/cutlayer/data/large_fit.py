"""Encoders from the batches of a large table: equal to those that are fitted on all training rows in memory.

Numbers are summed in the order and by the tree of NumPy's pairwise sum, so that not even the last bit of a scale
depends on how the table was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import CategoriesConfig, FeaturesConfig, NumbersConfig
from cutlayer.data.categories import FIRST, CategoryEncoder, fnv1a
from cutlayer.data.columns import category_text, feature_names, is_coded_text, number_values
from cutlayer.data.encoded import CHUNK_ROWS
from cutlayer.data.encoding import Encoder, FittedColumn, chosen_kind, finite, stated
from cutlayer.data.faults import fault
from cutlayer.data.numbers import NumberEncoder, quartile_scale, transformed
from cutlayer.data.quantiles import QuantileEncoder

Floats = npt.NDArray[np.float64]
SKETCH_CELLS = 1 << 20
"""Counters of a sketch row: 8 MB for the two rows of a column."""
EXACT_SHARE = 4
"""Distinct values that are counted exactly, over `max_codes`."""


def fit_large(
    batches: Iterable[pa.Table], schema: pa.Schema, features: FeaturesConfig, where: str, scratch: Path, memory: int
) -> Encoder:
    """Fit one encoder per column in one pass over the training rows.

    Args:
        batches: Training rows in the common order.
        schema: Columns of the table, with the types that they have as a whole.
        features: Columns that are features, and their encoding.
        where: Name of the table, for messages.
        scratch: Existing folder for the numbers of each column, 8 bytes each.
        memory: Bytes that one column may take in memory; a median, quartiles and quantiles need 16 for each row.

    Raises:
        DataError: An error of `Encoder.fit`; images; or a column does not fit into memory.
    """
    columns: dict[str, tuple[FittedColumn, ...] | CategoryCounts | NumberColumn] = {}
    for index, name in enumerate(feature_names(schema.names, features, where)):
        kind = chosen_kind(name, schema.field(name).type, features, where)
        known = stated(name, kind, features, where)
        if known is not None:
            columns[name] = known
        elif kind == "category":
            columns[name] = CategoryCounts(name, features.categories)
        elif kind == "number":
            columns[name] = NumberColumn(name, scratch / f"{index}.float64", features.numbers, where)
        else:
            raise fault(where, "a table without images, in batches", f"images in {name!r}", "raise memory of the party")
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        for name, column in columns.items():
            if isinstance(column, CategoryCounts):
                values = batch.column(name)
                column.add(values if is_coded_text(values.type) else category_text(values, name, where))
            elif isinstance(column, NumberColumn):
                column.add(batch.column(name))
    fitted: list[FittedColumn] = []
    for column in columns.values():
        if isinstance(column, CategoryCounts):
            fitted.append(column.encoder())
        elif isinstance(column, NumberColumn):
            fitted += column.encoders(memory)
        else:
            fitted += column
    return Encoder.fitted(fitted, rows)


class CategoryCounts:
    """Counts the values of a categorical column in bounded memory.

    A column that is known to be hashed needs no counts. Up to four times `max_codes` distinct values are counted
    exactly. Of a wider column with `min_count` above 1, a count-min sketch counts (Cormode and Muthukrishnan 2005,
    J. Algorithms 55, two rows of 2^20 cells): it never counts too few, and too many where values share both cells.

    Args:
        name: Name of the column.
        config: Widest column and rarest value.
    """

    def __init__(self, name: str, config: CategoriesConfig) -> None:
        self._name, self._config = name, config
        self._counts = pa.table({"values": pa.array([], pa.large_string()), "counts": pa.array([], pa.int64())})
        self._waiting: list[pa.Table] = []
        self._sketch: npt.NDArray[np.int64] | None = None
        self._hashed = False
        self._dictionary: pa.Array | None = None
        self._tally = np.zeros(0, np.int64)

    def add(self, text: pa.ChunkedArray) -> None:
        """Count further training rows (n,): `large_string`, or text that is coded by dictionaries."""
        if self._hashed:
            return
        if is_coded_text(text.type):
            for chunk in text.chunks:
                self._add_coded(chunk)
            return
        counts = pc.value_counts(text)
        self._add_counted(counts.field("values"), counts.field("counts"))

    def _add_coded(self, chunk: pa.DictionaryArray) -> None:
        """Rows with one dictionary are counted by their indices, before the values are looked at."""
        if self._dictionary is None or not self._dictionary.equals(chunk.dictionary):
            self._look_up()
            self._dictionary = chunk.dictionary
            self._tally = np.zeros(len(chunk.dictionary), np.int64)
        self._tally += np.bincount(chunk.indices.drop_null().to_numpy(), minlength=len(self._tally))

    def _look_up(self) -> None:
        """Count the values of the dictionary that came last."""
        if self._dictionary is not None and not self._hashed:
            used = np.flatnonzero(self._tally)
            values = self._dictionary.take(pa.array(used)).cast(pa.large_string())
            self._dictionary = None
            self._add_counted(values, pa.array(self._tally[used]))

    def _add_counted(self, values: pa.Array, counts: pa.Array) -> None:
        table = pa.table({"values": values, "counts": counts})
        table = table.filter(pc.is_valid(table.column("values")))
        if self._sketch is not None:
            self._add_to_sketch(table)
            return
        self._waiting.append(table)
        # Merged only when as many rows wait as there are already, so that the work stays linear.
        if sum(part.num_rows for part in self._waiting) >= max(self._counts.num_rows, CHUNK_ROWS):
            self._merge()

    def encoder(self) -> CategoryEncoder:
        """The encoder of all rows so far."""
        self._look_up()
        self._merge()
        config = self._config
        if self._hashed:
            return CategoryEncoder(name=self._name, cardinality=config.max_codes, hashed=True, missing=config.missing)
        return CategoryEncoder.stated(self._name, self._frequent().column("values").to_pylist(), config)

    def _frequent(self) -> pa.Table:
        return self._counts.filter(pc.greater_equal(self._counts.column("counts"), self._config.min_count))

    def _merge(self) -> None:
        if self._waiting:
            whole = pa.concat_tables([self._counts, *self._waiting])
            merged = whole.group_by("values").aggregate([("counts", "sum")])
            self._counts = merged.rename_columns({"counts_sum": "counts"}).select(["values", "counts"])
            self._waiting = []
        max_codes = self._config.max_codes
        if self._frequent().num_rows + FIRST > max_codes:
            self._hashed, self._counts = True, self._counts.slice(0, 0)
        elif self._sketch is None and self._counts.num_rows > EXACT_SHARE * max_codes:
            table, self._counts = self._counts, self._counts.slice(0, 0)
            self._sketch = np.zeros((2, SKETCH_CELLS), dtype=np.int64)
            self._add_to_sketch(table)

    def _add_to_sketch(self, table: pa.Table) -> None:
        """Count values, and collect those whose estimate reaches `min_count`."""
        assert self._sketch is not None  # noqa: S101 (for the type checker)
        words = np.concatenate([fnv1a(chunk) for chunk in table.column("values").chunks] or [np.zeros(0, np.uint64)])
        cells = [(words >> np.uint64(shift)) % np.uint64(SKETCH_CELLS) for shift in (0, 32)]
        estimate = np.full(len(words), np.iinfo(np.int64).max)
        for row, columns in zip(self._sketch, cells, strict=True):
            np.add.at(row, columns, table.column("counts").to_numpy())
            estimate = np.minimum(estimate, row[columns])
        frequent = table.set_column(1, "counts", pa.array(estimate)).filter(estimate >= self._config.min_count)
        whole = pa.concat_tables([self._counts, frequent]).group_by("values").aggregate([("counts", "max")])
        self._counts = whole.rename_columns({"counts_max": "counts"}).select(["values", "counts"])
        self._merge()


class NumberColumn:
    """Numbers of the training rows in a file.

    Args:
        name: Name of the column.
        path: File to write.
        config: Transform, scale, what a missing number becomes, and number of quantiles.
        where: Name of the table, for messages.
    """

    def __init__(self, name: str, path: Path, config: NumbersConfig, where: str) -> None:
        self._name, self._path, self._config, self._where = name, path, config, where
        # Quantiles are those of the numbers themselves; else they are transformed once, on their way into the file.
        self._early, self._late = ("none", config.transform) if config.quantiles else (config.transform, "none")
        self._rows = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Store further training rows.

        Raises:
            DataError: A number is infinite.
        """
        numbers = number_values(column, self._name, self._where)
        values = finite(numbers, self._name, self._where, None, self._config.infinite)
        with self._path.open("ab") as file:
            file.write(transformed(values, self._early).data)
        self._rows += len(values)

    def encoders(self, memory: int) -> Iterator[FittedColumn]:
        """The encoder of the numbers, and that of their quantiles if these are asked for; the file is then removed.

        Raises:
            DataError: The numbers are too large to be scaled, or too many for a median, quartiles or quantiles.
        """
        config = self._config
        if config.needs_order and 16 * self._rows > memory:
            got = f"16 bytes for each of {self._rows:,} training rows"
            raise fault(
                self._where,
                f"a column within memory, for its median, quartiles or quantiles: {memory:,} bytes",
                got,
                "raise memory",
            )
        whole = np.fromfile(self._path) if config.needs_order else None
        ordered = None if whole is None else transformed(whole, self._late)
        yield _fitted_numbers(self._name, self._parts, self._rows, config, self._where, ordered)
        if config.quantiles and whole is not None:
            yield QuantileEncoder.fit(self._name, whole, config.quantiles, config.infinite)
        self._path.unlink()

    def _parts(self) -> Iterator[Floats]:
        with self._path.open("rb") as file:
            while len(part := np.fromfile(file, count=CHUNK_ROWS)):
                yield transformed(part, self._late)


def _fitted_numbers(
    name: str,
    values: Callable[[], Iterator[Floats]],
    rows: int,
    config: NumbersConfig,
    where: str,
    whole: Floats | None,
) -> NumberEncoder:
    """As `NumberEncoder.fit`, from parts of the transformed column, and from all of it where its order is needed."""

    def filled() -> Iterator[Floats]:
        return (np.where(np.isnan(part), fill, part) for part in values())

    with np.errstate(over="ignore", invalid="ignore"):
        fill, offset, width = 0.0, 0.0, 1.0
        present = sum(int((~np.isnan(part)).sum()) for part in values())
        if present and config.missing == "median" and whole is not None:
            fill = float(np.median(whole[~np.isnan(whole)]))
        elif present and config.missing == "mean":
            fill = float(pairwise_sum((part[~np.isnan(part)] for part in values()), present) / present)
        if config.scale != "none" and rows:
            ends = [(part.min(), part.max()) for part in filled()]
            low, high = float(min(end[0] for end in ends)), float(max(end[1] for end in ends))
            offset, width = low, high - low if low != high else 0.0
            if config.scale == "standard" and low != high:
                offset = float(pairwise_sum(filled(), rows) / rows)
                squares = pairwise_sum((np.square(part - offset) for part in filled()), rows)
                width = math.sqrt(squares / rows)
            elif config.scale == "robust" and low != high and whole is not None:
                offset, width = quartile_scale(np.where(np.isnan(whole), fill, whole))
    return NumberEncoder.scaled(name, (fill, offset, width), config, where)


def pairwise_sum(parts: Iterator[Floats], count: int) -> float:
    """The sum of an array that comes in parts: bit by bit that of `ndarray.sum`, whose tree depends on the length.

    Args:
        parts: float64, together `count` numbers.
        count: Length of the array.
    """
    waiting = np.empty(0)

    def take(length: int) -> Floats:
        nonlocal waiting
        held = [waiting]
        while sum(map(len, held)) < length:
            held.append(next(parts))
        joined = np.concatenate(held)
        waiting = joined[length:]
        return joined[:length]

    def tree(length: int) -> float:
        if length <= CHUNK_ROWS:
            return float(take(length).sum())
        half = length // 2
        half -= half % 8
        left = tree(half)
        return left + tree(length - half)

    return tree(count)
