"""The wire format: encodes a message as a frame and decodes it with every entry checked.

frame    = header, envelope, tensors
header   = b"CUT", version (one byte), length of the envelope (uint32), checksum (uint32): 12 bytes, little-endian
checksum = CRC-32 of the length of the envelope, the envelope and the tensors; it detects damage, not forgery
envelope = a msgpack map of everything but the numbers; of each tensor its name, dtype, shape and bytes
tensors  = the raw numbers, row-major and little-endian, back to back in the order of `SHAPES`
"""

from __future__ import annotations

import math
import reprlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import torch
from torch import Tensor

from cutlayer.channel.message import SHAPES, Kind, Message
from cutlayer.checksum import crc32
from cutlayer.errors import ConfigError, ProtocolError

WIRE_VERSION = 3
MAGIC = b"CUT"
HEADER = struct.Struct("<3sBII")

DTYPES: Mapping[torch.dtype, str] = {torch.uint8: "|u1", torch.int64: "<i8", torch.float32: "<f4"}
"""NumPy's names, which state the byte order."""

_PARTS: Mapping[str, type] = {
    "kind": str,
    "sender": str,
    "receiver": str,
    "run": str,
    "epoch": int,
    "step": int,
    "sequence": int,
    "rows": bytes,
    "tensors": list,
    "fields": dict,
}
_LOWEST = {"epoch": -1, "step": -1, "sequence": 0}
_MAX_NAME_LENGTH = 256
_MAX_ENTRIES = 16
"""Maximum length of a list or map in an envelope; the largest, the envelope itself, has ten entries."""

Raw = bytes | bytearray | memoryview


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on the frames of a peer, checked before anything is allocated.

    Attributes:
        frame_bytes: Maximum size of a frame, header and numbers included, 1 to 2**31 - 1.
        envelope_bytes: Maximum size of everything but the numbers; the texts in a message count here.
        queued_bytes: Maximum size of the frames that wait in one direction of a link; past it the sender waits.
    """

    frame_bytes: int = 64 * 2**20
    envelope_bytes: int = 256 * 2**10
    queued_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for name in ("frame_bytes", "envelope_bytes", "queued_bytes"):
            value = getattr(self, name)
            if not 0 < value < 2**31:
                raise ConfigError.expected(f"{name} from 1 to 2**31 - 1", value)


DEFAULT_LIMITS = Limits()


def encode(message: Message, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Encode a message as a frame; its tensors are copied once.

    Args:
        message: Checked message with contiguous tensors, as a `Port` makes it.
        limits: Limits of the receiver.

    Raises:
        ProtocolError: the frame would be larger than the receiver takes, or holds a number or text that msgpack cannot.
    """
    tensors = [message.tensors[name] for name in SHAPES[message.kind].tensors]
    parts = {name: getattr(message, name) for name in _PARTS}
    parts["kind"] = message.kind.value
    parts["fields"] = dict(message.fields)
    parts["tensors"] = [
        [name, DTYPES[tensor.dtype], list(tensor.shape), tensor.nbytes]
        for name, tensor in zip(SHAPES[message.kind].tensors, tensors, strict=True)
    ]
    try:
        envelope: bytes = msgpack.packb(parts)
    except (ValueError, TypeError, OverflowError) as unfit:
        raise ProtocolError(f"a {message.kind} cannot be written: {unfit}") from None
    _check_size("an envelope", len(envelope), limits.envelope_bytes)
    _check_size("a frame", HEADER.size + len(envelope) + message.nbytes, limits.frame_bytes)
    body: list[Raw] = [envelope, *map(_numbers, tensors)]
    return b"".join([HEADER.pack(MAGIC, WIRE_VERSION, len(envelope), _checksum(len(envelope), body)), *body])


def decode(frame: Raw, limits: Limits = DEFAULT_LIMITS) -> Message:
    """Decode a frame.

    The numbers are copied once, into memory that torch aligned: a view of the frame would save 0.3 ms of 4 MB, and
    start at any address, for which no library promises the same last bit.

    Returns:
        The message, its content checked against its kind; its tensors own their memory.

    Raises:
        ProtocolError: the frame is damaged, too large, of another version, or claims what it does not hold.
    """
    view = memoryview(frame)
    _check_size("a frame", len(view), limits.frame_bytes)
    start = _envelope_end(view, limits)
    parts = _parts(view[HEADER.size : start])
    kind = _kind(parts["kind"])
    sizes = _tensor_shapes(kind, parts["tensors"], len(view) - start)
    tensors = {}
    for name, shape in sizes.items():
        tensors[name] = _tensor(view, start, SHAPES[kind].tensors[name][0], shape)
        start += tensors[name].nbytes
    return Message(**{**parts, "kind": kind, "tensors": tensors}).checked()


def _checksum(length: int, body: Iterable[Raw]) -> int:
    return crc32([length.to_bytes(4, "little"), *body])


def _numbers(tensor: Tensor) -> memoryview:
    """The tensor's own memory, in the byte order of the wire."""
    array: np.ndarray[Any, Any] = tensor.numpy(force=True)
    return array.astype(DTYPES[tensor.dtype], copy=False).data


