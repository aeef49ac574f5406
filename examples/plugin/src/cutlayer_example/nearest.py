"""The nearest attack: gradients of one class lie together."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, Target, step_by_step
from cutlayer.lazy import Tensor, torch


class Nearest(LabelAttack):
    """Score a row by how near its gradient lies to that of one known positive of the same batch.

    Rows with a known label are not scored. A batch without a known positive is left out.

    Reference: Li, Sun et al. 2021 (arXiv 2102.08504), section 3, with a distance in place of the cosine; an example.
    """

    name = "nearest"
    reference = "after Li, Sun et al. 2021 (arXiv 2102.08504), section 3"
    reads = (Target.GRADIENT,)
    needs = frozenset({Need.KNOWN_POSITIVE})

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Score each sampled step that holds a known positive."""

        def of_step(gradients: Tensor, rows: Tensor) -> Guess | None:
            known = knowledge.positives_among(rows)
            if not known:
                return None
            wide = gradients.double()  # squares of 1e-30 would vanish in float32
            scores = -torch.linalg.vector_norm(wide - wide[known[0]], dim=1)
            lengths = torch.linalg.vector_norm(wide, dim=1)
            return Guess(scores.masked_fill(knowledge.known_among(rows), float("nan")), scale=lengths)

        return step_by_step(view, of_step)
