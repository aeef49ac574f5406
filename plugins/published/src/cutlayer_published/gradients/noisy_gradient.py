"""Noise of a fixed scale on every entry of the cut gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import LabelProtection
from cutlayer.protections.contract.views import ActiveView


class NoisyGradientConfig(FrozenModel):
    """Distribution and scale of the noise.

    Attributes:
        scale: b of the Laplace distribution (its standard deviation is 1.41 b), or the standard deviation of the
            Gaussian. The units are those of a gradient of the mean loss; 0.0001 to 0.1 are in the published grids.
        distribution: `laplace` or `gaussian`.
    """

    scale: float = Field(gt=0, le=1e6, strict=True, description="the published grids go from 0.0001 to 0.1")
    distribution: Literal["laplace", "gaussian"] = "laplace"


class NoisyGradient(LabelProtection[NoisyGradientConfig]):
    """Add independent Laplace or Gaussian noise of a fixed scale to every entry.

    The gradient is that of the *mean* loss over the batch, so the same scale weighs more in larger batches. The
    published code has Laplace noise of the same distribution, drawn entry by entry from NumPy's generator.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022),
    possible defenses (noisy gradients).

    Guarantee: none, empirical. Nothing clips the gradient, so its sensitivity has no bound that a scale could be
    calibrated to.

    Advice: measured against model completion (docs/results/model-completion.md).
    """

    name = "noisy_gradient"
    config = NoisyGradientConfig
    reference = "Fu et al. 2022 (USENIX Security), possible defenses"
    start = NoisyGradientConfig(scale=0.01)
    rank = 20
    excludes = frozenset({"max_norm", "marvell", "iso_noise", "ppdl"})
    no_guarantee = "the gradient is not clipped, so noise of a fixed scale bounds nothing"
    counters = ("entries",)
    means = (("signal_to_noise", "squares", "entries"),)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Add noise to the cut gradient (n, width) of `party`."""
        self.count(entries=g.numel(), squares=torch.linalg.vector_norm(g).double() ** 2)
        noise = self.context.noise
        draw = noise.laplace if self.settings.distribution == "laplace" else noise.normal
        drawn = draw(tuple(g.shape), hook="noisy_gradient", peer=party, step=view.step, content=g)
        return torch.add(g, drawn, alpha=self.settings.scale, out=drawn)

    def metrics(self) -> Mapping[str, float]:
        """Entries with noise, and the root mean square of the gradient over that of the noise."""
        metrics = dict(super().metrics())
        deviation = self.settings.scale * (2**0.5 if self.settings.distribution == "laplace" else 1.0)
        metrics["signal_to_noise"] = metrics["signal_to_noise"] ** 0.5 / deviation
        return metrics
