"""The wire format: encodes a message as a frame and decodes it with every entry checked.

frame    = header, envelope, tensors
header   = b"CUT", version (one byte), length of the envelope (uint32), checksum (uint32): 12 bytes, little-endian
checksum = CRC-32 of the length of the envelope, the envelope and the tensors; it detects damage, not forgery. It is 0
           over TLS, which detects both
envelope = a msgpack map of everything but the numbers; of each tensor its name, dtype, shape and bytes
tensors  = the raw numbers, row-major and little-endian, back to back in the order of `SHAPES`
"""

from __future__ import annotations

import math
import reprlib
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgpack
import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from torch import Tensor

from cutlayer.channel.kinds import Kind
from cutlayer.channel.message import BYTES, SHAPES, Message
from cutlayer.errors import ConfigError, ProtocolError
from cutlayer.storage.checksum import crc32

WIRE_VERSION = 3
MAGIC = b"CUT"
HEADER = struct.Struct("<3sBII")

DTYPES: Mapping[torch.dtype, str] = {torch.uint8: "|u1", torch.int64: "<i8", torch.float32: "<f4"}
"""NumPy's names, which state the byte order."""

_MAX_ENTRIES = 16
"""Maximum length of a list or map in an envelope; the largest, the envelope itself, has ten entries."""

Raw = bytes | bytearray | memoryview
_EMPTY = memoryview(b"")
_BIG_ENDIAN = sys.byteorder == "big"


def printable_name(name: str) -> str:
    """Return a text of a peer that may be shown."""
    if not name.isprintable():  # it may reach a log
        raise ValueError("expected printable characters")
    return name


def _kind(value: object) -> object:
    """The kind that a text names; any other value is left to be refused."""
    return Kind(value) if isinstance(value, str) else value


_Name = Annotated[str, Field(max_length=256), AfterValidator(printable_name)]
_Count = Annotated[int, Field(ge=-1, lt=2**63)]


class _Envelope(BaseModel):
    """Header of a frame: the message without its tensors."""

    model_config = ConfigDict(strict=True, extra="forbid")

    kind: Annotated[Kind, BeforeValidator(_kind)]
    sender: _Name
    receiver: _Name
    run: _Name
    epoch: _Count
    step: _Count
    sequence: Annotated[_Count, Field(ge=0)]
    rows: Annotated[bytes, Field(min_length=16, max_length=16)] | Literal[b""]
    tensors: list[Any]
    fields: dict[Any, Any]


@dataclass(frozen=True, kw_only=True)
class FrameLimits:
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


DEFAULT_LIMITS = FrameLimits()


def encode(message: Message, limits: FrameLimits = DEFAULT_LIMITS) -> bytes:
    """Encode a message as a frame in one piece; see `encode_parts`."""
    return b"".join(encode_parts(message, limits))


def encode_parts(message: Message, limits: FrameLimits = DEFAULT_LIMITS, *, checksum: bool = True) -> list[Raw]:
    """Encode a message as the parts of a frame; its tensors are not copied, so it must be used before they change.

    Args:
        message: Checked message with contiguous tensors, as a `Port` makes it.
        limits: Limits of the receiver.
        checksum: Whether to compute the checksum, which costs about as much as the encryption of TLS.

    Raises:
        ProtocolError: The frame would be larger than the receiver takes, or holds a number or text that msgpack cannot.
    """
    tensors = [message.tensors[name] for name in SHAPES[message.kind].tensors]
    parts = {
        "kind": message.kind.value,
        "sender": message.sender,
        "receiver": message.receiver,
        "run": message.run,
        "epoch": message.epoch,
        "step": message.step,
        "sequence": message.sequence,
        "rows": message.rows,
        "tensors": [
            [name, DTYPES[tensor.dtype], list(tensor.shape), tensor.nbytes]
            for name, tensor in zip(SHAPES[message.kind].tensors, tensors, strict=True)
        ],
        "fields": dict(message.fields),
    }
    try:
        envelope: bytes = msgpack.packb(parts)
    except (ValueError, TypeError, OverflowError) as unfit:
        raise ProtocolError(f"a {message.kind} cannot be written: {unfit}") from None
    _check_size("an envelope", len(envelope), limits.envelope_bytes)
    _check_size("a frame", HEADER.size + len(envelope) + message.nbytes, limits.frame_bytes)
    body: list[Raw] = [envelope, *map(_numbers, tensors)]
    computed = _checksum(len(envelope), body) if checksum else 0
    return [HEADER.pack(MAGIC, WIRE_VERSION, len(envelope), computed), *body]


def decode(frame: Raw | Sequence[Raw], limits: FrameLimits = DEFAULT_LIMITS, *, checksum: bool = True) -> Message:
    """Decode a frame, in one piece or in parts.

    The numbers are copied once, into memory that torch aligned: a view of the frame would save 0.3 ms of 4 MB, and
    start at any address, for which no library promises the same last bit.

    Args:
        frame: Frame, or its parts in order.
        limits: Limits of this party.
        checksum: Whether the frame has a checksum to compare with.

    Returns:
        The message, its content checked against its kind; its tensors own their memory.

    Raises:
        ProtocolError: The frame is damaged, too large, of another version, or claims what it does not hold.
    """
    reader = _Reader([frame] if isinstance(frame, bytes | bytearray | memoryview) else frame)
    _check_size("a frame", reader.left, limits.frame_bytes)
    stated = _parts(_envelope(reader, limits, checksum=checksum))
    sizes = _tensor_shapes(stated.kind, stated.tensors, reader.left)
    tensors = {name: _tensor(reader, dtype, shape) for name, (dtype, shape) in sizes.items()}
    return Message(**{**vars(stated), "tensors": tensors}).checked()


