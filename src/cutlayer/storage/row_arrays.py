"""Arrays with an entry for each row of a table: in memory while they are small, else in files that the system pages."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import chain
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

Piece = TypeVar("Piece", bound=Sized)

LARGE_BYTES = 8 << 20
"""Size from which on an array lies in a file."""
CHUNK_ROWS = 1 << 18
"""Rows that are computed at a time on the way into such an array."""
_UNMAP_ADVICE = getattr(mmap, "MADV_DONTNEED", None)
_MAPPINGS: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
"""Mappings of the large arrays that are in use."""


def row_array(shape: int | tuple[int, ...], dtype: npt.DTypeLike, limit: int | None = None) -> npt.NDArray[Any]:
    """An array of a given shape, not initialised.

    A large one is mapped from a file in the system's folder for temporary files, without a name: it is gone with the
    last array that uses it, however the process ends. Its pages are not the process's own memory, so that the system
    writes them back and drops them when it needs room. The space of the file is reserved at once, since writing to a
    mapped file on a full disk would end the process.

    Args:
        shape: Shape of the array, the rows first.
        dtype: Type of its entries.
        limit: Bytes from which on it is large, `LARGE_BYTES` at most: fewer for one of many arrays.

    Raises:
        OSError: The disk has no room for the file.

    >>> row_array((3, 16), np.uint8).shape
    (3, 16)
    """
    shape = (shape,) if isinstance(shape, int) else shape
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < _size_limit(limit):
        return np.empty(shape, dtype)
    with _named_folder(), _unnamed_file() as file:
        _reserve(file, size)
        return _mapped(file, shape, np.dtype(dtype))


def _size_limit(limit: int | None) -> int:
    return LARGE_BYTES if limit is None else min(limit, LARGE_BYTES)


class GrowingRows:
    """Joins arrays that come one after the other along the first axis; large ones go to a file as they come.

    Args:
        limit: As of `row_array`.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = _size_limit(limit)
        self._parts: list[npt.NDArray[Any]] = []
        self._bytes = 0
        self._rows = 0
        self._file: IO[bytes] | None = None

    def add(self, part: npt.NDArray[Any]) -> None:
        """Append an array of the same type and width as those before it.

        Raises:
            OSError: The disk has no room for it.
        """
        self._parts.append(part)
        self._bytes += part.nbytes
        self._rows += len(part)
        if self._bytes >= self._limit or self._file is not None:
            with _named_folder():
                if self._file is None:
                    self._file = _unnamed_file()
                    weakref.finalize(self, self._file.close)  # if an error ends the rows
                for array in self._parts:
                    self._file.write(np.ascontiguousarray(array).data)
            # The last one stays for its type and shape: an array of no rows.
            self._parts = [part[:0]]
            self._bytes = 0

    def to_array(self) -> npt.NDArray[Any]:
        """All rows in one array; call it once, after one `add` or more."""
        if self._file is None:
            return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)
        with _named_folder(), self._file as file:
            for array in self._parts:
                file.write(np.ascontiguousarray(array).data)
            file.flush()
            return _mapped(file, (self._rows, *self._parts[0].shape[1:]), self._parts[0].dtype)


def joined_rows(parts: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Arrays one after the other along the first axis, as `numpy.concatenate`, but without a second copy in memory.

    Args:
        parts: One array or more, of one type and of shapes that differ in the first axis only.

    Raises:
        OSError: The disk has no room for the file.

    >>> joined_rows(np.arange(end) for end in (2, 3)).tolist()
    [0, 1, 0, 1, 2]
    """
    rows = GrowingRows()
    for part in parts:
        rows.add(part)
    return rows.to_array()


def gathered_rows(values: npt.NDArray[Any], rows: npt.NDArray[np.int64], limit: int | None = None) -> npt.NDArray[Any]:
    """`values[rows]` as a `row_array`.

    Args:
        values: (n, ...).
        rows: Row numbers, int64 (m,).
        limit: As of `row_array`.
    """
    return computed_rows(len(rows), values.dtype, lambda part: values[rows[part]], values.shape[1:], limit)


def computed_rows(
    rows: int,
    dtype: npt.DTypeLike,
    piece: Callable[[slice], npt.ArrayLike],
    shape: tuple[int, ...] = (),
    limit: int | None = None,
) -> npt.NDArray[Any]:
    """A `row_array` that is computed some rows at a time, so that no temporary array has an entry for every row.

    Args:
        rows: Number of rows.
        dtype: Type of the entries.
        piece: Returns the entries of a run of rows, in order.
        shape: Shape of the entry of a row.
        limit: As of `row_array`.

    >>> computed_rows(3, np.int64, lambda part: np.arange(3)[part] ** 2).tolist()
    [0, 1, 4]
    """
    values = row_array((rows, *shape), dtype, limit)
    for start, end in chunks_of(rows):
        values[start:end] = piece(slice(start, end))
    return values


def chosen_rows(rows: int, dtype: npt.DTypeLike, piece: Callable[[slice], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """As `computed_rows`, for pieces of any number of entries, of which the result has all.

    >>> chosen_rows(5, np.int64, lambda part: np.flatnonzero(np.arange(5)[part] % 2)).tolist()
    [1, 3]
    """
    parts = (np.asarray(piece(slice(start, end)), dtype) for start, end in chunks_of(rows))
    return joined_rows(chain([np.zeros(0, dtype)], parts))


def chunks_of(rows: int) -> Iterator[tuple[int, int]]:
    """First row and end of each run of `CHUNK_ROWS` rows; the last may be shorter.

    >>> list(chunks_of(0)), list(chunks_of(5))
    ([], [(0, 5)])
    """
    return ((start, min(start + CHUNK_ROWS, rows)) for start in range(0, rows, CHUNK_ROWS))


def with_rows(pieces: Iterable[Piece]) -> Iterator[tuple[slice, Piece]]:
    """Each piece of a whole, with the rows of the whole that it is.

    >>> list(with_rows(["ab", "c"]))
    [(slice(0, 2, None), 'ab'), (slice(2, 3, None), 'c')]
    """
    start = 0
    for piece in pieces:
        yield slice(start, start + len(piece)), piece
        start += len(piece)


def _reserve(file: IO[bytes], size: int) -> None:
    """Give the file its space on the disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, LARGE_BYTES):  # macOS
        file.write(bytes(min(LARGE_BYTES, size - start)))
    file.flush()


@contextmanager
def _named_folder() -> Iterator[None]:
    """Name the folder in the error for a full disk: a file without a name says nothing of where it is."""
    try:
        yield
    except OSError as failure:
        if failure.filename is None and failure.errno is not None:
            raise OSError(failure.errno, failure.strerror, tempfile.gettempdir()) from None
        raise


def _unnamed_file() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="cutlayer-rows-")


def _mapped(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The file as a plain array, which keeps the mapping when the file is closed."""
    mapped = np.memmap(file, dtype=dtype, mode="r+", shape=shape)
    base: Any = mapped.base
    _MAPPINGS.add(base)
    return mapped.view(np.ndarray)


def give_back_memory() -> None:
    """Give the system back what large arrays and freed blocks hold of this process's memory, between two phases.

    The pages of the arrays stay in the system's cache while there is room, and are mapped again where they are read. In
    a process without a large array nothing is done: its freed blocks are soon taken again.
    """
    if not _MAPPINGS or _UNMAP_ADVICE is None:
        return
    for mapped in tuple(_MAPPINGS):
        mapped.madvise(_UNMAP_ADVICE)
    if _trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc alone
        _trim(0)
