"""The spectral attack: the direction in which a batch varies most separates its classes."""

from __future__ import annotations

from torch import Tensor

from cutlayer.attacks.base import Attack, Guess, PassiveView, Scores, Target, step_by_step
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.kernels.clusters import upper_of_two
from cutlayer.kernels.spectral import project

BALANCED = 0.005
"""Within this distance of 0.5 the size of a cluster says nothing about its class."""

_ROUNDING = 1e-9


class Spectral(Attack):
    """Score a row by its projection on the batch's top singular direction, turned so that positives are higher.

    The batch is centred, v is its top right singular vector, s_i = <x_i - mean, v>. Optimal 1-D 2-means of s gives two
    clusters. The one whose size fits the known positive share is called positive; within 0.5 +- 0.005 it is the one of
    larger mean |s|. The score is s with the sign that puts the positive cluster higher. |s| alone, which the paper's
    text names too, is kept as `absolute`.

    Reference: Sun et al., Label leakage and protection from forward embedding in vertical federated learning
    (arXiv 2203.01451), section 3.
    """

    name = "spectral"
    reference = "Sun et al. 2022 (arXiv 2203.01451), section 3"
    reads = (Target.GRADIENT, Target.EMBEDDING, Target.LAYER)
    needs = frozenset({Need.POSITIVE_SHARE})

    def run(self, view: PassiveView, target: Target, knowledge: Knowledge, layer: str) -> Scores:
        """Score each sampled step on its own."""
        return step_by_step(view, target, layer, lambda matrix, _: guess(matrix, knowledge.share))


def guess(x: Tensor, positive_share: float) -> Guess:
    """Oriented projections, hard labels and absolute projections of one batch.

    Args:
        x: float (n, d).
        positive_share: in (0, 1).
    """
    s = project(x)
    upper = upper_of_two(s)
    positive_is_upper = _upper_fits(s, upper, positive_share)
    return Guess(
        values=s if positive_is_upper else -s,
        hard=upper if positive_is_upper else ~upper,
        also={"absolute": s.abs()},
    )


def _upper_fits(s: Tensor, upper: Tensor, positive_share: float) -> bool:
    """Whether the upper cluster is the positive one."""
    if not bool(upper.any()):
        return True
    if abs(positive_share - 0.5) <= BALANCED + _ROUNDING:
        sizes = s.abs()
        return float(sizes[upper].mean()) >= float(sizes[~upper].mean())
    share = float(upper.double().mean())
    return abs(share - positive_share) <= abs(1 - share - positive_share)
