"""Tensors and plain text in one safetensors file: durable, checksummed, and readable by its owner alone."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cutlayer.storage.checksum import KEY, crc32
from cutlayer.storage.durable import UnsyncedFile, create

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Types as the format names them."""
STREAMED_BYTES = 1 << 20
"""Size from which on a file is written here: the library copies the tensors first, and again on the way to the file."""
_SYSTEM_ERROR = re.compile(r"os error (\d+)")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write a file whole or not at all, and return once it is on disk.

    Args:
        path: Path of the file; its folder exists.
        tensors: Tensors of any dtype and shape, by name.
        header: Texts by name, none of them named `checksum`.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """
    unsynced_tensors(path, tensors, header).finish()


def unsynced_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> UnsyncedFile:
    """Write a file as `write_tensors` does, without a wait for the disk: its caller finishes it."""
    large = sum(tensor.nbytes for tensor in tensors.values()) >= STREAMED_BYTES
    if large and all(tensor.dtype in _DTYPES for tensor in tensors.values()):
        # Without a copy of the tensors in memory.
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        metadata = {**header, KEY: _checksum(contiguous, header)}
        return UnsyncedFile(path, lambda partial: stream_tensors(partial, contiguous, metadata))
    owned = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}

    def write(partial: Path) -> None:
        try:
            save_file(owned, partial, {**header, KEY: _checksum(owned, header)})
        except SafetensorError as failure:
            raise _system_error(failure, path) from failure
        partial.chmod(0o600)

    return UnsyncedFile(path, write)


def stream_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the format of safetensors without a copy of the tensors in memory.

    Args:
        path: Path of the file, which is not synced.
        tensors: Contiguous tensors on the CPU, by name.
        metadata: Texts by name.
    """
    content: dict[str, Any] = {"__metadata__": dict(metadata)}
    # The format has the tensors one after the other, those of wide types first, so that each is aligned.
    ordered, end = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])), 0
    for name, tensor in ordered:
        offsets = [end, end := end + tensor.nbytes]
        content[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)
    with create(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            if tensor.numel():
                file.write(_bytes_of(tensor))


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
    if header.pop(KEY, None) != _checksum(tensors, header):
        raise ValueError("the content does not match its checksum")
    return tensors, header


def _checksum(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    return f"{crc32(_parts(tensors, header)):08x}"


def _parts(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Everything a reader gets from the file: names, types and shapes too."""
    yield repr(sorted(header.items())).encode()
    for name in sorted(tensors):
        tensor = tensors[name]
        yield repr((name, str(tensor.dtype), tuple(tensor.shape))).encode()
        if tensor.numel():
            yield _bytes_of(tensor)


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _system_error(failure: SafetensorError, path: Path) -> OSError:
    """The library reports a full disk as a fault of the format, with the system's error number in the text."""
    match = _SYSTEM_ERROR.search(str(failure))
    number = int(match.group(1)) if match else errno.EIO
    return OSError(number, os.strerror(number), str(path))
