"""How large a message is, as a whole and off the direction that most of it lies in."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cutlayer.lazy import Tensor, torch

ROUNDS = 3
"""Rounds of the power iteration; a gradient lies almost in one direction, and noise of its shape in few."""
_ROUNDING = 1e-6
"""Share of the squared size below which what is left of it is rounding to float32."""
_SMALLEST = 1e-12
"""Largest number of a message from which on the squares of all numbers that matter are in the range of float32."""

_SMALL = 1 << 17
"""Multiplications of a message's columns with each other up to which calls cost more than what they compute."""


def message_sizes(message: Tensor) -> Tensor:
    """Root mean square of the numbers of a message, and of what is left off its main direction.

    The main direction comes from a power iteration that starts at the longest row, so it depends on no state.

    Args:
        message: float (n, d), finite, of any scale.

    Returns:
        float64 (2,) on the CPU; 0 for a message of zeros, and second where all is along the main direction.
    """
    rows = message.detach()
    if rows.numel() * rows.shape[-1] <= _SMALL:
        exact = rows.double().cpu().numpy()
        return _of_products(exact.T @ exact, rows.numel())
    lengths = _lengths(rows) if rows.numel() else rows.new_zeros(0)
    whole = float(torch.linalg.vector_norm(lengths, dtype=torch.float64))
    if not whole:
        return torch.zeros(2, dtype=torch.float64)
    along = rows[int(lengths.argmax())]
    for number in range(ROUNDS + 1):
        # Both normalised, so that products of 1e-30 do not vanish.
        along = along / float(torch.linalg.vector_norm(along, dtype=torch.float64))
        projections = rows @ along
        if number < ROUNDS:
            along = (projections / float(torch.linalg.vector_norm(projections, dtype=torch.float64))) @ rows
    share = 1.0 - (float(torch.linalg.vector_norm(projections, dtype=torch.float64)) / whole) ** 2
    left = math.sqrt(share) if share > _ROUNDING else 0.0
    return torch.tensor([1.0, left], dtype=torch.float64) * (whole / math.sqrt(rows.numel()))


def _of_products(products: npt.NDArray[np.float64], count: int) -> Tensor:
    """`message_sizes` from the products of the columns (d, d), by the eigenvalues of that."""
    values = np.linalg.eigvalsh(products).tolist()
    left = max(sum(values[:-1]), 0.0)
    whole = left + max(values[-1], 0.0) if values else 0.0
    sizes = whole, left if left > _ROUNDING * whole else 0.0
    return torch.tensor([math.sqrt(size / max(count, 1)) for size in sizes], dtype=torch.float64)


def _lengths(rows: Tensor) -> Tensor:
    """Length of each row (n,), in float64 where squares could vanish or overflow, which takes four times as long."""
    low, high = (float(end) for end in rows.aminmax())
    safe = _SMALLEST <= max(-low, high) <= 1 / _SMALLEST
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=rows.dtype if safe else torch.float64)
    return lengths
