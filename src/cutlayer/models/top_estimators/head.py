"""The average of fitted models, as logits of the true labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from cutlayer.models.top_estimators.choice import logits_of
from cutlayer.models.top_estimators.rows import FitRows, FittedPart, Float64Buffer
from cutlayer.problem.task import Task

_MIN_SHARE = 0.01
_TINY = 1e-300


class Head(FittedPart):
    """The weighted mean of the predictions of models that read the same columns.

    Of labels that were drawn with known probabilities the models predict the drawn label. The probabilities of the true
    one are those times the inverse of the transition. Where that is negative, or below a hundredth of the predicted
    probability, it is a hundredth of that, so that no two rows come to have equal logits.

    Attributes:
        weights: Weight of each model, float64 (parts,), of sum 1.
        inverse: Inverse of the transition, float64 (classes, classes); empty for true labels.

    Reference: Patrini et al. 2017 (arXiv 1609.03683), section 4.1, for the inverse; the floor is this project's.
    """

    kind = "head"

    weights: Float64Buffer
    inverse: Float64Buffer

    def __init__(self, parts: Iterable[FittedPart]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    @classmethod
    def of(cls, parts: Iterable[FittedPart], weights: Iterable[float], transition: Tensor | None) -> Head:
        """The average of fitted models, by their weights, with the transition of their labels."""
        made = cls(parts)
        made.hold(weights=torch.tensor(list(weights), dtype=torch.float64))
        if transition is not None:
            # Labels of eps 0 have a transition without an inverse; the pseudo-inverse then says nothing of any row.
            made.hold(inverse=torch.linalg.pinv(transition.double().cpu()))
        return made

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        return self.mixed([part(codes, numbers) for part in self.parts])

    def mixed(self, predictions: Sequence[Tensor]) -> Tensor:
        """The average of the predictions of the models, in their order, each as of `forward`."""
        if predictions[0].shape[1] == 1:
            return torch.stack([weight * each for weight, each in zip(self.weights, predictions, strict=True)]).sum(0)
        if len(predictions) == 1 and not self.inverse.shape[0]:
            return predictions[0]
        shares = torch.stack([weight * each.exp() for weight, each in zip(self.weights, predictions, strict=True)]).sum(
            0
        )
        if self.inverse.shape[0]:
            shares = torch.maximum(shares @ self.inverse, _MIN_SHARE * shares)
            shares = shares / shares.sum(1, keepdim=True)
        return shares.clamp_min(_TINY).log()

    def logits(self, rows: FitRows, task: Task) -> Tensor:
        """Logits of rows, float64 (n, outputs)."""
        return logits_of(torch.from_numpy(self.predicted(rows)), task)
