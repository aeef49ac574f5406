"""How large a message is, as a whole and off the direction that most of it lies in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cutlayer.lazy import Tensor

ROUNDS = 3
"""Rounds of the power iteration; a gradient lies almost in one direction, and noise of its shape in few."""
_ROUNDING = 1e-6
"""Share of the squared size below which what is left of it is rounding to float32."""
_SMALL = 1 << 17
"""Multiplications of a message's columns with each other up to which calls cost more than what they compute."""


def message_sizes(message: Tensor) -> tuple[float, float]:
    """Root mean square of the numbers of a message, and of what is left off its main direction.

    The main direction comes from a power iteration that starts at the longest row, so it depends on no state.

    Args:
        message: float (n, d), finite, of any scale.

    Returns:
        Both; 0 for a message of zeros, and second where all is along the main direction.
    """
    # In float64, so that squares of 1e-30 do not vanish; by NumPy where it can be, whose calls cost a quarter.
    numbers: Any = message.detach().double()
    numbers = numbers.numpy() if numbers.device.type == "cpu" else numbers
    count = numbers.shape[0] * numbers.shape[1]
    width = numbers.shape[1]
    if count * width <= _SMALL:
        products = numbers.T @ numbers
        products = products if isinstance(products, np.ndarray) else products.cpu().numpy()
        values = np.linalg.eigvalsh(products).tolist()
        left = max(sum(values[:-1]), 0.0)
        return _sizes(left + max(values[-1], 0.0) if values else 0.0, left, count)
    lengths = (numbers * numbers).sum(1)
    whole = float(lengths.sum())
    if not whole:
        return 0.0, 0.0
    along = numbers[int(lengths.argmax())]
    for number in range(ROUNDS + 1):
        along = along / math.sqrt(float(along @ along))
        projections = numbers @ along
        if number < ROUNDS:
            along = projections @ numbers
    return _sizes(whole, whole - float(projections @ projections), count)


def _sizes(whole: float, left: float, count: int) -> tuple[float, float]:
    """Root mean squares from the sum of squares of `count` numbers, and what of it is off the main direction."""
    count = max(count, 1)
    return math.sqrt(whole / count), math.sqrt(left / count) if left > _ROUNDING * whole else 0.0