class _Reader:
    """Reads the parts of a frame as if they were joined."""

    def __init__(self, parts: Sequence[Raw]) -> None:
        self._parts = [memoryview(part) for part in parts if len(part)]
        self._index = self._start = 0
        self.left = sum(map(len, self._parts))

    def take(self, size: int) -> memoryview:
        """The next bytes; copied only if they are in several parts."""
        part = self._parts[self._index][self._start :] if size else _EMPTY
        if len(part) <= size:  # this part ends here, or before
            joined = memoryview(bytearray(size))
            self.copy_into(joined)
            return joined
        self._start += size
        self.left -= size
        return part[:size]

    def copy_into(self, target: memoryview) -> None:
        """Fill a target with the next bytes."""
        self.left -= len(target)
        while len(target):
            part = self._parts[self._index]
            copied = min(len(target), len(part) - self._start)
            target[:copied] = part[self._start : self._start + copied]
            target = target[copied:]
            self._start += copied
            if self._start == len(part):
                self._index, self._start = self._index + 1, 0

    def rest(self) -> list[memoryview]:
        """Views of the unread bytes; the position of the reader does not change."""
        left = self._parts[self._index :]
        return [left[0][self._start :], *left[1:]] if left else []


def _checksum(length: int, body: Iterable[Raw]) -> int:
    return crc32([length.to_bytes(4, "little"), *body])


def _numbers(tensor: Tensor) -> memoryview:
    """The tensor's own memory, in the byte order of the wire."""
    array: Any = tensor.numpy(force=True)
    if _BIG_ENDIAN:
        array = array.astype(DTYPES[tensor.dtype])
    return memoryview(array).cast("B") if array.size else _EMPTY


def _tensor(reader: _Reader, dtype: torch.dtype, shape: list[int]) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    if 0 not in shape:
        raw: Any = tensor.numpy()
        reader.copy_into(memoryview(raw).cast("B"))
        if _BIG_ENDIAN:
            raw.byteswap(inplace=True)
    return tensor


def _check_size(what: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ProtocolError.expected(f"{what} of at most {max_bytes} bytes", size)


def _envelope(reader: _Reader, limits: FrameLimits, *, checksum: bool) -> memoryview:
    """The envelope behind the header, after a check of the checksum of everything."""
    if reader.left < HEADER.size:
        raise ProtocolError.expected(f"a frame of at least {HEADER.size} bytes", reader.left)
    magic, version, length, stated = HEADER.unpack(reader.take(HEADER.size))
    if magic != MAGIC:
        raise ProtocolError.expected(f"a frame that starts with {MAGIC!r}", magic)
    if version != WIRE_VERSION:
        remedy = "install the same version of cutlayer at all parties"
        raise ProtocolError.expected(f"wire format {WIRE_VERSION}", version, remedy)
    _check_size("an envelope", length, limits.envelope_bytes)
    if length > reader.left:
        raise ProtocolError.expected(f"an envelope of {length} bytes", f"{reader.left}", "it was cut off")
    if checksum and _checksum(length, reader.rest()) != stated:
        remedy = "it was damaged on the way; resume, and check the network if this happens again"
        raise ProtocolError.expected(f"a frame that matches its checksum {stated:08x}", "another content", remedy)
    return reader.take(length)


def _parts(envelope: memoryview) -> _Envelope:
    """The envelope, with types and ranges checked."""
    try:
        return _Envelope.model_validate(_unpacked(envelope))
    except ValidationError as unfit:
        fault = unfit.errors(include_url=False)[0]
        # Another name than those of the parts is a text of the peer, which may reach a log.
        part = next((f".{name}" for name in fault["loc"] if name in _Envelope.model_fields), "")
        where = f"envelope{part}" if part or not fault["loc"] else f"envelope, {reprlib.repr(fault['loc'][0])}"
        raise ProtocolError(f"{where}: {fault['msg']}, got {reprlib.repr(fault['input'])}") from None


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


def _tensor_shapes(kind: Kind, entries: list[Any], remaining: int) -> dict[str, tuple[torch.dtype, list[int]]]:
    """Types and shapes by name, which need exactly the given number of bytes."""
    wanted = SHAPES[kind].tensors
    if len(entries) != len(wanted):
        raise ProtocolError.expected(f"{kind} with tensors {[*wanted]}", reprlib.repr(entries))
    shapes = {}
    for (name, (dtype, rank)), entry in zip(wanted.items(), entries, strict=True):
        if kind in BYTES and isinstance(entry, list) and entry[1:2] == [DTYPES[torch.uint8]]:
            dtype = torch.uint8
        if not isinstance(entry, list) or len(entry) != 4 or entry[:2] != [name, DTYPES[dtype]]:
            raise ProtocolError.expected(f"{kind}.{name} of {DTYPES[dtype]}", reprlib.repr(entry))
        shape, size = entry[2:]
        if not isinstance(shape, list) or len(shape) != rank or not all(type(n) is int for n in [*shape, size]):
            raise ProtocolError.expected(f"{kind}.{name} with {rank} whole dimensions", reprlib.repr(entry))
        # An empty tensor needs no bytes whatever its other dimension, which torch still cannot hold beyond 2**63.
        if any(not 0 <= n < 2**31 for n in shape) or math.prod(shape) * dtype.itemsize != size or size > remaining:
            raise ProtocolError.expected(f"{kind}.{name} to fit {remaining} bytes", f"shape {shape} in {size} bytes")
        remaining -= size
        shapes[name] = dtype, shape
    if remaining:
        raise ProtocolError.expected(f"the end of a {kind}", f"{remaining} more bytes")
    return shapes
