"""DiscreteSGD: the cut gradient in a few levels."""

from __future__ import annotations

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import LabelProtection
from cutlayer.protections.contract.views import ActiveView


class DiscreteSGDConfig(FrozenModel):
    """Number of levels, and the interval that they divide.

    Attributes:
        levels: Number of equal parts of the interval, 1 or more: the values sent are their `levels` + 1 ends. 1 sends
            signs, 2 signs and zeros; the published grids go from 1 to 24.
        bound: Half the length of the interval [-bound, bound]; by default |mean| + 2 standard deviations of the
            message. The published code sets 0.001 for Criteo and 0.03 else.
    """

    levels: int = Field(ge=1, le=2**16, strict=True, description="the published grids go from 1 to 24")
    bound: float | None = Field(default=None, gt=0, strict=True, description="0.001 to 0.03 in the published code")


class DiscreteSGD(LabelProtection[DiscreteSGDConfig]):
    """Clamp every entry to an interval, and round it to the nearest end of the interval's equal parts.

    Where it differs from the published code: that rounds to multiples of the part's length, which with an odd number of
    parts puts a level at 0 in place of the interval's ends, and does not clamp; and its interval is set by hand, where
    the default here follows each message and is symmetric. The size of its levels is then a number of the whole
    message, which depends on how many of its rows are of the rarer class (`message_size`); a set `bound` does not. For
    levels plus Laplace noise, as in the grid of the paper on departures, add `noisy_gradient`, which acts after this.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022),
    possible defenses (DiscreteSGD), a variant of Bernstein et al., signSGD (arXiv 1802.04434).

    Guarantee: none, empirical. Signs alone often reveal the label.

    Advice: hides little (docs/results/model-completion.md).
    """

    name = "discrete_sgd"
    config = DiscreteSGDConfig
    reference = "Fu et al. 2022 (USENIX Security), possible defenses"
    start = DiscreteSGDConfig(levels=6)
    rank = 10
    excludes = frozenset({"ppdl", "gradient_compression"})
    no_guarantee = "rounding is a function of the gradient, and signs often reveal the label"
    counters = ("entries", "entries_outside")
    means = (("mean_bound", "bounds", "batches"),)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Round the cut gradient (n, width) of `party`."""
        bound = self._bound(g)
        self.count(batches=1, entries=g.numel(), bounds=bound)
        self.count(entries_outside=torch.count_nonzero(g.abs() > bound))
        levels = self.settings.levels
        ends = g.clamp(-bound, bound).div_(bound).add_(1.0).mul_(levels / 2.0).round_()
        # Counted from the middle, so that a level at 0 is exactly 0.
        return torch.where(bound > 0, ends.mul_(2.0).sub_(levels).mul_(bound / levels), g)

    def _bound(self, g: Tensor) -> Tensor:
        """The bound, float64, without axes; 0 of a message of zeros."""
        if self.settings.bound is not None:
            return g.new_full((), self.settings.bound, dtype=torch.float64)
        count = max(g.numel(), 1)
        mean = g.sum(dtype=torch.float64) / count
        square: Tensor = torch.linalg.vector_norm(g, dtype=torch.float64).square() / count
        return mean.abs() + 2.0 * (square - mean * mean).clamp(min=0.0).sqrt()
