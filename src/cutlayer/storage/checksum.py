"""Checksums that show damage on a disk or a link: CRC-32, which detects every burst of up to 32 flipped bits.

They detect accidents. They do not stop a person who changes a file on purpose: that person can compute them too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cutlayer.storage.json_values import parse_json

CHECKSUM_KEY = "checksum"
"""Entry of a sealed JSON object that holds the checksum of its other entries."""
_BLOCK_BYTES = 1 << 20


def crc32(parts: Iterable[bytes | bytearray | memoryview]) -> int:
    """CRC-32 of byte strings as if they were joined, without joining them."""
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def file_checksum(path: Path) -> str:
    """CRC-32 of a file in 8 hexadecimal digits, read in blocks so that its size does not count in memory."""
    with path.open("rb") as file:
        return f"{crc32(iter(lambda: file.read(_BLOCK_BYTES), b'')):08x}"


def seal(content: Mapping[str, Any]) -> str:
    """Write a JSON object on one line, with its checksum as the last entry.

    Args:
        content: Plain values without an entry named `checksum`.
    """
    return json.dumps({**content, CHECKSUM_KEY: _text_checksum(content)})


def unseal(text: str | bytes) -> dict[str, Any]:
    """Read what `seal` wrote and drop the checksum.

    Raises:
        ValueError: Not UTF-8, not JSON, not an object, or damaged.
    """
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object, got {type(content).__name__}")
    if content.pop(CHECKSUM_KEY, None) != _text_checksum(content):
        raise ValueError("the content does not match its checksum")
    return content


def _text_checksum(content: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content).encode()):08x}"
