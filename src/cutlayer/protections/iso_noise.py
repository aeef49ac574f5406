"""Isotropic Gaussian noise on the cut gradient, in proportion to the batch's longest row."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from cutlayer.config import FrozenModel
from cutlayer.kernels.row_norms import row_norms
from cutlayer.protections.base import Asset, Protection, Side
from cutlayer.protections.views import ActiveView


class IsoNoiseConfig(FrozenModel):
    """Scale of the noise.

    Attributes:
        ratio: expected length of a row's noise over the length of the batch's longest row; 1 to 25 are in the
            published grids.
    """

    ratio: float = Field(gt=0, strict=True, description="1 to 25 are in the published grids")


class IsoNoise(Protection[IsoNoiseConfig]):
    """Add N(0, (ratio M)^2 / width) to every entry, M the largest row norm of the batch.

    The noise of a row has an expected squared length of (ratio M)^2, the same for all rows and in all directions. The
    published code does the same, with M in float32; both leave a batch of zeros as it is.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504, ICLR 2022),
    section 5 (the isotropic Gaussian baseline).

    Guarantee: none, empirical. The scale follows the data, and noise is spent on directions that reveal nothing. With a
    few positives in a batch the size of a message tells how many there are, and over the epochs which (`message_size`).
    """

    name = "iso_noise"
    config = IsoNoiseConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 5"
    published_against = (("gradient", "norm"),)
    rank = 20
    excludes = frozenset({"max_norm", "marvell", "noisy_gradient", "ppdl"})
    no_guarantee = "the noise is scaled by the batch's own longest gradient, which no clipping bounds"
    counters = ("batches", "batches_of_zeros")
    means = (("mean_signal_to_noise", "norm_shares", "noisy_batches"),)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Add noise to the cut gradient (n, width) of `party`."""
        norms = row_norms(g)
        longest = float(norms.max()) if len(g) else 0.0
        self.count(batches=1)
        if not longest:
            self.count(batches_of_zeros=1)
            return g
        self.count(noisy_batches=1, norm_shares=float(norms.mean()) / longest)
        normal = self.context.noise.normal(tuple(g.shape), hook="iso_noise", peer=party, step=view.step, content=g)
        return torch.add(g, normal, alpha=self.settings.ratio * longest / g.shape[1] ** 0.5, out=normal)

    def metrics(self) -> Mapping[str, float]:
        """The counters, and the mean row norm over that of its noise."""
        metrics = dict(super().metrics())
        metrics["mean_signal_to_noise"] /= self.settings.ratio
        return metrics
