"""Numbers as a few levels of a stated range, rounded at random, so that randomised response can draw them."""

from __future__ import annotations

import numpy as np

from cutlayer.kernels.noise.aes import derive, encrypt_blocks
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import chunks_of

_LEVELS = ((8.0, 17), (6.0, 9), (4.0, 5), (3.0, 4), (1.5, 3))
"""Number of levels from an epsilon on: of more, the noise of the draw costs more than rounding saves. The variance of
their unbiased estimate is that of the piecewise mechanism or less, within 5 %, for even, normal and skewed numbers."""


def levels_for(epsilon: float) -> int:
    """Number of levels that a number is best rounded to before it is drawn at an epsilon.

    >>> [levels_for(epsilon) for epsilon in (0.5, 1.0, 2.0, 3.0, 4.0, 8.0)]
    [2, 2, 3, 4, 5, 17]
    """
    return next((levels for least, levels in _LEVELS if epsilon >= least), 2)


def rounded_levels(
    values: Tensor, span: tuple[float, float], levels: int, digests: Tensor, secret: bytes, column: str
) -> Tensor:
    """Round numbers to one of the two nearest levels at random, so that the expectation is the number.

    With two levels, and randomised response after it, this is the one-bit mechanism: with more, its errors are those of
    the piecewise mechanism or smaller. The rounding of a row is a function of its id: a draw of it repeats.

    Args:
        values: (n,); those outside of the range are clipped to it.
        span: Lowest and highest value of the range, which is public: never taken from the rows.
        levels: Number of levels, 2 or more, in equal distances over the range.
        digests: Digests of the rows' ids, uint8 (n, 16).
        secret: 16 bytes or more that stay with the owner of the numbers.
        column: Name of the column.

    Returns:
        int64 (n,), 0 to levels - 1.

    Reference: Duchi, Jordan and Wainwright 2018 (arXiv 1604.02390), section 4, for the one-bit mechanism; Wang et al.
    2019 (arXiv 1907.00782), section 3, for the piecewise one, with which it is compared.
    """
    low, high = span
    key = derive(secret, b"cutlayer label levels", column.encode(), repr((low, high, levels)).encode())
    out = torch.empty(len(values), dtype=torch.int64)
    for start, end in chunks_of(len(values)):
        place = (values[start:end].double().clamp(low, high) - low) / (high - low) * (levels - 1)
        words = encrypt_blocks(key, digests[start:end].numpy()).view("<u8")[:, 0]
        uniform = torch.from_numpy((words >> np.uint64(11)).astype(np.float64) / 2**53)
        out[start:end] = torch.minimum((place + uniform).floor().long(), torch.tensor(levels - 1))
    return out
