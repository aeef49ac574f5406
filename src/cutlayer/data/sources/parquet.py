"""Parquet files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from pyarrow import parquet

from cutlayer.data.sources.base import FileSource, without_views


class ParquetSource(FileSource):
    """A Parquet file."""

    format = "parquet"
    endings = (".parquet", ".pq")

    def read_names(self) -> Sequence[str]:
        """Names of all columns, in the file's order."""
        metadata = parquet.read_metadata(self.config.path)
        self.rows, self.schema = metadata.num_rows, metadata.schema.to_arrow_schema()
        return tuple(self.schema.names)

    def read_pieces(self, names: list[str], size: int, as_text: Collection[str]) -> Iterator[pa.Table]:
        """Columns of these names in this order, of the types that the file states."""
        return self._batches(names, size, ())

    def coded_chunks(
        self, names: Sequence[str], size: int, as_text: Collection[str], coded: Collection[str]
    ) -> Iterator[pa.Table]:
        """The same, `size` rows at a time, with the file's own dictionaries of text."""
        for name in names:
            self.require(name)
        with self._readable():
            schema = parquet.read_schema(self.config.path)
            text = [
                name
                for name in coded
                if schema.field(name).type in (pa.string(), pa.large_string()) and name not in self.config.formats
            ]
            for piece in self.in_formats(self._batches(list(names), size, text), names, as_text):
                yield without_views(piece, text)

    def _batches(self, names: list[str], size: int, coded: Sequence[str]) -> Iterator[pa.Table]:
        path = self.config.path
        with parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=list(coded)) as file:
            for batch in file.iter_batches(batch_size=size, columns=names):
                yield pa.Table.from_batches([batch]).select(names)
