"""Max norm alignment: the length of a gradient no longer tells the label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.config import FrozenModel
from cutlayer.kernels.max_norm import max_norm, row_norms
from cutlayer.protections.base import ActiveView, Asset, Protection, Side


class MaxNormConfig(FrozenModel):
    """Max norm alignment has nothing to set."""


class MaxNorm(Protection[MaxNormConfig]):
    """Stretch every row of the cut gradient at random, so that all have the expected norm of the longest.

    With M the largest row norm of the batch, row i becomes g_i (1 + sigma_i eps_i), sigma_i = sqrt(max(M^2 / |g_i|^2 -
    1, 0)), one eps_i ~ N(0, 1) per row: unbiased, E|.|^2 = M^2. A row of zero norm gets an isotropic vector of norm M.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504), section 4
    (heuristic protection).

    Guarantee: none, empirical. The direction of a row is kept up to its sign, so attacks on directions are
    weakened and not stopped.
    """

    name = "max_norm"
    config = MaxNormConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 4"
    rank = 20

    def __init__(self, settings: MaxNormConfig) -> None:
        super().__init__(settings)
        self._batches = 0
        self._rows = 0
        self._perturbed = 0
        self._zero = 0
        self._shares = 0.0

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Align the norms of the cut gradient (n, width) of `party`."""
        norms = row_norms(g)
        zero = int((norms == 0).sum())
        largest = float(norms.max()) if len(g) else 0.0
        self._batches += 1
        self._rows += len(g)
        self._zero += zero
        if not largest:
            return g
        normal = self.context.noise.normal((len(g),), hook="max_norm", peer=party, step=view.step, content=g)
        isotropic = normal.new_zeros(0, g.shape[1])
        if zero:
            shape = (zero, g.shape[1])
            isotropic = self.context.noise.normal(shape, hook="max_norm zero", peer=party, step=view.step, content=g)
        self._perturbed += int((norms < largest).sum())
        self._shares += float(norms.mean()) / largest
        return max_norm(g, norms, normal, isotropic)

    def event(self, plan: ReleasePlan) -> Event:
        """No theorem bounds what the directions tell."""
        return NoFormalGuarantee(
            "max norm alignment hides the length of a gradient and keeps its direction up to a sign"
        )

    def metrics(self) -> Mapping[str, float]:
        """Rows sent, perturbed and of zero norm, and how long an average row was before, as a share of the longest."""
        return {
            "rows": self._rows,
            "rows_perturbed": self._perturbed,
            "zero_norm_rows": self._zero,
            "mean_norm_share": self._shares / max(self._batches, 1),
        }

    def state_dict(self) -> dict[str, Any]:
        """The counts so far."""
        return {
            "batches": self._batches,
            "rows": self._rows,
            "perturbed": self._perturbed,
            "zero": self._zero,
            "shares": self._shares,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._batches, self._rows = int(state["batches"]), int(state["rows"])
        self._perturbed, self._zero = int(state["perturbed"]), int(state["zero"])
        self._shares = float(state["shares"])
