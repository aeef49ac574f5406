"""Encoded rows on disk, memory-mapped: any batch is an `index_select` a matrix, and no table stays in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import Field, ValidationError

from cutlayer.config import FrozenModel
from cutlayer.data.column_sums import ColumnSums
from cutlayer.data.encoded import CHUNK_ROWS, ColumnSpec, Encoded, check_codes
from cutlayer.data.faults import fault
from cutlayer.data.paging import Pages
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.checksum import file_checksum, seal, unseal
from cutlayer.storage.durable import create, make_folder, sync_file, sync_folder, write_whole

RESIDENT_BYTES = 512 << 20
"""Bytes of a mapped store that may be in memory at a time."""
_INDEX = "store.json"
_CODES = "codes.npy"
_NUMBERS = "numbers.npy"
_IMAGES = "images.npy"


class _Index(FrozenModel):
    """Content of `store.json`, which is written last: a folder with it is complete."""

    format: str = Field(default="cutlayer-store-3", pattern="^cutlayer-store-3$")
    checksums: Mapping[str, str]
    rows: int = Field(ge=1)
    columns: ColumnSpec
    fingerprint: str = ""
    column_sums: Mapping[str, str] = Field(default_factory=dict)


class Store:
    """Encoded rows of one party, row-major, on disk or in memory.

    Attributes:
        codes: int32 (n, categorical columns).
        numbers: float32 (n, numeric columns).
        images: uint8 or float32 (n, channels, height, width), not scaled yet; None if there is no image column.
        columns: Cardinalities and names.
        fingerprint: Text that the writer stored, which identifies the rows; empty in memory.
        column_sums: Checksum of each column, as `ColumnSums.checksums`; empty where nobody summed them up.
    """

    def __init__(
        self,
        encoded: Encoded,
        columns: ColumnSpec,
        fingerprint: str = "",
        pages: Pages | None = None,
        column_sums: Mapping[str, str] | None = None,
    ) -> None:
        """Hold the encoded rows without a copy and without checks."""
        self._pages = pages or Pages((), 0)
        self._numbers: Tensor | None = None
        self._beside: Store | None = None
        self.codes = torch.from_numpy(encoded.codes)
        self.numbers = torch.from_numpy(encoded.numbers)
        self.images = None if encoded.images is None else torch.from_numpy(encoded.images)
        self.columns = columns
        self.fingerprint = fingerprint
        self.column_sums = column_sums or {}
        if columns.image is not None:
            factor, offset = (torch.from_numpy(values).reshape(-1, 1, 1) for values in columns.image.affine())
            self._factor, self._offset = factor, offset

    @classmethod
    def open(cls, folder: Path, resident: int = RESIDENT_BYTES) -> Store:
        """Map the store that `write_store` wrote. All files are read once, to check them against their checksums.

        Args:
            folder: Folder of the store.
            resident: Bytes of it that may be in memory at a time.

        Raises:
            DataError: There is no store, it is damaged, or something else lies there.
        """
        where = f"store {folder}"
        try:
            index = _Index.model_validate(unseal((folder / _INDEX).read_bytes()))
            for name, checksum in index.checksums.items():
                if file_checksum(folder / name) != checksum:
                    raise ValueError(f"{name} does not match its checksum")
            matrices = _matrices(index.columns, index.rows)
            arrays = {name: _mapped(folder / name, *described) for name, described in matrices.items()}
        except ValidationError as failure:
            first = failure.errors()[0]
            got = f"{'.'.join(map(str, first['loc'])) or 'its text'}: {first['msg']}"
            raise fault(where, f"a valid {_INDEX}", got, "remove the folder; it is encoded again") from None
        except (OSError, ValueError, EOFError) as failure:
            raise fault(where, "a whole store", failure, "remove the folder; it is encoded again") from failure
        images = np.asarray(arrays[_IMAGES]) if _IMAGES in arrays else None
        encoded = Encoded(np.asarray(arrays[_CODES]), np.asarray(arrays[_NUMBERS]), images)
        pages = Pages(list(arrays.values()), resident)
        for start in range(0, len(encoded), CHUNK_ROWS):
            check_codes(encoded[start : start + CHUNK_ROWS], index.columns, where)
            pages.give_back()
        return cls(encoded, index.columns, index.fingerprint, pages, index.column_sums)

    def read_ahead(self, rows: Tensor) -> None:
        """Let the operating system read rows that are needed soon, int64 (m,), if the store is larger than memory."""
        if self._numbers is not None:
            rows = self._numbers[rows]
            rows = rows[rows >= 0]
        self._pages.read_ahead(rows.numpy())

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Copy some rows out.

        Args:
            rows: int64 (b,), row numbers in the store's order.

        Returns:
            Codes int32 (b, categorical columns) and numbers float32 (b, numeric columns). The last numbers are those of
            the image, if there is one: scaled, channel by channel, row by row.
        """
        codes, numbers, images = self._read(rows)
        if images is None:
            return codes, numbers
        scaled = images.to(torch.float32).mul_(self._factor).add_(self._offset).flatten(1)
        if self._numbers is not None:
            scaled.masked_fill_((self._numbers[rows] < 0)[:, None], 0)
        return codes, torch.cat([numbers, scaled], dim=1) if numbers.shape[1] else scaled

    def to(self, device: torch.device) -> Store:
        """The same rows on another device, as a store in memory."""
        moved = copy.copy(self)
        moved.codes = self.codes.to(device)
        moved.numbers = self.numbers.to(device)
        moved._pages = Pages((), 0)
        moved._numbers = None if self._numbers is None else self._numbers.to(device)
        if self.images is not None:
            moved.images = self.images.to(device)
            moved._factor, moved._offset = self._factor.to(device), self._offset.to(device)
        self._pages.give_back()
        return moved

    def named_columns(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """As `gather`, without the numbers of the image."""
        codes, numbers, _ = self._read(rows, images=False)
        if self._beside is None:
            return codes, numbers
        more = self._beside.named_columns(rows)
        return torch.cat([codes, more[0]], dim=1), torch.cat([numbers, more[1]], dim=1)

    def beside(self, other: Store) -> Store:
        """The same rows, with the columns of another store after their own in `named_columns` alone."""
        joined = copy.copy(self)
        joined._beside = other
        return joined

    def take(self, rows: Tensor) -> Store:
        """Some rows, int64 (m,), as a store in memory."""
        codes, numbers, images = self._read(rows)
        return Store(Encoded(codes.numpy(), numbers.numpy(), None if images is None else images.numpy()), self.columns)

    def numbered(self, numbers: Tensor) -> Store:
        """The same rows under other numbers.

        Args:
            numbers: Row number here of each row, int64 (n,); -1 of one that is not here, which reads as zeros.
        """
        numbered = copy.copy(self)
        numbered._numbers = numbers
        return numbered

    def _read(self, rows: Tensor, *, images: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copies of some rows of each matrix; zeros of one that is not here."""
        own = rows if self._numbers is None else self._numbers[rows].clamp_min(0)
        lacking = None if self._numbers is None else self._numbers[rows] < 0

        def copied(matrix: Tensor) -> Tensor:
            part = matrix.index_select(0, own)
            if lacking is not None:
                part[lacking] = 0
            return part

        self._pages.touched(own)
        pixels = None if self.images is None or not images else copied(self.images)
        return copied(self.codes), copied(self.numbers), pixels

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.codes if self._numbers is None else self._numbers)

    @property
    def bytes(self) -> int:
        """Size of the matrices in bytes."""
        return self.codes.nbytes + self.numbers.nbytes + (0 if self.images is None else self.images.nbytes)


def write_store(
    folder: Path,
    chunks: Iterable[Encoded],
    columns: ColumnSpec,
    rows: int,
    fingerprint: str = "",
    texts: Mapping[str, str] | None = None,
    check: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> None:
    """Write encoded rows chunk by chunk, so that they need not fit into memory.

    A store that lies in the folder already is replaced. Whatever interrupts the writing, `Store.open` then finds
    either a whole store or none.

    Args:
        folder: Made where it is absent.
        chunks: Encoded rows, together `rows` of them.
        columns: Shape and names of their columns.
        rows: Number of rows of all chunks.
        fingerprint: Text that is stored for the readers of the store.
        texts: Further text files by name, which belong to the store and appear with it; readable by their owner alone,
            as are the matrices.
        check: Called with the checksums of the columns, as `ColumnSums.checksums`, before the store that lies there is
            touched; it may raise to leave it.

    Raises:
        DataError: The chunks do not fit `columns` or `rows`.
    """
    where = f"store {folder}"
    make_folder(folder)
    texts = dict(texts or {})
    matrices, sums = _matrices(columns, rows), ColumnSums(columns)
    parts = {name: folder / f"{name}.partial" for name in (*matrices, *texts)}
    try:
        with ExitStack() as opened:
            files = {name: opened.enter_context(create(parts[name])) for name in matrices}
            for name, (dtype, shape) in matrices.items():
                _header(files[name], dtype, shape)
            written = _stream(files, sums.tracked(chunks), columns, where)
        if written != rows:
            raise fault(where, f"{rows} rows", f"{written}")
        check(sums.checksums())
        for name, text in texts.items():
            with create(parts[name]) as file:
                file.write(text.encode())
        checksums = {name: file_checksum(part) for name, part in parts.items()}
        index = _Index(
            rows=rows, columns=columns, fingerprint=fingerprint, checksums=checksums, column_sums=sums.checksums()
        )
        for name in (_INDEX, _IMAGES):
            (folder / name).unlink(missing_ok=True)
        for name, part in parts.items():
            sync_file(part)
            part.replace(folder / name)
        # The index makes the store complete, so it gets its name when all that it lists is on disk.
        sync_folder(folder)
        write_whole(folder / _INDEX, seal(index.model_dump(mode="json")))
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _matrices(columns: ColumnSpec, rows: int) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Type and shape of each file of numbers."""
    layout: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
        _CODES: (np.dtype(np.int32), (rows, len(columns.cardinalities))),
        _NUMBERS: (np.dtype(np.float32), (rows, columns.numeric)),
    }
    if columns.image is not None:
        layout[_IMAGES] = np.dtype(columns.image.dtype), (rows, *columns.image.shape)
    return layout


def _stream(files: Mapping[str, IO[bytes]], chunks: Iterable[Encoded], columns: ColumnSpec, where: str) -> int:
    written = 0
    for chunk in chunks:
        check_codes(chunk, columns, where)
        files[_CODES].write(np.ascontiguousarray(chunk.codes, dtype=np.int32).data)
        files[_NUMBERS].write(np.ascontiguousarray(chunk.numbers, dtype=np.float32).data)
        if chunk.images is not None:
            files[_IMAGES].write(np.ascontiguousarray(chunk.images).data)
        written += len(chunk)
    return written


def _header(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    described = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Map a matrix copy-on-write: nothing can change the file, and torch does not warn of a read-only array."""
    array: np.memmap[Any, Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(f"{path.name} holds {array.dtype} {array.shape}, not {dtype} {shape}")
    return array
