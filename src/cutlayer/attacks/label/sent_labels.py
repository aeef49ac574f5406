"""The sent-labels attack: the best guess of a label from its draw, and from a model of all draws."""

from __future__ import annotations

import math
from typing import NamedTuple

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.history import HistoryAttack, HistoryView
from cutlayer.kernels.noise.randomized_response import transition_matrix
from cutlayer.lazy import Tensor, functional, torch

DRAW_WEIGHTS = (0.3, 0.1, 1.0, 3.0)
"""Weights of a draw beside the model's prediction where no rule gives one, of which the best is taken: of a number, and
of a label that was drawn for several rows, whose other labels are more or less like it."""
MIN_PROBABILITY = 1e-6
"""Least probability of a class that a model is believed."""


class SentLabels(NamedTuple):
    """Drawn labels of some rows as a partner received them, and its own model's scores.

    Attributes:
        rows: Row numbers, int64 (n,).
        labels: Drawn classes, int64 (n,).
        epsilon: Privacy of a draw.
        classes: Number of classes.
        scores: Log odds (n, 1) of two classes, or log probabilities (n, classes), by models that were fitted to the
            draws of other rows, float64.
        repeated: Whether a draw is of one of several rows that have an id in common; the others are guessed by it too.
    """

    rows: Tensor
    labels: Tensor
    epsilon: float
    classes: int
    scores: Tensor
    repeated: bool = False

    def among(self, rows: Tensor) -> SentLabels:
        """Of some of the rows alone, int64 (m,), ascending."""
        at = torch.isin(self.rows, rows)
        return self._replace(rows=self.rows[at], labels=self.labels[at], scores=self.scores[at])

    @property
    def evidence(self) -> Tensor:
        """What a draw says of its class: log odds of two classes, (n, 1), or log likelihoods, (n, classes)."""
        if self.classes == 2:
            return (2.0 * self.labels.double() - 1)[:, None] * self.epsilon
        return transition_matrix(self.epsilon, self.classes).T[self.labels].clamp_min(MIN_PROBABILITY).log()


class SentLabelsAttack(HistoryAttack):
    """Score a row by Bayes' rule: its drawn label, with the probability that the party's own model gives as the prior.

    The party was sent a drawn label of each training row, and has a model of its columns, fitted to the draws of all
    other rows. Of what it holds of a row nothing else depends on the label, so that no attack with the same model reads
    more. Of a number the draw and the prediction are added with several weights, and the best is taken; so are they of
    labels where one was drawn of all rows of an id. Variants: `drawn`, the drawn label alone, and `model`, the model
    alone.

    Reference: Wu et al. (arXiv 2202.12968), section 3, for a prediction as the prior of a drawn label.
    """

    name = "sent_labels"
    reference = "Wu et al. 2022 (arXiv 2202.12968), section 3"
    reads = (Target.LABELS,)
    tasks = frozenset({"binary", "multiclass", "regression"})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the rows that were sent a drawn label.

        Raises:
            NotApplicable: No labels were sent.
        """
        sent = view.sent_labels
        if view.task.kind == "regression":
            drawn, model = _standard(sent.labels.double()), _standard(sent.scores[:, 0])
            mixed = {f"{weight:g} of the draw": model + weight * drawn for weight in DRAW_WEIGHTS[1:]}
            also = {"drawn": drawn, "model": model, **mixed}
            return Scores.of_rows(sent.rows, model + DRAW_WEIGHTS[0] * drawn, also=also)
        drawn = sent.evidence
        model = sent.scores
        if sent.classes == 2:
            drawn, model = drawn[:, 0], model[:, 0]
        else:
            model = model.clamp_min(math.log(MIN_PROBABILITY))
        weights = [weight for weight in DRAW_WEIGHTS if weight < 1] if sent.repeated else []
        also = {f"{weight:g} of the draw": weight * drawn + model for weight in weights}
        both = drawn + model
        if sent.classes > 2:
            both, model = functional.softmax(both, 1), functional.softmax(model, 1)
            also = {name: functional.softmax(mixed, 1) for name, mixed in also.items()}
            drawn = functional.one_hot(sent.labels, sent.classes).double()
        also |= {"drawn": drawn, "model": model}
        return Scores.of_rows(
            sent.rows, both.contiguous(), also={name: each.contiguous() for name, each in also.items()}
        )


def _standard(values: Tensor) -> Tensor:
    return (values - values.mean()) / values.std(correction=0).clamp_min(MIN_PROBABILITY)
