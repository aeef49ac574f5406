"""Regression labels: the residual of every epoch is read off the gradients, and the earliest holds the label."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.feature_prior import predict_by_ridge
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores, unit_variance
from cutlayer.attacks.label.joint_spectral import standard_projections
from cutlayer.kernels.statistics.sign_alignment import align_signs
from cutlayer.lazy import Tensor, torch


class RegressionLabels(HistoryAttack):
    """Score a row by its residual along the top singular direction of each batch, with one sign for the run.

    With a squared loss the gradient of a row is 2 (p - y) w(e): in the direction in which a batch varies most it has
    the residual. While the model knows nothing, p is constant and the residual *is* the label: the first epoch reveals
    most. Variants: the mean over the epochs, and the first epoch plus what the party's own columns predict from it.
    Signs of batches are aligned by the rows that return; with one epoch each batch keeps its own.

    Reference: Xie et al., Label inference attack against split learning under regression setting (arXiv 2301.07284),
    section 4; they optimise the labels to match the gradients, of which the direction is the solution for a linear top.
    """

    name = "regression_labels"
    reference = "Xie et al. 2023 (arXiv 2301.07284), section 4"
    tasks = frozenset({"regression"})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows."""
        gradients = view.gradients
        by_epoch = align_signs(_projections(view), gradients.blocks)
        first = by_epoch[:, 0]
        also = {"mean": by_epoch.sum(dim=1)}
        if view.columns is not None:
            also["columns"] = unit_variance(first) + unit_variance(
                predict_by_ridge(view.columns, first, gradients.seen)
            )
        return run_scores(view, first, gradients.seen, **also)


def _projections(view: HistoryView) -> Tensor:
    """Standardised coordinates along the top direction of each block, float64 (n, epochs)."""
    scores = torch.zeros(view.gradients.present.shape, dtype=torch.float64)
    for epoch, parts in enumerate(view.gradients.blocks):
        if parts:
            along = torch.cat(standard_projections(view, epoch, parts, whole=False))
            scores[torch.cat(list(parts)), epoch] = along
    return scores
