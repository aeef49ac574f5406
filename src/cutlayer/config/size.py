"""Sizes of memory, as text."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

_UNITS = {"MB": 2**20, "GB": 2**30}
MIN_MEMORY = 64 * 2**20


def in_bytes(size: str) -> int:
    """A size such as `2 GB` or `500 MB` as a number of bytes.

    >>> in_bytes("2 GB"), in_bytes("500MB")
    (2147483648, 524288000)
    """
    return int(size[:-2]) * _UNITS[size[-2:]]


def _large_enough(size: str) -> str:
    if in_bytes(size) < MIN_MEMORY:
        raise ValueError(f"64 MB or more, got {size}")
    return size


MemorySize = Annotated[str, Field(pattern=r"^[0-9]{1,9} ?(MB|GB)$"), AfterValidator(_large_enough)]
"""A size of memory, 64 MB or more."""
