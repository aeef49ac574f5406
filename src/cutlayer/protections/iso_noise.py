"""Isotropic Gaussian noise on the cut gradient, in proportion to the longest rows of past batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.views import ActiveView
from cutlayer.protections.past_batches import ByPastBatches, follows_batch


class IsoNoiseConfig(FrozenModel):
    """Scale of the noise.

    Attributes:
        ratio: Expected length of a row's noise over M, the length of a batch's longest row; 1 to 25 are in the
            published grids.
        form: `past`: M is the mean over past batches, and longer rows are shortened to it. `paper`: M is that of the
            batch itself, and tells how many of its rows are of the rarer class.
    """

    ratio: float = Field(gt=0, le=1e6, strict=True, description="1 to 25 are in the published grids")
    form: Literal["past", "paper"] = "past"


class IsoNoise(ByPastBatches[IsoNoiseConfig]):
    """Add N(0, (ratio M)^2 / width) to every entry, M the length of a batch's longest row.

    The noise of a row has an expected squared length of (ratio M)^2, the same for all rows and in all directions.

    `form: past`, the default, is ours: M is the mean over a block of past batches (`PastBatches`), rows longer than M
    are shortened to it, and a party is sent zeros in its first step. The size of a message then says nothing of the
    batch, beyond what the gradients under the noise add to it. `form: paper` takes M of the batch itself, as the
    published code, which has it in float32: with a few positives in a batch the size of the message tells how many
    there are, and over the epochs which (`message_size`). Both leave a batch of zeros as it is.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504, ICLR 2022),
    section 5 (the isotropic Gaussian baseline).

    Guarantee: none, empirical. The scale follows the data, and noise is spent on directions that reveal nothing.
    The mean of a row's gradients over the epochs has less of it (`mean_gradient`).

    Advice: noise in all directions (docs/results/gradient-leakage.md).
    """

    name = "iso_noise"
    config = IsoNoiseConfig
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 5"
    start = IsoNoiseConfig(ratio=4.0)
    published_against = (("gradient", "norm"),)
    rank = 20
    excludes = frozenset({"max_norm", "marvell", "noisy_gradient", "ppdl"})
    hides_lengths = True
    no_guarantee = "the noise is scaled by the longest gradients of batches, and its mean over epochs is less"
    counters = ("batches", "batches_of_zeros", "batches_withheld", "rows_shortened")
    means = (("mean_signal_to_noise", "norm_shares", "noisy_batches"),)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Add noise to the cut gradient (n, width) of `party`."""
        from cutlayer.kernels.rows.row_norms import clip_rows, row_norms

        norms, sent = row_norms(g), g
        self.count(batches=1)
        if not len(g):
            return g
        largest = norms.max()
        is_zero = largest == 0
        self.count(batches_of_zeros=is_zero)
        if self.settings.form == "past":
            past = self._past.mean(party, view)
            self._past.add(party, view, largest.view(1), (~is_zero).double().view(1))
            if past is None:
                self.count(batches_withheld=~is_zero)
                return torch.zeros_like(g)
            length = past
            self.count(rows_shortened=(norms > length).sum())
            sent, norms = clip_rows(g, length), norms.clamp(max=length)
        else:
            length = float(largest)  # the scale of this batch's own noise
            if not length:
                return g
        self.count(noisy_batches=~is_zero, norm_shares=norms.mean() / length)
        normal = self.context.noise.normal(tuple(g.shape), hook="iso_noise", peer=party, step=view.step, content=sent)
        noisy = torch.add(sent, normal, alpha=self.settings.ratio * length / g.shape[1] ** 0.5, out=normal)
        return torch.where(is_zero, g, noisy)

    def notes(self, epochs: int) -> Sequence[str]:
        """The weakness of the paper's form."""
        return () if self.settings.form == "past" else (follows_batch(self.settings.form),)

    def metrics(self) -> Mapping[str, float]:
        """The counters, and the mean row norm over that of its noise."""
        metrics = dict(super().metrics())
        metrics["mean_signal_to_noise"] /= self.settings.ratio
        return metrics
