"""Frames on a gRPC stream: each is cut into chunks of 1 MiB, and put together again within limits.

chunk = kind (one byte), then
    START  number of bytes of the frame (uint32, little-endian) and the first of them
    MORE   the next bytes of that frame
    ACK    number of frames that the sender of this chunk has received (uint64)
    END    nothing; the sender ends the link on purpose. A call that ends without it was broken, whatever gRPC says

Every chunk of a frame but the last carries exactly `CHUNK_BYTES`: a peer cannot make this side hold many small ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from cutlayer.channel.codec import FrameLimits
from cutlayer.errors import ProtocolError

CHUNK_BYTES = 2**20

_START = 1
_MORE = 2
_ACK = 3
_END = 4
END = bytes([_END])
"""The chunk that ends a link."""
_START_HEAD = struct.Struct("<BI")
_MORE_HEAD = struct.Struct("<B")
_ACK_HEAD = struct.Struct("<BQ")
Part = bytes | bytearray | memoryview
Frame = tuple[memoryview, ...]
"""The parts of a frame, in order; each but the last holds `CHUNK_BYTES`."""


def split_frame(parts: Iterable[Part]) -> tuple[bytes, ...]:
    """The chunks of a frame that is given in parts; each byte is copied once."""
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    total = sum(map(len, views))
    if total <= CHUNK_BYTES:
        return (b"".join([_START_HEAD.pack(_START, total), *views]),)
    pieces = _sliced(views)
    first = b"".join([_START_HEAD.pack(_START, total), *next(pieces, [])])
    return (first, *(b"".join([_MORE_HEAD.pack(_MORE), *piece]) for piece in pieces))


def acknowledgement(frames: int) -> bytes:
    """The chunk that says how many frames have been received."""
    return _ACK_HEAD.pack(_ACK, frames)


class Assembler:
    """Puts the chunks of one direction of a call together.

    Args:
        limits: Bounds on a frame, checked before any of it is stored.
    """

    def __init__(self, limits: FrameLimits) -> None:
        self._max_bytes = limits.frame_bytes
        self._parts: list[memoryview] = []
        self._missing = 0

    def add(self, chunk: bytes) -> Frame | int | bytes | None:
        """Take the next chunk.

        Returns:
            A frame that is now complete, the number of an acknowledgement, `END`, or `None`.

        Raises:
            ProtocolError: No chunk, one out of order, or of another size than it must have.
        """
        kind = chunk[0] if chunk else 0
        if kind == _ACK and len(chunk) == _ACK_HEAD.size:
            return int(_ACK_HEAD.unpack(chunk)[1])
        if chunk == END and not self._missing:
            return END
        if kind == _START and not self._missing and len(chunk) >= _START_HEAD.size:
            self._missing = _START_HEAD.unpack_from(chunk)[1]
            if self._missing > self._max_bytes:
                raise ProtocolError.expected(f"a frame of at most {self._max_bytes} bytes", self._missing)
            return self._extended(memoryview(chunk)[_START_HEAD.size :])
        if kind == _MORE and self._missing:
            return self._extended(memoryview(chunk)[_MORE_HEAD.size :])
        raise ProtocolError.expected("the next chunk of a frame", ascii(chunk[:8]))

    def _extended(self, part: memoryview) -> Frame | None:
        wanted = min(self._missing, CHUNK_BYTES)
        if len(part) != wanted:
            raise ProtocolError.expected(f"a chunk with {wanted} bytes of its frame", len(part))
        self._parts.append(part)
        self._missing -= wanted
        if self._missing:
            return None
        frame = tuple(self._parts)
        self._parts = []
        return frame


def _sliced(views: list[memoryview]) -> Iterator[list[memoryview]]:
    """The bytes of some views in lists of `CHUNK_BYTES` each, the last one shorter."""
    piece: list[memoryview] = []
    room = CHUNK_BYTES
    for view in views:
        while len(view):
            piece.append(view[:room])
            view = view[room:]
            room = room - len(piece[-1])
            if not room:
                yield piece
                piece = []
                room = CHUNK_BYTES
    if piece:
        yield piece
