"""Encoded rows in files of records, divided by their ids and by their positions, so that no table is held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.data.encoded import ColumnSpec, Encoded
from cutlayer.data.store import Store

BUCKETS = 256
"""Number of parts that the rows of a table are divided into by the first byte of their digests."""

Records = npt.NDArray[Any]
Keys = npt.NDArray[np.bytes_]


def record_type(columns: ColumnSpec) -> np.dtype[Any]:
    """Layout of an encoded row: digest of its id, its position in the order of the prediction, and its columns."""
    fields: list[Any] = [
        ("digest", "S16"),
        ("position", np.int64),
        ("codes", np.int32, (len(columns.cardinalities),)),
        ("numbers", np.float32, (columns.numeric,)),
    ]
    if columns.image is not None:
        fields.append(("image", np.dtype(columns.image.dtype), columns.image.shape))
    return np.dtype(fields)


def keys_of(digests: npt.NDArray[np.uint8]) -> Keys:
    """Digests, uint8 (n, 16), as text of 16 bytes (n,), which NumPy compares byte by byte."""
    return np.ascontiguousarray(digests).view("S16")[:, 0]


def records_of(encoded: Encoded, kind: np.dtype[Any], digests: npt.NDArray[np.uint8] | None, first: int) -> Records:
    """Encoded rows as records.

    Args:
        encoded: Encoded rows (n, ...).
        kind: Layout, from `record_type`.
        digests: Digests of their ids, uint8 (n, 16).
        first: Position of the first row.
    """
    records = np.zeros(len(encoded), kind)
    if digests is not None:
        records["digest"] = keys_of(digests)
    records["position"] = np.arange(first, first + len(encoded))
    records["codes"], records["numbers"] = encoded.codes, encoded.numbers
    if encoded.images is not None:
        records["image"] = encoded.images
    return records


def store_of(records: Records, columns: ColumnSpec) -> Store:
    """The columns of records as a store in memory."""
    codes, numbers = (np.ascontiguousarray(records[name]) for name in ("codes", "numbers"))
    images = None if columns.image is None else np.ascontiguousarray(records["image"])
    return Store(Encoded(codes, numbers, images), columns)


class Divided:
    """Records in a folder of files, each file with those that have one number.

    Args:
        folder: Folder of the files; made here.
        kind: Layout of a record.
    """

    def __init__(self, folder: Path, kind: np.dtype[Any]) -> None:
        self._folder, self.kind = folder, kind
        folder.mkdir()

    def add(self, records: Records, numbers: npt.NDArray[np.integer[Any]]) -> None:
        """Append records to the files of their numbers, int (n,)."""
        if not len(records):
            return
        order = np.argsort(numbers, kind="stable")
        present, starts = np.unique(numbers[order], return_index=True)
        for number, part in zip(present.tolist(), np.split(records[order], starts[1:]), strict=True):
            with (self._folder / str(number)).open("ab") as file:
                file.write(np.ascontiguousarray(part).data)

    def take(self, number: int) -> Records:
        """Read the records of a number, and remove their file."""
        path = self._folder / str(number)
        if not path.exists():
            return np.zeros(0, self.kind)
        records = np.fromfile(path, self.kind)
        path.unlink()
        return records


class InOrder:
    """Records in one file, written and read in one order.

    Args:
        path: Path of the file.
        kind: Layout of a record.
    """

    def __init__(self, path: Path, kind: np.dtype[Any]) -> None:
        self._path, self._kind = path, kind

    def add(self, records: Records) -> None:
        """Append records."""
        with self._path.open("ab") as file:
            file.write(np.ascontiguousarray(records).data)

    def windows(self, size: int) -> Iterator[Records]:
        """All records, `size` at a time."""
        with self._path.open("rb") as file:
            while len(records := np.fromfile(file, self._kind, size)):
                yield records
