"""Rows of a column that comes in batches, in another order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from cutlayer.data.large import Arranged, joined, positions_among
from cutlayer.storage import row_arrays


def take_rows(columns: Iterable[pa.ChunkedArray], rows: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Some rows of a column that comes in batches, (m,), in the order of `rows`, which are distinct.

    Many rows are put into order on disk, and the column is mapped from a file without a name.
    """
    if len(rows) > row_arrays.CHUNK_ROWS:
        return _arranged(columns, rows)
    order, first, parts = np.argsort(rows), 0, []
    ascending = rows[order]
    for column in columns:
        begin, end = np.searchsorted(ascending, [first, first + len(column)])
        parts.append(column.take(pa.array(ascending[begin:end] - first)))
        first += len(column)
    return joined(parts).take(pa.array(np.argsort(order)))


def _arranged(columns: Iterable[pa.ChunkedArray], rows: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    positions, first = positions_among(rows), 0
    with tempfile.TemporaryDirectory(prefix="cutlayer-rows-") as scratch:
        arranged = Arranged(len(rows), Path(scratch), row_arrays.LARGE_BYTES)
        for column in columns:
            piece_positions = positions[first : first + len(column)]
            first += len(column)
            selected = piece_positions >= 0
            if selected.any():
                piece = column.slice(0, len(piece_positions)).filter(pa.array(selected))
                arranged.add(pa.table({"values": piece}), piece_positions[selected])
        arranged.close()
        return _mapped(arranged.chunks())


def _mapped(chunks: Iterable[pa.Table]) -> pa.ChunkedArray:
    """The first column of some tables, one or more, in a file without a name."""
    with tempfile.TemporaryFile(prefix="cutlayer-rows-") as file:
        writer: Any = None
        for chunk in chunks:
            writer = writer or ipc.new_stream(file, chunk.schema)
            writer.write_table(chunk)
        writer.close()
        file.flush()
        pages = pa.py_buffer(np.memmap(file, dtype=np.uint8, mode="r"))
    return ipc.open_stream(pages).read_all().column(0)
