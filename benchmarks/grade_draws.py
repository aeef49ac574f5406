"""What a drawn grade keeps of the information of a score, beside the best of all draws at the same epsilon."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linprog

from cutlayer.kernels.noise.score_bands import FINE_BANDS, Floats, bands_for, draw_channel, information, merge_bands

EPSILONS = (8.0, 6.0, 4.0, 3.0, 2.0, 1.0)
SHAPES = ((0.0, 1.0), (-1.5, 1.5), (-2.5, 2.0), (-1.2, 0.7))
"""Mean and standard deviation of the log odds of a normal score."""


def kept(joint: Floats, epsilon: float) -> float:
    """Share of the information of a score's fine bands, (fine, 2), that a drawn grade keeps."""
    bands = bands_for(epsilon, 16)
    of_fine = merge_bands(joint, epsilon, bands)
    table = np.stack([joint[of_fine == band].sum(axis=0) for band in range(bands)])
    return information(draw_channel(epsilon, bands).T @ table) / information(joint)


def bound(joint: Floats, epsilon: float) -> float:
    """The same of the best draw whose values are each e^epsilon times as likely in one interval of the score.

    Reference: Kairouz, Oh and Viswanath 2016 (arXiv 1407.1338), theorem 4: a linear program over such patterns.
    """
    fine = len(joint)
    inside = [(start, end) for start in range(fine) for end in range(start + 1, fine + 1)]
    at = np.arange(fine)
    patterns = np.array([np.where((at >= start) & (at < end), math.exp(epsilon), 1.0) for start, end in inside])
    shares = joint / joint.sum()
    drawn = patterns @ shares
    independent = drawn.sum(axis=1, keepdims=True) * shares.sum(axis=0)
    said = (drawn * np.log2(drawn / independent)).sum(axis=1)
    return float(-linprog(-said, A_eq=patterns.T, b_eq=np.ones(fine)).fun / information(joint))


def page() -> str:
    """A table of both, as Markdown: the least and the most over the shapes."""
    out = ["| column epsilon | grades | kept | the best of all draws |", "|---|---|---|---|"]
    for epsilon in EPSILONS:
        found = []
        for mean, deviation in SHAPES:
            odds = np.sort(np.random.default_rng(0).normal(mean, deviation, 2_000 * FINE_BANDS)).reshape(FINE_BANDS, -1)
            share = 1 / (1 + np.exp(-odds))
            joint = np.stack([(1 - share).sum(axis=1), share.sum(axis=1)], axis=1)
            found.append((kept(joint, epsilon), bound(joint, epsilon)))
        lows, highs = np.min(found, axis=0), np.max(found, axis=0)
        cells = [f"{low:.3f} to {high:.3f}" for low, high in zip(lows, highs, strict=True)]
        out.append(f"| {epsilon:g} | {bands_for(epsilon, 16)} | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"
