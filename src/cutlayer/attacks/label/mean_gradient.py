"""The mean-gradient attack: noise that is drawn anew in every epoch averages out, what the label adds does not."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.few_labels import Blocks, embedding_inputs, fit_and_score
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores, seen_labels
from cutlayer.errors import NotApplicable
from cutlayer.kernels.statistics.repeated_mean import shrunk_mean

_LIMIT = 10.0
"""Standard deviation of the axis that varies most; more would only slow the fit down."""


class MeanGradient(HistoryAttack):
    """Score a row by a linear model of the mean of its gradients over all epochs, fitted on rows of known labels.

    Each block of consecutive steps is centred and scaled. The differences of a row's gradients between epochs give the
    covariance of the noise; the means are whitened by it, and each principal axis is shrunk by its share of noise, so
    that axes of noise alone vanish before the model is fitted. Every epoch and every column is read: with several
    classes the label is in several directions, and noise may be wider than the signal of a single epoch.

    The model is that of `few_labels`. The variant `embedding` adds the party's own embedding, and `columns` its own
    encoded columns too. Known rows are not scored.

    Reference: none; written against noise on gradients in tasks of several classes and regressions. The filter is
    Wiener's; the few labels are those of Fu et al. (USENIX Security 2022).
    """

    name = "mean_gradient"
    reference = "this project; against noise that is drawn anew in every epoch"
    needs = frozenset({Need.FEW_LABELS})
    tasks = frozenset({"binary", "multiclass", "regression"})
    costly = True

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: Fewer than two epochs have gradients, they do not vary, or no known row has one.
        """
        inputs = view.once("mean_gradient", lambda: _inputs(view))
        seen = view.gradients.seen
        known, labels = seen_labels(view, knowledge, seen)
        scores = {name: fit_and_score(x, known, labels, view.task) for name, x in inputs.items()}
        return run_scores(view, scores.pop(""), seen & ~knowledge.known_among(view.rows), **scores)


def _inputs(view: HistoryView) -> dict[str, Blocks]:
    """Inputs of the model by variant.

    Raises:
        NotApplicable: Fewer than two epochs have gradients, or these do not vary.
    """
    gradients = view.gradients
    if len(gradients.matrices) < 2:
        raise NotApplicable.expected("gradients of two epochs or more", f"{len(gradients.matrices)}")
    means = shrunk_mean(gradients.matrices, gradients.present)
    varying = means[:, means.any(dim=0)]
    if not varying.shape[1]:
        raise NotApplicable.expected("gradients whose means over the epochs vary by more than their noise", "none")
    largest = float(varying.std(dim=0, correction=0).max())
    inputs: dict[str, Blocks] = {"": ((varying * min(1.0, _LIMIT / largest)).numpy(),)}
    if (embedding := embedding_inputs(view)) is not None:
        inputs["embedding"] = (*inputs[""], embedding)
        if view.columns is not None:
            inputs["columns"] = (*inputs["embedding"], view.columns)
    return inputs
