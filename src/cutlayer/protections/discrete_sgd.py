"""DiscreteSGD: the cut gradient in a few levels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.config import FrozenModel
from cutlayer.protections.base import ActiveView, Asset, Protection, Side


class DiscreteSGDConfig(FrozenModel):
    """How coarse the levels are.

    Attributes:
        levels: equal parts the interval is cut into, 1 or more: the values sent are their `levels` + 1 ends. 1 sends
            signs, 2 signs and zeros; the published grids go from 1 to 24.
        bound: half the interval [-bound, bound]; by default |mean| + 2 standard deviations of the message. The
            published code sets 0.001 for Criteo and 0.03 else.
    """

    levels: int = Field(ge=1, le=2**16, strict=True, description="the published grids go from 1 to 24")
    bound: float | None = Field(default=None, gt=0, strict=True, description="0.001 to 0.03 in the published code")


class DiscreteSGD(Protection[DiscreteSGDConfig]):
    """Round every entry to the nearest end of equal parts of an interval; what lies outside goes to its border.

    Where it differs from the published code: that rounds to multiples of the part's length, which with an odd number of
    parts puts a level at 0 in place of the interval's ends, and cuts nothing off outside; and its interval is set by
    hand, where the default here follows each message and, being symmetric, lets no level tell anything by its size. For
    levels plus Laplace noise, as in the quitting paper's grid, add `noisy_gradient`, which acts after this.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022),
    possible defenses (DiscreteSGD), a variant of Bernstein et al., signSGD (arXiv 1802.04434).

    Guarantee: none, empirical. Signs alone often tell the label.
    """

    name = "discrete_sgd"
    config = DiscreteSGDConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Fu et al. 2022 (USENIX Security), possible defenses"
    rank = 10
    excludes = frozenset({"ppdl", "gradient_compression"})

    def __init__(self, settings: DiscreteSGDConfig) -> None:
        super().__init__(settings)
        self._batches = 0
        self._entries = 0
        self._outside = 0
        self._bounds = 0.0

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Round the cut gradient (n, width) of `party`."""
        bound = self._bound(g)
        self._batches += 1
        self._entries += g.numel()
        self._bounds += bound
        if not bound:
            return g
        self._outside += int(torch.count_nonzero(g.abs() > bound))
        levels = self.settings.levels
        ends = g.clamp(-bound, bound).div_(bound).add_(1.0).mul_(levels / 2.0).round_()
        # Counted from the middle, so that a level at 0 is exactly 0.
        return ends.mul_(2.0).sub_(levels).mul_(bound / levels)

    def _bound(self, g: Tensor) -> float:
        if self.settings.bound is not None:
            return self.settings.bound
        if not g.numel():
            return 0.0
        mean = float(g.sum(dtype=torch.float64)) / g.numel()
        square = float(torch.linalg.vector_norm(g, dtype=torch.float64)) ** 2 / g.numel()
        return abs(mean) + 2.0 * math.sqrt(max(square - mean * mean, 0.0))

    def event(self, plan: ReleasePlan) -> Event:
        """Rounding is a function of the gradient."""
        return NoFormalGuarantee("rounding is a function of the gradient, and signs often tell the label")

    def metrics(self) -> Mapping[str, float]:
        """Entries rounded, how many lay outside the interval, and its mean half."""
        return {
            "entries": self._entries,
            "entries_outside": self._outside,
            "mean_bound": self._bounds / max(self._batches, 1),
        }

    def state_dict(self) -> dict[str, Any]:
        """The counts so far."""
        return {"batches": self._batches, "entries": self._entries, "outside": self._outside, "bounds": self._bounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._batches, self._entries = int(state["batches"]), int(state["entries"])
        self._outside, self._bounds = int(state["outside"]), float(state["bounds"])