def _tensor(frame: memoryview, start: int, dtype: torch.dtype, shape: list[int]) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.numel():
        raw = np.frombuffer(frame, DTYPES[dtype], tensor.numel(), start)
        tensor.numpy().reshape(-1)[:] = raw
    return tensor


def _check_size(what: str, size: int, most: int) -> None:
    if size > most:
        raise ProtocolError.expected(f"{what} of at most {most} bytes", size)


def _envelope_end(frame: memoryview, limits: Limits) -> int:
    """End of the envelope, from the header, after a check of the checksum."""
    if len(frame) < HEADER.size:
        raise ProtocolError.expected(f"a frame of at least {HEADER.size} bytes", len(frame))
    magic, version, length, checksum = HEADER.unpack_from(frame)
    if magic != MAGIC:
        raise ProtocolError.expected(f"a frame that starts with {MAGIC!r}", magic)
    if version != WIRE_VERSION:
        remedy = "install the same version of cutlayer at all parties"
        raise ProtocolError.expected(f"wire format {WIRE_VERSION}", version, remedy)
    _check_size("an envelope", length, limits.envelope_bytes)
    if length > len(frame) - HEADER.size:
        raise ProtocolError.expected(f"an envelope of {length} bytes", f"{len(frame) - HEADER.size}", "it was cut off")
    if _checksum(length, [frame[HEADER.size :]]) != checksum:
        remedy = "it was damaged on the way; resume, and check the network if this happens again"
        raise ProtocolError.expected(f"a frame that matches its checksum {checksum:08x}", "another content", remedy)
    return HEADER.size + int(length)


def _parts(envelope: memoryview) -> dict[str, Any]:
    """The envelope's entries, with types and ranges checked."""
    parts = _unpacked(envelope)
    if not isinstance(parts, dict) or parts.keys() != _PARTS.keys():
        raise ProtocolError.expected(f"an envelope with {', '.join(_PARTS)}", reprlib.repr(parts))
    for name, wanted in _PARTS.items():
        if type(parts[name]) is not wanted:
            raise ProtocolError.expected(f"{name} of type {wanted.__name__}", reprlib.repr(parts[name]))
    for name, lowest in _LOWEST.items():
        if not lowest <= parts[name] < 2**63:
            raise ProtocolError.expected(f"{name} from {lowest} to 2**63 - 1", parts[name])
    for name in ("sender", "receiver", "run"):
        if len(parts[name]) > _MAX_NAME_LENGTH:
            raise ProtocolError.expected(f"{name} of at most {_MAX_NAME_LENGTH} characters", len(parts[name]))
    if len(parts["rows"]) not in (0, 16):
        raise ProtocolError.expected("rows as a digest of 16 bytes, or none", len(parts["rows"]))
    return parts


def _unpacked(envelope: memoryview) -> Any:
    size = len(envelope)
    try:
        return msgpack.unpackb(
            envelope,
            strict_map_key=True,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=_MAX_ENTRIES,
            max_map_len=_MAX_ENTRIES,
            max_ext_len=0,
            object_pairs_hook=_distinct,
        )
    except (ValueError, msgpack.UnpackException) as damage:
        raise ProtocolError(f"expected an envelope of msgpack; {damage}") from None


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """A map whose keys differ: a frame must not read as two messages."""
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ProtocolError("expected distinct keys in a map of the envelope, got one twice")
    return entries


def _kind(value: str) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise ProtocolError.expected("a kind of message of this version", reprlib.repr(value)) from None


def _tensor_shapes(kind: Kind, entries: list[Any], remaining: int) -> dict[str, list[int]]:
    """Shapes by name, which need exactly the given number of bytes."""
    wanted = SHAPES[kind].tensors
    if len(entries) != len(wanted):
        raise ProtocolError.expected(f"{kind} with tensors {[*wanted]}", reprlib.repr(entries))
    shapes = {}
    for (name, (dtype, rank)), entry in zip(wanted.items(), entries, strict=True):
        if not isinstance(entry, list) or len(entry) != 4 or entry[:2] != [name, DTYPES[dtype]]:
            raise ProtocolError.expected(f"{kind}.{name} of {DTYPES[dtype]}", reprlib.repr(entry))
        shape, size = entry[2:]
        if not isinstance(shape, list) or len(shape) != rank or not all(type(n) is int for n in [*shape, size]):
            raise ProtocolError.expected(f"{kind}.{name} with {rank} whole dimensions", reprlib.repr(entry))
        # An empty tensor needs no bytes whatever its other dimension, which torch still cannot hold beyond 2**63.
        if any(not 0 <= n < 2**31 for n in shape) or math.prod(shape) * dtype.itemsize != size or size > remaining:
            raise ProtocolError.expected(f"{kind}.{name} to fit {remaining} bytes", f"shape {shape} in {size} bytes")
        remaining -= size
        shapes[name] = shape
    if remaining:
        raise ProtocolError.expected(f"the end of a {kind}", f"{remaining} more bytes")
    return shapes
