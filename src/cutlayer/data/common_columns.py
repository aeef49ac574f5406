"""Columns of a large table in the common order: features packed to a fixed width, and other values as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.config import FeaturesConfig
from cutlayer.data.categories import CategoryEncoder
from cutlayer.data.columns import ColumnKind
from cutlayer.data.encoding import Encoder, chosen_kind
from cutlayer.data.images import ImageEncoder
from cutlayer.data.large import Arranged, LargeTable, common_batches
from cutlayer.data.large_fit import EXACT_SHARE
from cutlayer.data.packed import PackedColumns


class CommonColumns:
    """The common rows of a large table, put into the common order on disk.

    Categories and numbers are packed to a few bytes. Labels, weights, images and categories of too many values to be
    held in memory stay as they are, in Arrow's format.

    Args:
        table: The rows in the table's own order.
        kinds: Kind of each feature column, by name.
        other_columns: Names of label and weight.
        rows: Row numbers in the table of the common rows, in the common order, int64 (m,).
        folder: Existing folder for the files.
        memory: Bytes that the rows of a part and their copy may take.
        max_codes: Codes of a category column at most; one of four times as many values is not packed.

    Raises:
        DataError: The table cannot be read, or values are of no use as features.
    """

    def __init__(
        self,
        table: LargeTable,
        kinds: Mapping[str, ColumnKind],
        other_columns: Sequence[str],
        rows: npt.NDArray[np.int64],
        folder: Path,
        memory: int,
        max_codes: int,
    ) -> None:
        packable: dict[str, ColumnKind] = {name: kind for name, kind in kinds.items() if kind != "image"}
        plain = [*other_columns, *(name for name in kinds if name not in packable)]
        coded = [name for name, kind in packable.items() if kind == "category"]
        self._packed, self._plain = None, Arranged(len(rows), folder / "plain", memory)
        if packable:
            path, max_values = folder / "packed", EXACT_SHARE * max_codes
            self._packed = PackedColumns(packable, len(rows), path, memory, max_values, table.where)
        self._rest: Arranged | None = None
        for batch, positions in common_batches(table, [*plain, *packable], rows, coded):
            if self._packed:
                self._packed.add(batch, positions)
            if plain:
                self._plain.add(batch.select(plain), positions)
        self._plain.close()
        self._features = [name for name in plain if name in kinds]
        if self._packed and self._packed.dropped:
            self._rest = Arranged(len(rows), folder / "rest", memory)
            for batch, positions in common_batches(table, self._packed.dropped, rows):
                self._rest.add(batch, positions)
            self._rest.close()

    def pieces(self, name: str) -> Iterator[pa.ChunkedArray]:
        """All values of the label or of the weight in the common order, some rows at a time."""
        return (chunk.column(name) for chunk in self._plain.chunks())

    def chunks(self) -> Iterator[pa.Table]:
        """The features of all rows in the common order, 131,072 rows at most at a time."""
        sources: list[Iterator[pa.Table]] = []
        if self._packed and self._packed.has_columns:
            sources.append(self._packed.chunks())
        if self._features:
            sources.append(chunk.select(self._features) for chunk in self._plain.chunks())
        if self._rest:
            sources.append(self._rest.chunks())
        return side_by_side(sources)


def feature_kinds(
    schema: pa.Schema, names: Sequence[str], features: FeaturesConfig, encoder: Encoder | None, where: str
) -> dict[str, ColumnKind]:
    """Kind of each feature column: as the encoder of an earlier run took it, else by its type and the settings.

    Raises:
        DataError: An error of `chosen_kind`.
    """
    if encoder is None:
        return {name: chosen_kind(name, schema.field(name).type, features, where) for name in names}
    kinds: dict[str, ColumnKind] = {}
    for fitted in encoder.encoders:
        is_category, is_image = isinstance(fitted, CategoryEncoder), isinstance(fitted, ImageEncoder)
        kinds[fitted.name] = "category" if is_category else "image" if is_image else "number"
    return kinds


def side_by_side(sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Columns of several sources of the same rows, whose chunks need not begin at the same rows."""
    rest: list[pa.Table | None] = [None] * len(sources)
    while True:
        for index, source in enumerate(sources):
            if rest[index] is None:
                rest[index] = next(source, None)
        tables = [table for table in rest if table is not None]
        if len(tables) < len(sources):
            return
        length = min(table.num_rows for table in tables)
        columns = {name: table.column(name).slice(0, length) for table in tables for name in table.column_names}
        yield pa.table(columns)
        rest = [table.slice(length) if table.num_rows > length else None for table in tables]
