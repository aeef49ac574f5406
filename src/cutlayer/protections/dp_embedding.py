"""Differentially private embeddings: every row clipped, and Gaussian noise for all its releases together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from cutlayer.accounting import Event, GaussianRelease, ReleasePlan
from cutlayer.kernels.noise import gaussian_mechanism
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import Context, FeatureProtection
from cutlayer.protections.contract.views import PassiveView
from cutlayer.protections.noise_budget import NoiseBudget

_PUBLISHED_TEXT = "the terms as published are adaptive_embedding's, of the package cutlayer-published"


class DPEmbeddingConfig(NoiseBudget):
    """Clipping norm of a row, and its noise: by epsilon and delta, or by a noise multiplier.

    Attributes:
        clip: C, the norm that no row exceeds; the sensitivity is 2C.
        epsilon: Cost of the releases that `per` names.
        delta: Probability with which that epsilon may not hold.
        noise_multiplier: Standard deviation of the noise over 2C, in place of epsilon and delta.
        per: `run`: all planned releases of a row together, training epochs and evaluations. `release`: each release.
        calibration: `exact`, or `classical`: sqrt(2 ln(1.25 / delta)) / epsilon, which papers use, for one release.
        rescale: How rows are scaled to fill the ball that they are clipped to. `sphere`: every row gets norm C.
    """

    clip: float = Field(gt=0, strict=True, description="the norm that no row exceeds")
    per: Literal["run", "release"] = "run"
    calibration: Literal["exact", "classical"] = "exact"
    rescale: Literal["off", "sphere"] = Field(default="off", description=_PUBLISHED_TEXT)

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        surplus = sorted(self.model_fields_set & {"per", "calibration"})
        if self.noise_multiplier is not None and surplus:
            yield f"{' and '.join(surplus)} with epsilon and delta, got a noise_multiplier; leave one out"
        if self.calibration == "classical" and self.per == "run":
            yield "per: release with calibration classical, a formula for one release, got per: run"

    def multiplier(self, plan: ReleasePlan) -> float:
        """Standard deviation of the noise over the sensitivity, for these releases of a row."""
        if self.epsilon is None or self.delta is None:
            return float(self.noise_multiplier or 0.0)
        if self.calibration == "classical":
            return gaussian_mechanism.classical_noise_multiplier(self.epsilon, self.delta)
        releases = plan.max_releases if self.per == "run" else 1
        return gaussian_mechanism.noise_multiplier(self.epsilon, self.delta, releases)


class DPEmbedding(FeatureProtection[DPEmbeddingConfig]):
    """Clip each row of the embedding to norm C and add N(0, sigma^2) to every entry, sigma = multiplier x 2C.

    Both are rounded to a lattice of some 2^-18 sigma: the rows towards zero, the noise to nearest. In floating point a
    sum gives the row away; on the lattice it is a post-processing of the mechanism in real numbers.

    Training is through the clipped rows, so the gradient that returns passes back through the clip. Each release
    has noise of its own, keyed by its purpose, its scale, the step, the rows and the content: a message repeated after
    a resume repeats its noise, and any other gets fresh noise. A row with NaN or infinity is released as noise alone.

    Differs from its paper: noise is calibrated exactly and over the run (`calibration` and `per` restore the paper's),
    the factor of a row never depends on other rows, which would have no guarantee, and there is no term that gathers
    the rows of a class, which gains nothing (docs/results/feature-privacy.md has both).

    Metrics are computed from the noisy rows, since a passive party's metrics are sent: the number of clipped rows would
    be one more release, which nothing pays for.

    Reference: Mi et al. 2023, Flexible differentially private vertical federated learning with adaptive feature
    embeddings (arXiv 2308.02362), section 3; Balle and Wang 2018 (arXiv 1805.06530), theorem 8 (calibration).

    Guarantee: (epsilon, delta)-differential privacy of a row's features over all its releases. Neighbours differ in one
    row, replaced. It is conditional on the bottom model and the encoding wherever these were fitted on the rows. It
    needs a bottom model that embeds every row on its own, which is tested before anything about features is sent. It
    holds for the numbers that are sent, not for real numbers alone: they are points of a lattice (`kernels.lattice`).

    Advice: a total budget is best spent on a single release (docs/results/embedding-budget.md).
    """

    name = "dp_embedding"
    config = DPEmbeddingConfig
    reference = "Mi et al. 2023 (arXiv 2308.02362), section 3"
    start = DPEmbeddingConfig(clip=1.0, epsilon=8.0, delta=1e-5)
    rank = 20
    needs_row_independence = True
    on_cpu = True
    counters = ("rows", "squares", "width")

    def __init__(self, settings: DPEmbeddingConfig) -> None:
        super().__init__(settings)
        self._sigma = 0.0

    def setup(self, context: Context) -> None:
        """Calibrate the noise to the planned releases.

        Raises:
            ConfigError: Clip or noise is beyond what float32 can hold.
        """
        super().setup(context)
        self._sigma = self._deviation(context.plan)

    def embedding_out(self, e: Tensor, view: PassiveView) -> Tensor:
        """Bound every row of e (n, width), and add the noise."""
        from cutlayer.channel import rows_digest
        from cutlayer.kernels.noise.lattice import lattice_gaussian

        bounded = self.bounded(e, view)
        # With sigma: one draw at two scales, twice the same row, would give the row by two equations in two unknowns.
        purpose = f"dp_embedding {self._sigma.hex()} {view.mode} {view.epoch} {rows_digest(view.rows).hex()}"
        key = self.context.noise.key(hook=purpose, peer=self.context.peers[0], step=view.step, content=bounded)
        released = lattice_gaussian(bounded, self._sigma, self.settings.clip, key)
        self.count(rows=len(e), squares=float(torch.linalg.vector_norm(released.detach(), dtype=torch.float64)) ** 2)
        self.counts["width"] = e.shape[1]
        return released

    def _deviation(self, plan: ReleasePlan) -> float:
        from cutlayer.kernels.noise.lattice import lattice_step

        sigma = self.settings.multiplier(plan) * 2 * self.settings.clip
        lattice_step(sigma, self.settings.clip)  # refuses what has no lattice, here and not in the first step
        return sigma

    def bounded(self, e: Tensor, view: PassiveView) -> Tensor:
        """Rows of e (n, width) at norm C at most."""
        from cutlayer.kernels.rows.row_norms import clip_rows, rows_to_norm

        return (rows_to_norm if self.settings.rescale == "sphere" else clip_rows)(e, self.settings.clip)

    def event(self, plan: ReleasePlan) -> Event:
        """A noisy release of every row as often as planned.

        Raises:
            ConfigError: Clip or noise is beyond what float32 can hold.
        """
        self._deviation(plan)
        return GaussianRelease(self.settings.multiplier(plan), plan, plan.condition, delta=self.settings.delta)

    def metrics(self) -> Mapping[str, float]:
        """The noise, and the root mean square norm of the rows below it, over C and over the norm of the noise."""
        rows, width = max(self.counts["rows"], 1), max(self.counts["width"], 1)
        noise = self._sigma**2 * width * rows
        signal = math.sqrt(max(self.counts["squares"] - noise, 0.0))
        return {
            "rows": self.counts["rows"],
            "clip": self.settings.clip,
            "sigma": self._sigma,
            "norm_over_clip": signal / math.sqrt(rows) / self.settings.clip,
            "signal_to_noise": signal / math.sqrt(noise) if noise else 0.0,
        }
