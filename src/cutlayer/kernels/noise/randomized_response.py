"""Randomised response as a keyed function: the same row, label and key always give the same draw."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.noise.aes import BLOCK, derive, encrypt_blocks
from cutlayer.lazy import Tensor, torch

_WORDS = 2**64
_ROWS_AT_A_TIME = 1 << 18  # bounds the copies of the digests to 4 MiB, whatever the table


def flip_probability(eps: float, classes: int) -> float:
    """Chance that a label is replaced: (n - 1) / (n - 1 + e^eps) for n classes.

    >>> flip_probability(0.0, 2)
    0.5
    """
    weight = (classes - 1) * math.exp(-eps)
    return weight / (1 + weight)


def drawn_rate(eps: float, classes: int) -> tuple[float, float]:
    """Slope and offset of the rate at which a class is drawn, by its true share: rate = slope * share + offset.

    >>> drawn_rate(0.0, 2)
    (0.0, 0.5)
    """
    flip = flip_probability(eps, classes)
    offset = flip / (classes - 1)
    return 1 - flip - offset, offset


def transition_matrix(eps: float, classes: int) -> Tensor:
    """Probability that a label of a class (row) is drawn as another (column): float64 (classes, classes).

    >>> transition_matrix(0.0, 2).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    flip = flip_probability(eps, classes)
    same = torch.eye(classes, dtype=torch.float64)
    return same * (1 - flip) + (1 - same) * (flip / (classes - 1))


def expected_shortfall(rows: int, rate: float) -> tuple[float, float]:
    """Mean and variance of how many rows fewer than expected are drawn as a class: max(0, rate * rows - count).

    Args:
        rows: Number of rows.
        rate: Rate at which each is drawn as it, above 0 and below 1.

    >>> [round(each, 4) for each in expected_shortfall(1, 0.25)]
    [0.1875, 0.0117]
    """
    mean, deviation = rows * rate, math.sqrt(rows * rate * (1 - rate))
    counts = torch.arange(max(0, math.floor(mean - 12 * deviation)), math.ceil(mean), dtype=torch.float64)
    of_rows = torch.tensor(float(rows), dtype=torch.float64)
    chances = torch.distributions.Binomial(of_rows, torch.tensor(rate, dtype=torch.float64)).log_prob(counts).exp()  # type: ignore[no-untyped-call]
    first, second = (float((chances * (mean - counts) ** power).sum()) for power in (1, 2))
    return first, second - first**2


