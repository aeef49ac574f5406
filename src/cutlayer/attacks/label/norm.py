"""The norm attack: a rare class's rows are the ones the model still gets wrong, and their gradients are longer."""

from __future__ import annotations

import numpy as np

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, Target, step_by_step
from cutlayer.kernels.ties import merge_ties
from cutlayer.lazy import Tensor, torch


class Norm(LabelAttack):
    """Score a row by the norm of its gradient.

    The score is |g_i|, negated where the known positive share is above 0.5, since then the negatives are the rare
    class (the paper assumes rare positives). The hard labels call the known share of each batch positive, from the
    top by score; rows that tie with the last of them are positive too.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504), section 3.
    """

    name = "norm"
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 3"
    reads = (Target.GRADIENT,)
    needs = frozenset({Need.POSITIVE_SHARE})

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Score each sampled step on its own."""
        return step_by_step(view, lambda matrix, _: guess(matrix, knowledge.share))


def guess(gradients: Tensor, positive_share: float) -> Guess:
    """Norms and hard labels of one batch.

    Args:
        gradients: Cut gradients, float (n, d), n of 1 or more.
        positive_share: Share of positive rows, in (0, 1).
    """
    # Merged before the threshold too: after clipping all norms are equal up to rounding.
    norms = merge_ties(torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64))
    scores = -norms if positive_share > 0.5 else norms
    positives = min(max(round(positive_share * len(scores)), 1), len(scores))
    rank = len(scores) - positives
    last = float(np.partition(scores.numpy(), rank)[rank])
    return Guess(scores, hard=scores >= last, scale=0.0)
