"""Adaptive feature embeddings as published (VFL-AFE): `dp_embedding` with an estimated scale and a contrastive term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor
from cutlayer.protections.contract.base import Context
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.protections.dp_embedding import DPEmbedding, DPEmbeddingConfig
from cutlayer_published.embedding.adjust import AdjustConfig, Adjustment
from cutlayer_published.embedding.rescale import EstimateConfig, EstimatedScale


class AdaptiveConfig(DPEmbeddingConfig):
    """Settings of `dp_embedding`, and of the paper's two terms.

    Attributes:
        estimate: Settings of the estimated scale; none without it.
        adjust: Settings of the contrastive term; none without it.
    """

    estimate: EstimateConfig | None = None
    adjust: AdjustConfig | None = None


class AdaptiveEmbedding(DPEmbedding):
    """`dp_embedding` whose clipped rows are scaled by an estimate from other rows, or pulled together by gradients.

    Reference: Mi et al. 2023 (arXiv 2308.02362), section 3.

    Guarantee: with `adjust` alone that of `dp_embedding`, (epsilon, delta)-differential privacy of a row's features
    over all its releases. Neighbours differ in one row, replaced. With `estimate` there is none.
    """

    name = "adaptive_embedding"
    config = AdaptiveConfig
    start = AdaptiveConfig(clip=1.0, epsilon=8.0, delta=1e-5, estimate=EstimateConfig())

    def __init__(self, settings: AdaptiveConfig) -> None:
        super().__init__(settings)
        self.terms = settings
        self.clean: Tensor | None = None
        self.estimated = None if settings.estimate is None else EstimatedScale(settings.estimate, settings.clip)
        self.adjustment = None if settings.adjust is None else Adjustment(settings.adjust)

    def setup(self, context: Context) -> None:
        """Calibrate the noise to the planned releases."""
        super().setup(context)
        if self.estimated is not None:
            self.estimated.setup(context)

    def bounded(self, e: Tensor, view: PassiveView) -> Tensor:
        """Rows of e (n, width), clipped, and times the estimated factor."""
        bounded = super().bounded(e, view)
        if view.mode is Mode.TRAIN:
            self.clean = bounded  # with its graph, for the local loss of the same step
        return bounded if self.estimated is None else self.estimated.scaled(bounded, view)

    def local_loss(self, view: PassiveView) -> Tensor | None:
        """Both terms, on this step's rows before the noise."""
        clean, self.clean = self.clean, None
        if clean is None or view.gradient is None:
            return None
        term = None if self.estimated is None else self.estimated.divergence(clean)
        adjusting = None if self.adjustment is None else self.adjustment.loss(clean, view.gradient)
        if term is None or adjusting is None:
            return adjusting if term is None else term
        return term + adjusting

    def event(self, plan: ReleasePlan) -> Event:
        """A noisy release of every row as often as planned; no guarantee with an estimated scale.

        Raises:
            ConfigError: Rows are released once, so that no gradient comes back to adjust by; a term over several rows
                together with `dp_bottom`; or clip or noise is beyond what float32 can hold.
        """
        event, settings = super().event(plan), self.terms
        if plan.once and settings.adjust is not None:
            raise ConfigError.expected("a release in every step with adjust", "one release", "leave adjust out")
        terms = ["estimate"] * (settings.estimate is not None) + ["adjust"] * (settings.adjust is not None)
        if plan.bottom == "private" and terms:
            remedy = "a term over several rows has no row's gradient; leave one out"
            raise ConfigError.expected(f"{terms[0]} of {self.name} without dp_bottom", "both", remedy)
        if settings.estimate is None:
            return event
        claimed = ""
        if settings.epsilon is not None and settings.delta is not None:
            total = settings.delta + settings.estimate.tail
            claimed = f"; its authors claim epsilon {settings.epsilon:g} at delta {total:g}"
            claimed += " for one release" if settings.per == "release" else " for the run's together"
        return NoFormalGuarantee(
            "embeddings are scaled by a factor estimated from other rows, so that a row moves the scale of others, "
            f"and rows farther apart than the estimate exceed the sensitivity that the noise is for{claimed}"
        )

    def metrics(self) -> Mapping[str, float]:
        """Those of `dp_embedding` and of both terms."""
        metrics = dict(super().metrics())
        for part in (self.estimated, self.adjustment):
            metrics |= part.metrics() if part is not None else {}
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """State of both terms, for a resume."""
        return {
            "estimated": self.estimated.state_dict() if self.estimated is not None else {},
            "adjustment": self.adjustment.state_dict() if self.adjustment is not None else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        if self.estimated is not None:
            self.estimated.load_state_dict(state["estimated"])
        if self.adjustment is not None:
            self.adjustment.load_state_dict(state["adjustment"])
