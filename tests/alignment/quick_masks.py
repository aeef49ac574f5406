"""Masks of ids that take no time, for tests of what comes after a private set intersection."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cutlayer.alignment import intersection

Points = npt.NDArray[np.uint8]


def mask_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are combined with a scalar, by exclusive or, where they would be multiplied by it in ristretto255.

    Two masks commute as two products do, so that messages, buckets and common rows are the same in kind and number.
    Nothing is hidden, and no point is refused: `tests/alignment` and `tests/channel` multiply.
    """
    monkeypatch.setattr(intersection, "multiply", _combined)


def masks_are_quick() -> bool:
    """Whether `mask_quickly` is in force."""
    return vars(intersection)["multiply"] is _combined


def _combined(points: Points, scalar: bytes) -> Points:
    return points ^ np.frombuffer(scalar, dtype=np.uint8)
