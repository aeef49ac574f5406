"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import parquet

from cutlayer.data.sources.base import FileSource, Names


class ParquetSource(FileSource):
    """A Parquet file."""

    format = "parquet"
    endings = (".parquet", ".pq")

    def read_names(self) -> Sequence[str]:
        """Names of all columns, in the file's order."""
        metadata = parquet.read_metadata(self.config.path)
        self.rows, self.schema = metadata.num_rows, metadata.schema.to_arrow_schema()
        return tuple(self.schema.names)

    def read_pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        """Columns of these names in this order, of the types that the file states; text with its own dictionaries."""
        path, schema = self.config.path, self.schema
        text = [name for name in coded if schema and schema.field(name).type in (pa.string(), pa.large_string())]
        with parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=text) as file:
            for batch in file.iter_batches(batch_size=size, columns=names):
                yield pa.Table.from_batches([batch]).select(names)
