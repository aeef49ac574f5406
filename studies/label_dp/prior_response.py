"""Randomised response with a prior: labels are drawn from a row's likely classes only."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cutlayer.errors import DataError
from cutlayer.kernels.noise.aes import derive, encrypt_blocks
from cutlayer.kernels.noise.randomized_response import check_draw, draw_purpose, flip_threshold
from cutlayer.lazy import Tensor, torch


def likely_classes(prior: Tensor, eps: float) -> Tensor:
    """Classes that each row's label is drawn from: its k most likely ones, by the best k of the row.

    Of all k, the one with the largest probability that the drawn label is the true one, under the prior: that is
    w_k = e^eps / (e^eps + k - 1) times the sum of the k largest probabilities. A flat prior gives all classes, a sure
    one a single class, whose label is then constant.

    Args:
        prior: Probabilities of the classes before the label is seen, float (n, classes), 0 or more.
        eps: 0 or more.

    Returns:
        bool (n, classes).

    Raises:
        DataError: A prior is not finite, negative, or 0 for all classes of a row.

    Reference: Ghazi et al. 2021 (arXiv 2102.06062), algorithm 2 (RRWithPrior).
    """
    prior = prior.double()
    if prior.ndim != 2 or not bool((prior.isfinite() & (prior >= 0)).all()) or not bool((prior.sum(1) > 0).all()):
        wanted = "priors (n, classes), finite, 0 or more and above 0 in each row"
        raise DataError.expected(wanted, f"{tuple(prior.shape)} with others")
    order = prior.argsort(dim=1, descending=True, stable=True)
    size = torch.arange(1, prior.shape[1] + 1, dtype=torch.float64)
    weight = prior.gather(1, order).cumsum(1) / (1 + (size - 1) * math.exp(-eps))
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(prior.shape[1]).expand_as(order))
    return rank <= weight.argmax(dim=1, keepdim=True)


def randomized_response_with_prior(
    codes: Tensor, digests: Tensor, likely: Tensor, eps: float, secret: bytes, column: str, draws: str = ""
) -> Tensor:
    """Draw each label from its row's likely classes.

    A label among the k likely classes is kept with probability e^eps / (e^eps + k - 1), else another of them is drawn
    uniformly. Any other label is drawn uniformly from them. The randomness is that of `randomized_response`, under a
    key that also depends on the row's likely classes.

    Args:
        codes: int64 (n,), 0 to classes - 1.
        digests: uint8 (n, 16), one distinct digest per row id.
        likely: Classes to draw from, at least one in each row, bool (n, classes). They must not depend on the row's own
            label.
        eps: 0 or more.
        secret: 16 bytes or more that stay with the label's owner.
        column: Name of the label column.
        draws: Name of the draws; another one draws every row anew, and the eps of both add up.

    Returns:
        int64 (n,).

    Raises:
        ConfigError: eps, classes or the secret is out of range.
        DataError: A code is out of range, or rows do not fit together.

    Reference: Ghazi et al. 2021 (arXiv 2102.06062), algorithm 1 (RRTop-k).

    Guarantee: eps-label differential privacy of each row (neighbours differ in one row's label), if the likely classes
    of a row do not depend on its label, under the conditions of `randomized_response`. An eps below k 2^-60 is finer
    than words of 64 bits can express, and is met up to that. A row that is drawn from two sets of classes spends 2 eps.
    """
    check_draw(codes, digests, likely.shape[1], eps)
    if len(likely) != len(codes) or not bool(likely.any(dim=1).all()):
        raise DataError.expected(f"one likely class or more for each of {len(codes)} rows", f"{tuple(likely.shape)}")
    out = codes.clone()
    sets, inverse = np.unique(likely.numpy(), axis=0, return_inverse=True)
    groups = np.stack([inverse.reshape(-1), codes.numpy()], axis=1)
    for number, code in np.unique(groups, axis=0):
        rows = np.flatnonzero((groups == (number, code)).all(axis=1))
        classes = np.flatnonzero(sets[number])
        purpose = draw_purpose(column, eps, likely.shape[1], int(code), draws)
        key = derive(
            secret, b"cutlayer randomized response with a prior", *purpose, np.packbits(sets[number]).tobytes()
        )
        words = encrypt_blocks(key, digests.numpy()[rows]).view("<u8")
        out[torch.from_numpy(rows)] = torch.from_numpy(_draw(int(code), classes, words, eps))
    return out


def _draw(
    code: int, classes: npt.NDArray[np.int64], words: npt.NDArray[np.uint64], eps: float
) -> npt.NDArray[np.int64]:
    """Drawn codes of rows that share their label and their likely classes, int64 (n,)."""
    others = classes[classes != code]
    if len(others) == len(classes):
        return classes[(words[:, 1] % np.uint64(len(classes))).astype(np.int64)]
    drawn = np.full(len(words), code)
    if len(others):
        flips = words[:, 0] < np.uint64(flip_threshold(eps, len(classes)))
        drawn[flips] = others[(words[flips, 1] % np.uint64(len(others))).astype(np.int64)]
    return drawn
