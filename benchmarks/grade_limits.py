"""What a limit on the share of an attribute's entropy lets through, and which honest grades the default one refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize

from benchmarks.graded_rows import Floats
from benchmarks.grades import EPSILONS as HONEST
from cutlayer.kernels.noise.score_bands import bands_for, information
from cutlayer.parties.carried_limits import default_limit

VALUES = 12
"""Values of a draw over which the largest AUC is searched for."""


def auc_of(share: float, rows: float) -> float:
    """AUC between normal scores that carry a share of an attribute's entropy, which a share of the rows has."""
    prior, scores = np.array([1 - rows, rows]), np.linspace(-8, 16, 4001)
    entropy = -float(prior @ np.log2(prior))

    def beyond(distance: float) -> float:
        densities = np.exp(-np.square(scores[:, None] - np.array([0.0, distance])) / 2) * prior
        return information(densities) / entropy - share

    return NormalDist().cdf(brentq(beyond, 1e-6, 8) / math.sqrt(2))


def most_auc_of(share: float, rows: float, seed: int = 0) -> float:
    """The largest AUC that a search finds over all draws of twelve values that carry no more than that share."""
    prior, draw = np.array([1 - rows, rows]), np.random.default_rng(seed)
    entropy = -float(prior @ np.log2(prior))

    def joint(weights: Floats) -> Floats:
        chances = np.exp(weights.reshape(VALUES, 2))
        both: Floats = chances / chances.sum(axis=0) * prior
        return both

    def auc(weights: Floats) -> float:
        other, has = (joint(weights) / prior).T
        return float(has @ (np.cumsum(other) - other / 2))

    def left(weights: Floats) -> float:
        return share - information(joint(weights)) / entropy

    slope = np.linspace(-2, 2, VALUES)[:, None] * np.array([-0.5, 0.5])
    starts = [slope + draw.normal(scale=0.3, size=slope.shape) for _ in range(3)]
    within = {"type": "ineq", "fun": left}
    found = [minimize(lambda w: -auc(w), each.ravel(), method="SLSQP", constraints=within) for each in starts]
    return max(auc(each.x) for each in found if left(each.x) > -1e-6)


def of_limits() -> Iterator[str]:
    """What a limit lets through, by the grade alone, between normal scores; and by the draw that a search finds."""
    shares = (0.02, 0.05, 0.1, 0.15, 0.3)
    yield "| share of the rows | " + " | ".join(f"{share:g}" for share in shares) + " |"
    yield "|---" * (1 + len(shares)) + "|"
    for rows in (0.5, 0.1):
        yield (
            f"| {rows:g} | "
            + " | ".join(f"{auc_of(share, rows):.2f}, {most_auc_of(share, rows):.2f}" for share in shares)
            + " |"
        )


def of_honest(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How many honest runs the default limit refuses, and those nearest to it, of each epsilon."""
    yield "| column epsilon | default limit | runs refused | nearest to the limit |"
    yield "|---|---|---|---|"
    for epsilon in HONEST:
        key = f"{epsilon:g}"
        found = sorted(((line[key]["carried"] or 0.0, line) for line in lines), key=lambda each: -each[0])
        limit = default_limit(epsilon, bands_for(epsilon, 16))
        names = (f"{line['data']}, {line[key]['attribute']}: {share:.2f}" for share, line in found[:3])
        refused = sum(share > limit for share, _ in found)
        yield f"| {key} | {limit:.2f} | {refused} of {len(found)} | {'; '.join(names)} |"
