"""Tensors and plain text in one safetensors file: durable, checksummed, and readable by its owner alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cutlayer.errors import CheckpointError
from cutlayer.storage.checksum import CHECKSUM_KEY, crc32
from cutlayer.storage.durable import UnsyncedFile, create
from cutlayer.storage.row_arrays import give_back_memory

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Types as the format names them."""
_PART_BYTES = 1 << 26
"""Bytes of a tensor that are read at a time."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write a file whole or not at all, and return once it is on disk.

    Args:
        path: Path of the file; its folder exists.
        tensors: Tensors of any shape by name, of real numbers or booleans.
        header: Texts by name, none of them named `checksum`.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """
    unsynced_tensors(path, tensors, header).finish()


def unsynced_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> UnsyncedFile:
    """Write a file as `write_tensors` does, without a wait for the disk: its caller finishes it."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {**header, CHECKSUM_KEY: _checksum(contiguous, header)}

    def write(partial: Path) -> None:
        try:
            stream_tensors(partial, contiguous, metadata)
        except OSError as failure:  # of a write, which does not know the name of its file
            raise OSError(failure.errno, failure.strerror, str(path)) from failure

    return UnsyncedFile(path, write)


def stream_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the format of safetensors without a copy of the tensors in memory, of which the library makes two.

    Args:
        path: Path of the file, which is not synced.
        tensors: Contiguous tensors on the CPU, by name.
        metadata: Texts by name.
    """
    content: dict[str, Any] = {"__metadata__": dict(metadata)}
    # The format has the tensors one after the other, those of wide types first, so that each is aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    end = 0
    for name, tensor in ordered:
        offsets = [end, end := end + tensor.nbytes]
        content[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)
    with create(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            for part in _bytes_of(tensor):
                file.write(part)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `write_tensors` wrote: tensors and header.

    Raises:
        ValueError: Damaged, or another file.
        OSError: It cannot be read.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as damage:
        raise ValueError(str(damage)) from None
    if header.pop(CHECKSUM_KEY, None) != _checksum(tensors, header):
        raise ValueError("the content does not match its checksum")
    return tensors, header


def stored_tensors(path: Path, what: str, *names: str) -> dict[str, Tensor]:
    """Tensors of a file that a run has.

    Args:
        path: Path of the file.
        what: Its content, for the error.
        names: Names of tensors that it must have; none for all that are there.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    try:
        tensors, _ = read_tensors(path)
        return {name: tensors[name] for name in names or tensors}
    except (OSError, ValueError, KeyError) as damage:
        raise CheckpointError(f"{path}: {what} cannot be read ({damage}); run the job again") from None


def _checksum(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    return f"{crc32(_parts(tensors, header)):08x}"


def _parts(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Everything a reader gets from the file: names, types and shapes too."""
    yield repr(sorted(header.items())).encode()
    for name in sorted(tensors):
        tensor = tensors[name]
        yield repr((name, str(tensor.dtype), tuple(tensor.shape))).encode()
        yield from _bytes_of(tensor)


def _bytes_of(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor, some at a time: of a large mapped one the pages that were read are given back."""
    if 0 < tensor.nbytes <= _PART_BYTES and tensor.dtype != torch.bfloat16:  # which NumPy has not
        yield tensor.numpy().data
        return
    data = tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")
    for start in range(0, len(data), _PART_BYTES):
        yield data[start : start + _PART_BYTES]
        if len(data) > _PART_BYTES:
            give_back_memory()
