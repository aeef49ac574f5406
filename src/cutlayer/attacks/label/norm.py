"""The norm attack: a rare class's rows are the ones the model still gets wrong, and their gradients are longer."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, all_at_once
from cutlayer.kernels.statistics.ties import merge_ties_each
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
    needs = frozenset({Need.POSITIVE_SHARE})

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Score each sampled step on its own."""
        return all_at_once(view, lambda matrices: guess(matrices, knowledge.share))


def guess(gradients: Tensor, positive_share: float) -> Guess:
    """Norms and hard labels of several batches, each on its own.

    Args:
        gradients: Cut gradients, float (b, n, d), n of 1 or more.
        positive_share: Share of positive rows, in (0, 1).
    """
    # Merged before the threshold too: after clipping all norms are equal up to rounding.
    norms = torch.linalg.vector_norm(gradients, dim=2, dtype=torch.float64)
    norms = merge_ties_each(norms, torch.zeros(norms.shape))
    scores = -norms if positive_share > 0.5 else norms
    rows = scores.shape[1]
    positives = min(max(round(positive_share * rows), 1), rows)
    last = scores.topk(positives, dim=1).values[:, -1:]
    return Guess(scores, hard=scores >= last, scale=0.0)
