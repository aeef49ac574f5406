"""The direction attack: gradients of a class have similar directions."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, step_by_step
from cutlayer.lazy import Tensor, torch


class Direction(LabelAttack):
    """Score a row by the cosine between its gradient and that of one known positive of the same batch.

    Rows with a known label are not scored. A row of zero gradient has no direction and scores 0. A batch without a
    known positive of non-zero gradient is left out.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504), section 3.
    """

    name = "direction"
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 3"
    needs = frozenset({Need.KNOWN_POSITIVE})

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Score each sampled step that holds a known positive."""

        def of_step(gradients: Tensor, rows: Tensor) -> Guess | None:
            known = next((index for index in knowledge.positives_among(rows) if bool(gradients[index].any())), None)
            return None if known is None else guess(gradients, known, knowledge.known_among(rows))

        return step_by_step(view, of_step)


def guess(gradients: Tensor, known: int, unscored: Tensor) -> Guess:
    """Cosines of one batch.

    Args:
        gradients: Cut gradients, float (n, d).
        known: Index of the known positive, whose gradient is not zero.
        unscored: Rows that get NaN, bool (n,).
    """
    # In float64 products of two gradients near 1e-30 do not vanish, and the cosines of collinear gradients are +-1 to
    # 1e-14 with any processor's kernels.
    exact = gradients.double()
    norms = torch.linalg.vector_norm(exact, dim=1)
    cosines = exact @ (exact[known] / norms[known]) / norms.masked_fill(norms == 0, 1.0)
    return Guess(cosines.masked_fill(unscored, float("nan")), scale=1.0)