def flip_threshold(eps: float, classes: int) -> int:
    """Number of the 2^64 values of a word that replace a label: the least for which eps-differential privacy is exact.

    The replacement is the remainder of a word by n - 1, and the rarest comes with probability q = floor(2^64 / (n - 1))
    / 2^64. A threshold t gives eps where (1 - t / 2^64) <= e^eps q t / 2^64, that is from 2^64 / (1 + e^eps q) on. An
    eps below n 2^-62 is finer than words of 64 bits can express, and is met up to that.

    Args:
        eps: 0 or more.
        classes: n, 2 or more.

    Returns:
        1 to 2^64 - 1.

    >>> flip_threshold(0.0, 2) == 2**63
    True
    """
    with localcontext(Context(prec=60, rounding=ROUND_HALF_EVEN)):
        rarest = Decimal(_WORDS // (classes - 1)) / _WORDS
        # From 100 on one word is enough, whatever the classes. The exponential is rounded; less 10^-50 of it, it is not
        # above the exact one. That of 0 is exact.
        growth = Decimal(min(eps, 100.0)).exp() * (1 - Decimal("1e-50")) if eps else Decimal(1)
        return math.ceil(_WORDS / (1 + growth * rarest))


def randomized_response(
    codes: Tensor, digests: Tensor, classes: int, eps: float, secret: bytes, column: str, draws: str = ""
) -> Tensor:
    """Keep each label with probability e^eps / (n - 1 + e^eps), else draw another class uniformly.

    The randomness of a row is AES-256 of its id digest, under a key derived from the secret, the label column, eps, the
    number of classes and the row's label. The first 8 bytes decide whether the label flips, the last 8 to which
    class. So a draw does not depend on the order of the rows or on the other rows, and a repeated training releases
    nothing new. The probability of a flip is a multiple of 2^-64: the smallest that keeps the ratio of any two
    labels' probabilities within e^eps, rounding and the uneven remainder included (`flip_threshold`).

    Args:
        codes: int64 (n,), 0 to classes - 1.
        digests: uint8 (n, 16), one distinct digest per row id.
        classes: 2 or more.
        eps: 0 or more; 0 ignores the label.
        secret: 16 bytes or more that stay with the label's owner.
        column: Name of the label column.
        draws: Name of the draws; another one draws every row anew, and the eps of both add up.

    Returns:
        int64 (n,).

    Raises:
        ConfigError: eps, classes or the secret is out of range.
        DataError: A code is out of range, or the digests do not fit the codes.

    Reference: Warner 1965, Randomized response; for n classes Ghazi et al. 2021, Deep learning with label differential
    privacy (arXiv 2102.06062), section 1.

    Guarantee: eps-label differential privacy of each row (neighbours differ in one row's label) while the secret is
    unknown to the receiver, and AES-256 is taken for a random function. It is of one label for each row: the draws for
    two labels of a row under one secret and name show a change, since every other row repeats its own.
    """
    check_draw(codes, digests, classes, eps)
    purposes = [draw_purpose(column, eps, classes, code, draws) for code in range(classes)]
    keys = [derive(secret, b"cutlayer randomized response", *purpose) for purpose in purposes]
    threshold = np.uint64(flip_threshold(eps, classes))
    out = codes.clone()
    for start in range(0, len(codes), _ROWS_AT_A_TIME):
        piece = slice(start, start + _ROWS_AT_A_TIME)
        _draw(out[piece].numpy(), digests[piece].numpy(), keys, threshold)
    return out


def draw_purpose(column: str, eps: float, classes: int, code: int, draws: str) -> tuple[bytes, ...]:
    """Inputs of a draw besides the row and the secret, as bytes to derive its key from."""
    drawn = column.encode(), float(eps).hex().encode(), str(classes).encode(), str(code).encode()
    return (*drawn, draws.encode()) if draws else drawn


def _draw(
    codes: npt.NDArray[np.int64], digests: npt.NDArray[np.uint8], keys: list[bytes], threshold: np.uint64
) -> None:
    """Replace the codes in place."""
    order = np.argsort(codes.astype(np.uint16 if len(keys) <= 2**16 else np.int64), kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(keys) + 1))
    for code, key in enumerate(keys):
        rows = order[starts[code] : starts[code + 1]]
        if not len(rows):
            continue
        words = encrypt_blocks(key, digests[rows]).view("<u8")
        flips = words[:, 0] < threshold
        # The remainder is uneven by less than (classes - 1) / 2^64, which the threshold makes up for.
        other = (words[flips, 1] % np.uint64(len(keys) - 1)).astype(np.int64)
        codes[rows[flips]] = other + (other >= code)


def check_draw(codes: Tensor, digests: Tensor, classes: int, eps: float) -> None:
    """Raise an error if labels cannot be drawn, as `randomized_response` states."""
    if not (eps >= 0 and math.isfinite(eps)):
        raise ConfigError.expected("eps >= 0", eps, "0 is a coin flip, 1 flips 27 % of binary labels")
    if classes < 2:
        raise ConfigError.expected("2 classes or more", classes)
    if codes.dtype != torch.int64 or codes.ndim != 1:
        raise DataError.expected("label codes int64 (n,)", f"{codes.dtype} {tuple(codes.shape)}")
    if digests.dtype != torch.uint8 or digests.shape != (len(codes), BLOCK):
        raise DataError.expected(f"id digests uint8 ({len(codes)}, {BLOCK})", f"{digests.dtype} {tuple(digests.shape)}")
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= classes):
        raise DataError.expected(f"label codes from 0 to {classes - 1}", f"{int(codes.min())} to {int(codes.max())}")
