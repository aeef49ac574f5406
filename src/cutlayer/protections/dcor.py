"""Distance correlation: train the passive bottom models to embeddings that depend less on the labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.kernels.dependence.whitening import whitened
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import Context, LabelProtection
from cutlayer.protections.contract.views import ActiveView

_CHECK_ROWS = 1024
# Share of the mean variance below which a direction counts for less. Small, since a bottom model that grows another
# direction moves the mean, and with it the label's direction below the share.
_VARIANCE_SHRINKAGE = 1e-4
_RANGE_TEXT = "the paper uses 0.002 to 0.05; with a floor of 0.05 less than 0.02 hides nothing"


class DCorConfig(FrozenModel):
    """Weight of the term, and when it starts.

    Attributes:
        alpha: Weight of the term relative to the mean task loss; 0.002 to 0.05 in the paper, where more hides more.
            With the default floor 0.01 and less hid nothing on Criteo, and 0.03 and more hid the label from the
            spectral attack (docs/results/forward-leakage.md).
        floor: Number added to dCor inside the logarithm, so that its slope is alpha / floor at most. 0 is the paper's
            form, whose slope is largest where the correlation is still that of noise. On a small data set it keeps the
            model from learning at all.
        estimate: `biased` as in the paper; `unbiased` is about 0, and often below, where nothing is left to hide.
        form: Space of the distances. `paper`: that of the embeddings as received. `whitened`: that in which the batch
            has the unit covariance, so that scaling or rotating an embedding changes nothing.
        start: Epochs of training before the term begins, fractions included; 0 is the paper's form. What leaks before
            then has leaked.
        ramp: Epochs over which the weight then grows from 0 to alpha, fractions included; 0 is the paper's form.
    """

    alpha: float = Field(gt=0, strict=True, description=_RANGE_TEXT)
    floor: float = Field(default=0.05, ge=0, strict=True, description="0 is the paper's form")
    estimate: Literal["biased", "unbiased"] = "biased"
    form: Literal["paper", "whitened"] = "paper"
    start: float = Field(default=0.0, ge=0, strict=True, description="0 is the paper's form")
    ramp: float = Field(default=0.0, ge=0, strict=True, description="0 is the paper's form")


class DCor(LabelProtection[DCorConfig]):
    """Add the gradient of alpha log(floor + dCor(E_k, Y)) to what each passive party k is sent.

    E_k is the batch of embeddings as received, Y the protected labels (one-hot classes, or numbers in a
    regression), dCor = dCov2(E, Y) / sqrt(dCov2(E, E) dCov2(Y, Y)): the squared distance correlation, without a further
    root. The task loss keeps its weight of 1 and the top model learns from it alone. Where the estimate is not above 0
    (unbiased, constant embeddings, a batch of one class) there is no dependence to take away and nothing is added.

    `mean_dcor` of its metrics is of the estimate in use; `mean_dcor_unbiased` of the first 1,024 rows of each batch.

    Euclidean distances are dominated by the directions of most variance, so the paper's form moves the label to a
    direction of less variance, where the top model, another singular direction or a probe of 20 known labels reads it.
    `form: whitened` is ours: dCor of rows in which the batch has the unit covariance, which no rescaling of directions
    changes. It needs batches of many more rows than the embedding has columns. Neither form acts on gradients, which
    reveal every label by themselves.

    ByteDance's fedlearner takes the square root of this dCor and no logarithm, and its labels as one number each.
    With the logarithm of the paper a root would only halve alpha.

    Reference: Sun et al., Label leakage and protection from forward embedding in vertical federated learning (arXiv
    2203.01451), section 7.2.

    Guarantee: none, empirical. It is a penalty, paid against the task, on a dependence estimated from each batch.

    Advice: gradients are not changed: add a protection of gradients (docs/results/forward-leakage.md).
    """

    name = "dcor"
    config = DCorConfig
    reference = "Sun et al. 2022 (arXiv 2203.01451), section 7.2"
    start = DCorConfig(alpha=0.03)
    published_against = (("embedding", "spectral"),)
    rank = 30
    no_guarantee = "a penalty on the estimated dependence of embeddings on labels bounds nothing"
    counters = ("terms", "terms_without_dependence", "steps_before_start")
    means = (("mean_dcor", "dcor", "terms"), ("mean_dcor_unbiased", "dcor_unbiased", "terms"))

    def setup(self, context: Context) -> None:
        """Read the kind of task and the steps of an epoch."""
        super().setup(context)
        self._regression = context.task is not None and context.task.kind == "regression"
        self._steps = max(1, math.ceil(len(context.training) / context.batch_size))

    def cut_gradient(self, view: ActiveView) -> tuple[float, Mapping[str, Tensor]]:
        """The term's gradient for each passive party's embeddings."""
        weight = self._weight(view.step)
        if not weight:
            self.count(steps_before_start=1)
            return 1.0, {}
        return 1.0, {party: self._term(e, view.labels_of(party), weight) for party, e in view.embeddings.items()}

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
        value = estimate.detach().double()
        head, independent = slice(0, _CHECK_ROWS), value <= 0
        self.count(terms=1, dcor=value, dcor_unbiased=self._dcor(e.detach()[head], labels[head], True))
        self.count(terms_without_dependence=independent)
        slope = (weight / (self.settings.floor + value)).to(estimate.dtype)
        (gradient,) = torch.autograd.grad(estimate, e, slope)
        return gradient.masked_fill(independent, 0.0)

    def _dcor(self, e: Tensor, labels: Tensor, unbiased: bool) -> Tensor:
        from cutlayer.kernels.dependence.distance_correlation import (
            class_distance_correlation_sqr,
            distance_correlation_sqr,
        )

        if self.settings.form == "whitened":
            e = whitened(e, _VARIANCE_SHRINKAGE).to(e.dtype)
        if self._regression:
            return distance_correlation_sqr(e, labels, unbiased)
        return class_distance_correlation_sqr(e, labels, self.classes, unbiased)
