"""The term `estimate`: scaling by an estimate of the largest distance between rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import Context
from cutlayer.protections.contract.views import Mode, PassiveView


class EstimateConfig(FrozenModel):
    """How the scale is estimated. Keys that name an equation follow the paper; the rest is our choice.

    Attributes:
        tail: Probability with which a distance may exceed the estimate (equation 5); its authors add it to delta.
        rows: Number of training rows in the sampled batch.
        every: Training steps from one sampled batch to the next.
        weight: Weight of the divergence between the distances of the sampled batch and of the batch (equation 6).
            Above the default the term competes with the task.
    """

    tail: float = Field(default=0.01, gt=0, lt=1, strict=True, description="added to delta in the paper's claim")
    rows: int = Field(default=128, ge=2, strict=True)
    every: int = Field(default=10, ge=1, strict=True)
    weight: float = Field(default=0.1, ge=0, strict=True)


class EstimatedScale:
    """Scale clipped rows by 2C / d, d the distance that two rows of a sampled batch exceed with probability `tail`.

    The distances of the batch, after clipping, are taken as normal: d is the quantile mean + z deviation with
    Phi(z) = 1 - tail. The sampled batch is embedded by the current bottom model every `every` steps; evaluations use
    the last estimate.

    Args:
        settings: How to estimate.
        clip: C, the norm that rows are clipped to.

    Reference: Mi et al. 2023 (arXiv 2308.02362), equations 4 to 6.
    """

    def __init__(self, settings: EstimateConfig, clip: float) -> None:
        self.settings, self.clip = settings, clip
        self._mean, self._variance = math.nan, math.nan
        self._drawn = 0
        self._distances = 0.0

    def setup(self, context: Context) -> None:
        """Read the training rows, and the noise that the draws come from."""
        self._context = context

    def scaled(self, clipped: Tensor, view: PassiveView) -> Tensor:
        """Clipped rows (n, width) times the factor."""
        if math.isnan(self._mean) or (view.mode is Mode.TRAIN and view.step % self.settings.every == 0):
            self._sample(view)
        distance = self._distance()
        return clipped * (2 * self.clip / distance) if distance > 0 else clipped

    def divergence(self, clipped: Tensor) -> Tensor:
        """Weight times KL(sampled batch || batch) between their distances as normals; the sampled batch is a constant.

        A factor common to both would not change it, so it is taken before the scaling.
        """
        from cutlayer_published.embedding.distance_statistics import distance_mean_and_variance, normal_divergence

        mean, variance = distance_mean_and_variance(clipped)
        value = normal_divergence(self._mean, self._variance, mean, variance)
        finite = math.isfinite(float(value.detach()))  # it is not where rows coincide
        return self.settings.weight * value if finite else torch.zeros_like(value)

    def metrics(self) -> Mapping[str, float]:
        """Batches sampled, and the mean of the distances estimated from them."""
        return {"batches_sampled": self._drawn, "mean_estimated_distance": self._distances / max(self._drawn, 1)}

    def state_dict(self) -> dict[str, Any]:
        """The last estimate and the counts."""
        last = [] if math.isnan(self._mean) else [self._mean, self._variance]
        return {"last": last, "drawn": self._drawn, "distances": self._distances}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._mean, self._variance = state["last"] or (math.nan, math.nan)
        self._drawn, self._distances = state["drawn"], state["distances"]

    def _sample(self, view: PassiveView) -> None:
        """Embed some training rows and estimate the distribution of their distances."""
        from cutlayer.kernels.rows.row_norms import clip_rows
        from cutlayer_published.embedding.distance_statistics import distance_statistics

        training = self._context.training
        peer = self._context.peers[0]
        key = self._context.noise.key(hook="dp_embedding sample", peer=peer, step=view.step, content=view.rows)
        draw = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
        drawn = torch.randint(len(training), (self.settings.rows,), generator=draw)
        indices = drawn.unique()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            statistics = distance_statistics(clip_rows(view.embed(training[indices]), self.clip))
        self._mean, self._variance = statistics.mean, statistics.variance
        self._drawn += 1
        self._distances += self._distance()

    def _distance(self) -> float:
        from cutlayer_published.embedding.distance_statistics import largest_distance

        return largest_distance(self._mean, math.sqrt(self._variance), 1, self.settings.tail)
