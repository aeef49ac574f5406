"""The hint attack: a row whose gradient lies near that of a known positive is probably positive too."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, step_by_step
from cutlayer.kernels.statistics.ties import merge_ties
from cutlayer.lazy import Tensor, torch


class Hint(LabelAttack):
    """Score a row by how near its gradient is to that of the nearest known positive of the same batch.

    The score is minus the Euclidean distance to the nearest of the k known positives; `also` has the projection on the
    longest of their gradients, which the report names too. Rows with a known label are not scored (the published code
    scores the hints themselves, at distance 0, which raises its AUC). A batch without a known positive is left out (the
    published code counts it as 0.5).

    Reference: ByteDance's technical report of Li, Sun et al. (arXiv 2102.08504), the attack with k known positives;
    the score is the one its published code computes.
    """

    name = "hint"
    live = False
    thorough = True
    reference = "ByteDance technical report of Li, Sun et al. 2021 (arXiv 2102.08504), hint attack"
    needs = frozenset({Need.HINTS})

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Score each sampled step that holds a known positive."""

        def of_step(gradients: Tensor, rows: Tensor) -> Guess | None:
            known = knowledge.positives_among(rows)
            return guess(gradients, known, knowledge.known_among(rows)) if known else None

        return step_by_step(view, of_step)


def guess(gradients: Tensor, known: list[int], unscored: Tensor) -> Guess:
    """Distances and projections of one batch.

    Args:
        gradients: Cut gradients, float (n, d).
        known: Indices of the known positives, one or more.
        unscored: Rows that get NaN, bool (n,).
    """
    # In float64 squares of gradients near 1e-30 do not vanish, and equal distances come out equal.
    exact = gradients.double()
    hints = exact[known]
    nearest = torch.cdist(exact, hints, compute_mode="donot_use_mm_for_euclid_dist").amin(dim=1)
    lengths = merge_ties(torch.linalg.vector_norm(hints, dim=1))
    longest = int(lengths.argmax())
    along = exact @ (hints[longest] / lengths[longest].clamp_min(torch.finfo(lengths.dtype).tiny))
    return Guess(
        values=(-nearest).masked_fill(unscored, float("nan")),
        also={"projection": along},
        scale=torch.linalg.vector_norm(exact, dim=1) + lengths[longest],
    )
