"""The task: the kind of the labels, with its loss, predictions and metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cutlayer.config.job import TaskKind
from cutlayer.config.target import Target
from cutlayer.config.wording import did_you_mean
from cutlayer.errors import ConfigError, Diverged
from cutlayer.kernels.statistics.tweedie import log_link_loss
from cutlayer.lazy import Tensor, functional, torch
from cutlayer.problem.intervals import interval_bounds, margin_of
from cutlayer.problem.metrics.held_out_metrics import accuracy, log_loss, r2_and_mae
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.targets import (
    METRICS,
    NO_HAZARD,
    POWERS,
    Hazard,
    Terms,
    further_metrics,
    learned_targets,
    metric_terms,
    ranking_metrics,
    ranking_terms,
)
from cutlayer.storage.row_arrays import chunks_of, computed_rows
from cutlayer.storage.row_tensors import first_column, float64_rows, where_equal

if TYPE_CHECKING:
    from cutlayer.config import Job


BOUND_NAMES, IN_SET_PREFIX, SURVIVAL_PREFIX = ("low", "high"), "in_set_", "survival_"
"""Names of what a prediction has besides, and beginnings of such names."""


@dataclass(frozen=True)
class Task:
    """Loss, prediction and metrics of one kind of label.

    Attributes:
        kind: `binary`, `multiclass` or `regression`.
        classes: Names of the classes in the order of their codes; empty for regression.
        center: Mean of the training targets of a regression; the network learns (y - center) / scale.
        scale: Standard deviation of the training targets of a regression.
        positive: Code of the class that a binary task calls positive, 0 or 1. Only scores that people and programs
            read, and metrics of one class, are of it: codes, logits, losses and draws of labels do not depend on it.
        target: What the numbers of a regression are; all but plain values are learned on the log link.
        hazard: Cumulative hazard of the training rows, of times until an event.
        coverage: Share of the rows whose label lies in the interval, or set of classes, of its prediction; 0 without.
        margin: Margin of these, from rows that were not trained on; see `margin_of`.
    """

    kind: TaskKind
    classes: tuple[str, ...] = ()
    center: float = 0.0
    scale: float = 1.0
    positive: int = 1
    target: Target = "value"
    hazard: Hazard = NO_HAZARD
    coverage: float = 0.0
    margin: float = 0.0

    @classmethod
    def of(cls, job: Job, classes: tuple[str, ...] = ()) -> Task:
        """The task of a job, before anything of its training rows is known."""
        return cls(job.task, classes, target=job.target)

    @classmethod
    def fitted(cls, kind: TaskKind, classes: tuple[str, ...], training: Tensor, target: Target = "value") -> Task:
        """The task with its target scale taken from the training labels (n,)."""
        if kind != "regression":
            return cls(kind, classes)
        if target in POWERS:
            hazard = Hazard.of(training) if target == "survival" else NO_HAZARD
            means, weights = learned_targets(training, target, hazard)
            mean = float(np.average(means, weights=weights))
            return cls(kind, scale=mean or 1.0, target=target, hazard=hazard)
        targets = float64_rows(first_column(training))
        return cls(kind, classes, float(targets.mean()), float(targets.std(correction=0)) or 1.0, target=target)

    def with_positive(self, positive: str | None, owner: str) -> Task:
        """The task with a class of this name as the positive one.

        Args:
            positive: Name of the class; `None` for the greater of the two labels.
            owner: Name of the party that states it.

        Raises:
            ConfigError: The task is not binary, or has no such class.
        """
        if positive is None:
            return self
        where = f"parties.{owner}.positive"
        if self.kind != "binary":
            raise ConfigError.expected(f"{where} in a task: binary alone", self.kind, "leave it out")
        if positive not in self.classes:
            near = did_you_mean(positive, [*self.classes]).removeprefix("; ")
            raise ConfigError.expected(f"{where} as one of the labels {', '.join(self.classes)}", repr(positive), near)
        return replace(self, positive=self.classes.index(positive))

    @property
    def positive_class(self) -> str | None:
        """Name of the class that a binary task calls positive; `None` of other tasks."""
        return self.classes[self.positive] if self.kind == "binary" else None

    def positives(self, ones: int, rows: int) -> int:
        """Rows of the class that a binary task calls positive, where so many of them have code 1; else as given."""
        return rows - ones if self.positive == 0 else ones

    @property
    def outputs(self) -> int:
        """Width of the logits: 1 for binary and regression, else one per class."""
        return len(self.classes) if self.kind == "multiclass" else 1

    @property
    def metric(self) -> str:
        """Name of the metric that decides early stopping and the report's headline."""
        return {"binary": "auc", "multiclass": "accuracy", "regression": METRICS[self.target]}[self.kind]

    @property
    def power(self) -> float | None:
        """Power of the mean that the variance follows, of a target on the log link; else `None`."""
        return POWERS.get(self.target)

    def learned_targets(self, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """What a model learns of the labels of a regression, scaled, float64 (n,), and weights of the rows, if any."""
        values, weights = learned_targets(labels, self.target, self.hazard)
        return (values - self.center) / self.scale, weights

    def logarithms(self, logits: Tensor) -> Tensor:
        """Logarithms of what is predicted on the log link, (n,)."""
        return logits.squeeze(1) + math.log(self.scale)

    def metric_terms(self, logits: Tensor, labels: Tensor) -> Terms:
        """The headline metric of a regression as sums over rows."""
        if self.power is not None:
            return metric_terms(self.logarithms(logits), labels, self.target, self.hazard)
        if self.target == "ranking":
            return ranking_terms(logits[:, 0], labels)
        truth, predicted = float64_rows(labels).numpy(), self.predicted(logits)
        errors = computed_rows(len(truth), np.float64, lambda part: (predicted[part] - truth[part]) ** 2)
        mean = truth.mean()
        return Terms(errors, computed_rows(len(truth), np.float64, lambda part: (truth[part] - mean) ** 2))

    @property
    def chance(self) -> float:
        """The headline metric of a model that knows nothing but equal class shares."""
        number = 0.5 if self.target == "survival" else 0.0
        return {"binary": 0.5, "multiclass": 1 / max(len(self.classes), 1), "regression": number}[self.kind]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean loss over the batch, with true labels and equal weights; see `TrainingLoss`.

        Args:
            logits: float (n, outputs).
            labels: int64 (n,) class codes, or float32 (n,) targets for regression.
        """
        if self.kind == "multiclass":
            return functional.cross_entropy(logits, labels)
        if self.kind == "binary":
            return functional.binary_cross_entropy_with_logits(logits.squeeze(1), labels.to(logits.dtype))
        if self.power is not None:
            return self.row_losses(logits, labels).mean()
        return functional.mse_loss(logits.squeeze(1), (first_column(labels) - self.center) / self.scale)

    def row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss of each row of a regression, (n,); arguments as of `loss`."""
        if self.power is None:
            return (logits.squeeze(1) - (first_column(labels) - self.center) / self.scale).square()
        targets, weights = self.learned_targets(labels)
        losses = log_link_loss(logits.squeeze(1), targets.to(logits), self.power)
        return losses if weights is None else weights.to(logits) * losses

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Logarithms of the probabilities (n, classes)."""
        if self.kind == "multiclass":
            return functional.log_softmax(logits, dim=1)
        return functional.logsigmoid(torch.cat([-logits, logits], dim=1))

    def predict(self, logits: Tensor) -> Tensor:
        """Probabilities (n, classes), or values (n,) for regression."""
        if self.power is not None:
            return self.logarithms(logits).exp()
        if self.kind == "regression":
            return logits.squeeze(1) * self.scale + self.center
        if self.kind == "multiclass":
            return torch.softmax(logits, dim=1)
        positive = torch.sigmoid(logits.squeeze(1))
        return torch.stack([1 - positive, positive], dim=1)

    def predicted(self, logits: Tensor) -> npt.NDArray[np.float64]:
        """As `predict`, of the logits in float64, as a `row_array`."""

        def piece(part: slice) -> npt.NDArray[np.float64]:
            return self.predict(logits[part].double()).numpy()

        return computed_rows(len(logits), np.float64, piece, () if self.kind == "regression" else (len(self.classes),))

    def calibrated(self, coverage: float, logits: Tensor, labels: Tensor) -> Task:
        """The task with intervals, or sets of classes, of a coverage; see `margin_of`.

        Args:
            coverage: Share of new rows.
            logits: Logits of rows that the model has learned nothing of, (n, outputs).
            labels: Their true labels.
        """
        truth = first_column(labels)
        margin = margin_of(self.predicted(logits), truth.numpy(), coverage, self.power)
        return replace(self, coverage=coverage, margin=margin)

    def with_baseline(self, logits: Tensor, labels: Tensor) -> Task:
        """The task with the hazard that a model's relative hazards leave to the rows' times; the same if not survival.

        What the model learned from has all rows at one hazard. Rows of high hazard leave early, so that its hazard of
        the first times is too high beside theirs, and probabilities of survival are too low.

        Args:
            logits: Logits of training rows.
            labels: Their true labels.

        Reference: Breslow 1972 (discussion of Cox, JRSS B 34).
        """
        if self.target != "survival":
            return self
        return replace(self, hazard=Hazard.of(labels, self.predicted(logits)))

    @property
    def further_names(self) -> tuple[str, ...]:
        """Names of what a prediction has besides: bounds, classes in its set, or probabilities of survival."""
        if self.target == "survival":
            return tuple(f"{SURVIVAL_PREFIX}{time:g}" for time in self.hazard.quartiles)
        if not self.coverage:
            return ()
        return tuple(f"{IN_SET_PREFIX}{name}" for name in self.classes) if self.classes else BOUND_NAMES

    def further_values(self, predicted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What a prediction has besides, float64 (n, len(further_names)).

        Args:
            predicted: What `predict` returned, (n, classes) or (n,).
        """
        if self.target == "survival":
            return self.hazard.survival(predicted, np.array(self.hazard.quartiles))
        return interval_bounds(predicted, self.margin, self.power) if self.coverage else np.empty((len(predicted), 0))

    def evaluate(self, logits: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Metrics on held-out rows with their true labels, as scikit-learn computes them.

        `auc` is NaN where the rows hold one class only, `r2` where there is one row only.

        Raises:
            Diverged: A logit is not finite.
        """
        if not all(bool(logits[start:end].isfinite().all()) for start, end in chunks_of(len(logits))):
            raise Diverged("training diverged: the model's outputs are not finite; lower train.optimizer.lr")
        if self.power is not None:
            value, logarithms = self.metric_terms(logits, labels).value, self.logarithms(logits)
            return {self.metric: value, **further_metrics(logarithms, labels, self.target, self.hazard)}
        if self.target == "ranking":
            return {self.metric: self.metric_terms(logits, labels).value, **ranking_metrics(logits[:, 0], labels)}
        truth, predicted = labels.numpy(), self.predicted(logits)
        if self.kind == "regression":
            r2, mae = r2_and_mae(truth, predicted)
            return {"r2": r2 if len(truth) > 1 else float("nan"), "mae": mae}
        codes = range(1, 2) if len(self.classes) == 2 else range(len(self.classes))
        scores = {code: predicted[:, code] for code in codes}
        if self.kind == "binary":
            # Of equal logits a vectorised sigmoid gives probabilities that differ in the last bit, and so in rank.
            scores = {1: computed_rows(len(logits), np.float64, lambda part: logits[part, 0].double().numpy())}
        # By our own kernels: scikit-learn takes longer to look at a few rows than to compute.
        aucs = [roc_auc(ranked, where_equal(labels, code).numpy()) for code, ranked in scores.items()]
        return {
            "auc": float(np.average(aucs)),
            "log_loss": log_loss(truth, predicted),
            "accuracy": accuracy(truth, predicted),
        }
