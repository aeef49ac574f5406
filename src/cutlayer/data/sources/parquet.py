"""Parquet files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from pyarrow import parquet

from cutlayer.data.sources.base import FileSource

_SAMPLED_ROWS = 10_000


class ParquetSource(FileSource):
    """A Parquet file."""

    endings = (".parquet", ".pq")

    def read_names(self) -> Sequence[str]:
        """Names of all columns, in the file's order."""
        names: Sequence[str] = parquet.read_schema(self.config.path).names
        return names

    def read_columns(self, names: list[str], as_text: Collection[str]) -> pa.Table:
        """Columns of these names in this order, of the types that the file states."""
        return parquet.ParquetFile(self.config.path, memory_map=True).read(columns=names).select(names)

    def memory_bytes(self, names: list[str]) -> int | None:
        """Memory of the first rows, for all rows: on disk, repeated values take next to nothing."""
        with self._readable(), parquet.ParquetFile(self.config.path) as file:
            first = next(file.iter_batches(batch_size=_SAMPLED_ROWS, columns=names), None)
            return 0 if not first else int(first.nbytes / first.num_rows * file.metadata.num_rows)

    def read_pieces(self, names: list[str], size: int, as_text: Collection[str]) -> Iterator[pa.Table]:
        """The same, `size` rows at a time."""
        with parquet.ParquetFile(self.config.path, buffer_size=1 << 20, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=size, columns=names):
                yield pa.Table.from_batches([batch]).select(names)
