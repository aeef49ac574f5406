"""A small image as a PNG file inside a page, without an imaging library."""

from __future__ import annotations

import base64
import struct
import zlib

GREY, COLOUR = 0, 2
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(pixels: bytes, shape: tuple[int, int, int]) -> bytes:
    """An image of bytes as a PNG file.

    Args:
        pixels: channel by channel, row by row.
        shape: channels (1 grey or 3 colours), height, width.

    Raises:
        ValueError: another number of channels, or of bytes.

    Reference: Portable Network Graphics, third edition (W3C 2025), sections 5 and 11.
    """
    channels, height, width = shape
    if channels not in (1, 3) or len(pixels) != channels * height * width:
        raise ValueError(f"expected {channels} x {height} x {width} bytes in 1 or 3 channels, got {len(pixels)}")
    planes = [pixels[at * height * width : (at + 1) * height * width] for at in range(channels)]
    woven = bytearray(len(pixels))
    for at, plane in enumerate(planes):
        woven[at::channels] = plane
    stride = channels * width
    lines = b"".join(b"\0" + woven[row * stride : (row + 1) * stride] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, GREY if channels == 1 else COLOUR, 0, 0, 0)
    parts = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(lines, 9)), _chunk(b"IEND", b""))
    return _SIGNATURE + b"".join(parts)


def png_uri(pixels: bytes, shape: tuple[int, int, int]) -> str:
    """The PNG file of `png` as a data URI."""
    return "data:image/png;base64," + base64.b64encode(png(pixels, shape)).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
