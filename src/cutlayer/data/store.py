"""Encoded rows on disk, memory-mapped: any batch is two `index_select` calls, and no table stays in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from cutlayer.config import Section
from cutlayer.data.encoding import ColumnSpec, Encoded, check_codes
from cutlayer.data.faults import fault

_INDEX, _CODES, _NUMBERS = "store.json", "codes.npy", "numbers.npy"


class _Index(Section):
    """What `store.json` says; it is written last, so a folder with it is complete."""

    format: str = Field(default="cutlayer-store-1", pattern="^cutlayer-store-1$")
    rows: int = Field(ge=1)
    cardinalities: tuple[int, ...]
    numeric: int = Field(ge=0)
    category_names: tuple[str, ...]
    number_names: tuple[str, ...]
    fingerprint: str = ""


class Store:
    """Encoded rows of one party, row-major, on disk or in memory.

    Attributes:
        codes: int32 (n, categorical columns).
        numbers: float32 (n, numeric columns).
        columns: cardinalities and names.
        fingerprint: what the writer recorded about where the rows came from; empty in memory.
    """

    def __init__(self, codes: Tensor, numbers: Tensor, columns: ColumnSpec, fingerprint: str = "") -> None:
        """Hold the two matrices as they are; nothing is checked."""
        self.codes = codes
        self.numbers = numbers
        self.columns = columns
        self.fingerprint = fingerprint

    @classmethod
    def in_memory(cls, encoded: Encoded, columns: ColumnSpec) -> Store:
        """Wrap encoded rows without copying them.

        Raises:
            DataError: they do not fit `columns`.
        """
        check_codes(encoded, columns, "encoded rows")
        return cls(torch.from_numpy(encoded.codes), torch.from_numpy(encoded.numbers), columns)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Map the store that `write_store` wrote. The codes are read once, to check their range.

        Raises:
            DataError: there is no store, it is damaged, or something else lies there.
        """
        where = f"store {folder}"
        try:
            index = _Index.model_validate_json((folder / _INDEX).read_bytes())
            codes = _mapped(folder / _CODES, np.int32, index.rows, len(index.cardinalities))
            numbers = _mapped(folder / _NUMBERS, np.float32, index.rows, index.numeric)
        except ValidationError as failure:
            first = failure.errors()[0]
            got = f"{'.'.join(map(str, first['loc'])) or 'its text'}: {first['msg']}"
            raise fault(where, f"a valid {_INDEX}", got, "remove the folder; it is encoded again") from None
        except (OSError, ValueError, EOFError) as failure:
            raise fault(where, "a whole store", failure, "remove the folder; it is encoded again") from failure
        columns = ColumnSpec(index.cardinalities, index.numeric, index.category_names, index.number_names)
        check_codes(Encoded(codes, numbers), columns, where)
        return cls(torch.from_numpy(codes), torch.from_numpy(numbers), columns, index.fingerprint)

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Copy some rows out.

        Args:
            rows: int64 (b,), row numbers in the store's order.

        Returns:
            Codes int32 (b, categorical columns) and numbers float32 (b, numeric columns).
        """
        return self.codes.index_select(0, rows), self.numbers.index_select(0, rows)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.codes)

    @property
    def bytes(self) -> int:
        """Size of the two matrices in bytes."""
        return self.codes.nbytes + self.numbers.nbytes


def write_store(
    folder: Path,
    chunks: Iterable[Encoded],
    columns: ColumnSpec,
    rows: int,
    fingerprint: str = "",
    beside: Mapping[str, str] | None = None,
) -> None:
    """Write encoded rows chunk by chunk, so that they need not fit into memory.

    A store that lies in the folder already is replaced. Whatever interrupts the writing, `Store.open` then finds
    either a whole store or none.

    Args:
        folder: made where it is absent.
        chunks: encoded rows, together `rows` of them.
        columns: what they are.
        rows: how many come.
        fingerprint: kept for whoever opens the store.
        beside: further text files by name, which belong to the store and appear with it.

    Raises:
        DataError: the chunks do not fit `columns` or `rows`.
    """
    where = f"store {folder}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _INDEX).unlink(missing_ok=True)
    beside = dict(beside or {})
    parts = {name: folder / f"{name}.part" for name in (_CODES, _NUMBERS, *beside, _INDEX)}
    try:
        with parts[_CODES].open("wb") as codes, parts[_NUMBERS].open("wb") as numbers:
            written = _stream(codes, numbers, chunks, columns, rows, where)
        if written != rows:
            raise fault(where, f"{rows} rows", f"{written}")
        beside[_INDEX] = _Index(rows=rows, fingerprint=fingerprint, **asdict(columns)).model_dump_json()
        for name, text in beside.items():
            parts[name].write_text(text, encoding="utf-8")
        for name, part in parts.items():
            part.replace(folder / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _stream(
    codes: IO[bytes], numbers: IO[bytes], chunks: Iterable[Encoded], columns: ColumnSpec, rows: int, where: str
) -> int:
    _header(codes, np.int32, rows, len(columns.cardinalities))
    _header(numbers, np.float32, rows, columns.numeric)
    written = 0
    for chunk in chunks:
        check_codes(chunk, columns, where)
        codes.write(np.ascontiguousarray(chunk.codes, dtype=np.int32).data)
        numbers.write(np.ascontiguousarray(chunk.numbers, dtype=np.float32).data)
        written += len(chunk)
    return written


def _header(file: IO[bytes], dtype: type, rows: int, width: int) -> None:
    described = {"descr": np.dtype(dtype).newbyteorder("<").str, "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(file, described)


def _mapped(path: Path, dtype: type, rows: int, width: int) -> np.ndarray[Any, Any]:
    """Map a matrix copy-on-write: nothing can change the file, and torch need not be told that it is read-only."""
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    if array.dtype != dtype or array.shape != (rows, width) or not array.flags.c_contiguous:
        raise ValueError(f"{path.name} holds {array.dtype} {array.shape}, not {np.dtype(dtype)} {(rows, width)}")
    return np.asarray(array)
