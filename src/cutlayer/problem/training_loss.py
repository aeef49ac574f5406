"""The loss that a model trains on: that of the task, for labels that were drawn and rows that weigh differently."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutlayer.kernels.fits.forward_correction import forward_corrected_loss
from cutlayer.lazy import Tensor, torch
from cutlayer.problem.task import Task


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """Mean loss of a batch, of its training labels and weights.

    Attributes:
        task: Task, whose predictions and metrics are of the true labels.
        transition: Probability that a label of a class (row) was drawn as another (column), float64 (classes, classes),
            where the training labels are randomised; `None` where they are true.
        class_weights: Weight of each class, float32 (classes,), of mean 1 over the training rows; `None` where all
            weigh the same.
        row_weights: Weights of the rows of one batch, float32 (n,); `None` where all weigh the same.
    """

    task: Task
    transition: Tensor | None = None
    class_weights: Tensor | None = None
    row_weights: Tensor | None = None

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean loss over the batch; of randomised labels, their negative log-likelihood (`forward_corrected_loss`).

        Args:
            logits: float (n, outputs).
            labels: int64 (n,) class codes, or float32 (n,) targets for regression.
        """
        if self.transition is not None:
            return forward_corrected_loss(self.task.log_probabilities(logits), labels, self.transition)
        if self.class_weights is None and self.row_weights is None:
            return self.task.loss(logits, labels)
        if self.task.kind == "regression":
            losses = self.task.row_losses(logits, labels)
        else:
            losses = -self.task.log_probabilities(logits).gather(1, labels[:, None]).squeeze(1)
        if self.class_weights is not None:
            losses = self.class_weights[labels] * losses
        return (losses if self.row_weights is None else self.row_weights * losses).mean()

    def balanced(self, training: Tensor) -> TrainingLoss:
        """The loss in which every class has the same part.

        Args:
            training: Training labels, int64 (n,). A class without a row has weight 0.
        """
        counts = torch.bincount(training, minlength=len(self.task.classes)).float()
        weights = torch.where(counts > 0, len(training) / (counts.clamp_min(1) * (counts > 0).sum()), 0.0)
        return replace(self, class_weights=weights)

    def weighted(self, class_weight: str | None, training: Tensor) -> TrainingLoss:
        """The loss by the job's `train.class_weight`; `training` as in `balanced`."""
        return self.balanced(training) if class_weight == "balanced" else self

    def to(self, device: torch.device) -> TrainingLoss:
        """The loss with its tensors on a device, float64 included."""
        tensors = (self.transition, self.class_weights, self.row_weights)
        return TrainingLoss(self.task, *(None if tensor is None else tensor.to(device) for tensor in tensors))

    def for_rows(self, rows: Tensor) -> TrainingLoss:
        """The loss of some rows of the batch, by their numbers, int64 (m,)."""
        return self if self.row_weights is None else replace(self, row_weights=self.row_weights[rows])
