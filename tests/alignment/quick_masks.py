"""Masks of ids that take no time, for tests of what comes after a private set intersection."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pytest

from cutlayer.alignment import intersection
from cutlayer.alignment.ristretto255 import POINT_BYTES

Points = npt.NDArray[np.uint8]


def mask_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are combined with a scalar, by exclusive or, where they would be multiplied by it in ristretto255. They
    are hashes of ids, and random bytes, which are not mapped to the group.

    Two masks commute as two products do, so that messages, buckets and common rows are the same in kind and number.
    Nothing is hidden, and no point is refused: tests of channels multiply, and tests of alignments of what hides ids.
    """
    monkeypatch.setattr(intersection, "multiply", _combined)
    monkeypatch.setattr(intersection, "hash_to_group", _hashed)
    monkeypatch.setattr(intersection, "random_points", _random)


def masks_are_quick() -> bool:
    """Whether `mask_quickly` is in force."""
    return vars(intersection)["multiply"] is _combined


def _hashed(values: npt.NDArray[np.uint8], context: bytes) -> Points:
    hashes = [blake2b(context + row.tobytes(), digest_size=POINT_BYTES).digest() for row in values]
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, POINT_BYTES)


def _random(count: int, random: Callable[[int], bytes]) -> Points:
    return np.frombuffer(random(POINT_BYTES * count), dtype=np.uint8).reshape(-1, POINT_BYTES)


def _combined(points: Points, scalar: bytes) -> Points:
    return points ^ np.frombuffer(scalar, dtype=np.uint8)
