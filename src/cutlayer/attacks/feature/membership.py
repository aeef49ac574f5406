"""Membership inference: a classifier learns from shadow models to recognise training rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.attacks.feature.model_outputs import class_logits, regression_errors
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.probe import fit_probe, score_by_probe
from cutlayer.lazy import Tensor, functional, torch

if TYPE_CHECKING:
    from cutlayer.problem.task import Task


SHADOWS = 4
"""Number of shadow models."""
MAX_SHADOW_ROWS = 2500
"""Training rows of each shadow model, and as many other rows, that the classifier learns from."""
MAX_SPLIT_CLASSES = 10
"""Maximum number of classes for which each class has separate coefficients."""


class Membership(FeatureAttack[Scores]):
    """Score a row by how much it looks like a training row: the higher, the likelier it was one.

    Four shadow models of the job's own kind are trained, each on a random half of the attacker's rows. What the active
    party would see of a row, in and out of the half, is turned into a few numbers that mean the same under any model:
    the loss with the row's label, the logits from the largest down, the label's own, the norm of the embedding. A
    logistic regression on them, with coefficients for every class (one attack model per class in the paper), separates
    members from non-members, and is then applied to what was seen under the real model.

    The active party itself chose the training rows, so it learns nothing by this. The value says how much its view of a
    row would reveal to somebody who did not: a later reader of its embeddings and outputs.

    Reference: Shokri et al., Membership inference attacks against machine learning models (IEEE S&P 2017, arXiv
    1610.05820), section V; adapted to the cut: bottom and top model are trained together as one shadow.
    """

    name = "membership"
    reference = "Shokri et al. 2017 (arXiv 1610.05820), section V"
    needs = frozenset({Need.SHADOW_ROWS})

    def run(self, view: FeatureView, knowledge: Knowledge) -> Scores:
        """Train the shadows, fit the classifier on them, and apply it to the attacked rows."""
        shadows = knowledge.shadows
        inputs, membership = [], []
        for number in range(SHADOWS):
            order = shadows.rows[torch.randperm(len(shadows.rows))]
            middle = len(order) // 2
            view_of = shadows.train(order[:middle].sort().values, number)
            for rows, member in ((order[:middle][:MAX_SHADOW_ROWS], 1), (order[middle:][:MAX_SHADOW_ROWS], 0)):
                inputs.append(row_signals(view_of(rows), shadows.task))
                membership.append(torch.full((len(rows),), member))
        model = fit_probe(torch.cat(inputs).numpy(), torch.cat(membership).numpy())
        guess = score_by_probe(model, row_signals(view, shadows.task).numpy(), 1)
        return Scores.of_rows(view.rows, guess.values, hard=guess.hard, scale=guess.sizes()).with_ties()


def row_signals(view: FeatureView, task: Task) -> Tensor:
    """Signals of each row, in numbers that do not depend on a model's own coordinates, float64 (n, signals).

    Args:
        view: A view with logits and labels.
        task: Task of the model.
    """
    norm = torch.linalg.vector_norm(view.embeddings.double(), dim=1, keepdim=True)
    if task.kind == "regression":
        errors = regression_errors(view, task)[:, None]
        return torch.cat([errors, errors.abs(), errors.square(), (errors.abs() + 1e-12).log(), norm], dim=1)
    scores, codes = class_logits(view)
    loss = functional.cross_entropy(scores, codes, reduction="none")[:, None]
    own = scores.gather(1, codes[:, None])
    margin = own - scores.scatter(1, codes[:, None], -torch.inf).amax(dim=1, keepdim=True)
    top = scores.log_softmax(dim=1).sort(dim=1, descending=True).values[:, :3]
    signals = torch.cat([loss, (loss + 1e-12).log(), loss.neg().exp(), margin, top, norm], dim=1)
    if scores.shape[1] > MAX_SPLIT_CLASSES:
        return signals
    hot = functional.one_hot(codes, scores.shape[1]).double()
    return torch.cat([signals, *(signals * hot[:, [code]] for code in range(scores.shape[1])), hot], dim=1)
