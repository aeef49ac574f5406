"""A protection of features as plain as can be, for tests of what counts its releases."""

from __future__ import annotations

from collections.abc import Mapping

import mpmath as mp
from pydantic import Field
from torch import Tensor

from cutlayer.accounting import Event, GaussianRelease, ReleasePlan
from cutlayer.config import FrozenModel
from cutlayer.protections.contract.base import Asset, Protection, Side
from cutlayer.protections.contract.views import PassiveView


class NoisyConfig(FrozenModel):
    """How much noise."""

    multiplier: float = Field(gt=0)


class Noisy(Protection[NoisyConfig]):
    """Rows cut off at norm 1, with Gaussian noise."""

    name, config, side, protects, reference, rank = "noisy", NoisyConfig, Side.PASSIVE, Asset.FEATURES, "none", 20

    def embedding_out(self, e: Tensor, view: PassiveView) -> Tensor:
        clipped = e / e.norm(dim=1, keepdim=True).clamp(min=1)
        noise = self.context.noise
        drawn = noise.normal(tuple(e.shape), hook=f"noisy {view.mode}", peer="", step=view.step, content=clipped)
        return clipped + 2 * self.settings.multiplier * drawn

    def event(self, plan: ReleasePlan) -> Event:
        return GaussianRelease(self.settings.multiplier, plan, condition=plan.condition)

    def metrics(self) -> Mapping[str, float]:
        return {}


def gaussian_epsilon(mu: mp.mpf) -> float:
    """Epsilon at delta = 1e-5 of mu-Gaussian differential privacy, by the theorem and many digits."""

    def excess(epsilon: mp.mpf) -> mp.mpf:
        here, there = mp.ncdf(mu / 2 - epsilon / mu), mp.ncdf(-mu / 2 - epsilon / mu)
        return mp.log(here - mp.exp(epsilon) * there) - mp.log(mp.mpf(10) ** -5)

    return float(mp.findroot(excess, 5 * mu))
