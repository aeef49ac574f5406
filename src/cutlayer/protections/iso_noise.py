"""Isotropic Gaussian noise on the cut gradient, in proportion to the batch's longest row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.config import FrozenModel
from cutlayer.kernels.max_norm import row_norms
from cutlayer.protections.base import ActiveView, Asset, Protection, Side


class IsoNoiseConfig(FrozenModel):
    """How loud the noise is.

    Attributes:
        ratio: expected length of a row's noise over the length of the batch's longest row; 1 to 25 are in the
            published grids.
    """

    ratio: float = Field(gt=0, strict=True, description="1 to 25 are in the published grids")


class IsoNoise(Protection[IsoNoiseConfig]):
    """Add N(0, (ratio M)^2 / width) to every entry, M the largest row norm of the batch.

    A row's noise so has an expected squared length of (ratio M)^2, alike for all rows and in all directions. The
    published code does the same, with M in float32; a batch of zeros stays one in both.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504, ICLR 2022),
    section 5 (the isotropic Gaussian baseline).

    Guarantee: none, empirical. The scale follows the data, and the noise is spent on directions that tell nothing.
    """

    name = "iso_noise"
    config = IsoNoiseConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 5"
    rank = 20
    excludes = frozenset({"max_norm", "marvell", "noisy_gradient", "ppdl"})

    def __init__(self, settings: IsoNoiseConfig) -> None:
        super().__init__(settings)
        self._batches = 0
        self._dead = 0
        self._shares = 0.0

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Blur the cut gradient (n, width) of `party`."""
        norms = row_norms(g)
        longest = float(norms.max()) if len(g) else 0.0
        self._batches += 1
        if not longest:
            self._dead += 1
            return g
        self._shares += float(norms.mean()) / longest
        normal = self.context.noise.normal(tuple(g.shape), hook="iso_noise", peer=party, step=view.step, content=g)
        return torch.add(g, normal, alpha=self.settings.ratio * longest / g.shape[1] ** 0.5, out=normal)

    def event(self, plan: ReleasePlan) -> Event:
        """The scale is taken from the batch itself."""
        return NoFormalGuarantee("the noise is scaled by the batch's own longest gradient, which no clipping bounds")

    def metrics(self) -> Mapping[str, float]:
        """Batches, those of zeros alone, and the mean row norm over that of its noise."""
        alive = max(self._batches - self._dead, 1)
        return {
            "batches": self._batches,
            "batches_of_zeros": self._dead,
            "mean_signal_to_noise": self._shares / alive / self.settings.ratio,
        }

    def state_dict(self) -> dict[str, Any]:
        """The counts so far."""
        return {"batches": self._batches, "dead": self._dead, "shares": self._shares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._batches, self._dead = int(state["batches"]), int(state["dead"])
        self._shares = float(state["shares"])
