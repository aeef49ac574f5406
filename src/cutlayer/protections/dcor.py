"""Distance correlation: teach the passive bottom models embeddings that depend less on the labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.config import FrozenModel
from cutlayer.kernels.distance_correlation import class_distance_correlation_sqr, distance_correlation_sqr
from cutlayer.protections.base import ActiveView, Asset, Context, Protection, Side

_CHECK_ROWS = 1024
_RANGE = "the authors use 0.002 to 0.05"


class DCorConfig(FrozenModel):
    """How much the term weighs, and from when.

    Attributes:
        alpha: weight of the term beside the mean task loss; 0.002 to 0.05 in the paper, where more hides more.
        floor: added to dCor inside the logarithm, whose pull is so never steeper than alpha / floor. 0 is the paper's
            form, which is steepest where the correlation is still that of noise: on a small data set it keeps the
            model from learning at all.
        estimate: `biased` as in the paper; `unbiased` is about 0, and often below, where nothing is left to hide.
        start: epochs of training before the term begins; 0 is the paper's form. What leaks before then has leaked.
        ramp: epochs over which the weight then grows from 0 to alpha; 0 is the paper's form. Fractions are meant.
    """

    alpha: float = Field(gt=0, strict=True, description=_RANGE)
    floor: float = Field(default=0.05, ge=0, strict=True, description="0 is the paper's form")
    estimate: Literal["biased", "unbiased"] = "biased"
    start: float = Field(default=0.0, ge=0, strict=True, description="0 is the paper's form")
    ramp: float = Field(default=0.0, ge=0, strict=True, description="0 is the paper's form")


class DCor(Protection[DCorConfig]):
    """Add the gradient of alpha log(floor + dCor(E_k, Y)) to what each passive party k is sent.

    E_k is the batch of embeddings as received, Y the protected labels (one-hot classes, or numbers in a
    regression), dCor = dCov2(E, Y) / sqrt(dCov2(E, E) dCov2(Y, Y)): the squared distance correlation, without a further
    root. The task loss keeps its weight of 1 and the top model learns from it alone. Where the estimate is not above 0
    (unbiased, constant embeddings, a batch of one class) there is no dependence to take away and nothing is added.

    The paper's form is `floor: 0`; with it the term of a model that knows nothing yet is the steepest.

    ByteDance's fedlearner takes the square root of this dCor and no logarithm, and its labels as one number each.
    With the logarithm of the paper a root would only halve alpha.

    Reference: Sun et al., Label leakage and protection from forward embedding in vertical federated learning (arXiv
    2203.01451), section 4.

    Guarantee: none, empirical. It is a penalty, paid against the task, on a dependence estimated from each batch.
    """

    name = "dcor"
    config = DCorConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Sun et al. 2022 (arXiv 2203.01451), section 4"
    rank = 30

    def __init__(self, settings: DCorConfig) -> None:
        super().__init__(settings)
        self._terms = 0
        self._flat = 0
        self._waited = 0
        self._sums = {"used": 0.0, "unbiased": 0.0}

    def setup(self, context: Context) -> None:
        """Learn the number of classes and the steps of an epoch."""
        super().setup(context)
        self._classes = max(2, len(context.task.classes)) if context.task is not None else 2
        self._regression = context.task is not None and context.task.kind == "regression"
        self._steps = max(1, math.ceil(len(context.training) / context.batch_size))

    def cut_gradient(self, view: ActiveView) -> tuple[float, Mapping[str, Tensor]]:
        """The term's gradient for each passive party's embeddings."""
        weight = self._weight(view.step)
        if not weight:
            self._waited += 1
            return 1.0, {}
        return 1.0, {party: self._term(e, view.labels, weight) for party, e in view.embeddings.items()}

    def _weight(self, step: int) -> float:
        """Alpha at this step of the run."""
        settings, elapsed = self.settings, step - self.settings.start * self._steps
        if elapsed < 0:
            return 0.0
        ramp = settings.ramp * self._steps
        return settings.alpha * min(1.0, (elapsed + 1) / ramp) if ramp else settings.alpha

    def _term(self, embedding: Tensor, labels: Tensor, weight: float) -> Tensor:
        """Gradient (n, width) of weight log(floor + dCor)."""
        e = embedding.detach().requires_grad_()
        with torch.enable_grad():
            estimate = self._dcor(e, labels, self.settings.estimate == "unbiased")
        value = float(estimate.detach())
        self._terms += 1
        self._sums["used"] += value
        head = slice(0, _CHECK_ROWS)
        self._sums["unbiased"] += float(self._dcor(e.detach()[head], labels[head], True))
        if value <= 0:
            self._flat += 1
            return torch.zeros_like(e)
        (gradient,) = torch.autograd.grad(estimate, e, estimate.new_tensor(weight / (self.settings.floor + value)))
        return gradient

    def _dcor(self, e: Tensor, labels: Tensor, unbiased: bool) -> Tensor:
        if self._regression:
            return distance_correlation_sqr(e, labels, unbiased)
        return class_distance_correlation_sqr(e, labels, self._classes, unbiased)

    def event(self, plan: ReleasePlan) -> Event:
        """A penalty bounds nothing."""
        return NoFormalGuarantee("a penalty on the estimated dependence of embeddings on labels bounds nothing")

    def metrics(self) -> Mapping[str, float]:
        """Terms added, those without dependence, steps before `start`, and the mean dCor.

        `mean_dcor` is of the estimate in use; `mean_dcor_unbiased` of the first 1,024 rows of each batch.
        """
        terms = max(self._terms, 1)
        return {
            "terms": self._terms,
            "terms_without_dependence": self._flat,
            "steps_before_start": self._waited,
            "mean_dcor": self._sums["used"] / terms,
            "mean_dcor_unbiased": self._sums["unbiased"] / terms,
        }

    def state_dict(self) -> dict[str, Any]:
        """The counts so far."""
        return {"terms": self._terms, "flat": self._flat, "waited": self._waited, "sums": dict(self._sums)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._terms, self._flat = int(state["terms"]), int(state["flat"])
        self._waited = int(state["waited"])
        self._sums = {name: float(value) for name, value in state["sums"].items()}
