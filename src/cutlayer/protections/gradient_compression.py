"""Gradient compression: only the largest entries of a message are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.config import FrozenModel
from cutlayer.kernels.keep_top import keep_top
from cutlayer.protections.base import ActiveView, Asset, Protection, Side

_GRID = "a compression of 90 % keeps 0.1; the published grids go from 0.75 to 0"


class GradientCompressionConfig(FrozenModel):
    """How much is kept.

    Attributes:
        keep: share of a message's entries that are kept, 0 to 1; a compression of 90 % keeps 0.1, and 0 sends zeros.
    """

    keep: float = Field(ge=0, le=1, strict=True, description=_GRID)


class GradientCompression(Protection[GradientCompressionConfig]):
    """Keep the entries of largest magnitude of each message, over all its rows and columns, and send zeros else.

    floor(keep x entries) are kept, exactly: of equal ones the first. The published code keeps one fewer, since it
    compares with the smallest kept value strictly, all the fewer where values are equal, and fails where the share
    comes to no entry.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022),
    possible defenses, after Lin et al., Deep gradient compression (arXiv 1712.01887), without its memory of what was
    left out.

    Guarantee: none, empirical. The rows that keep entries are those of the largest gradients, which itself tells.
    """

    name = "gradient_compression"
    config = GradientCompressionConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Fu et al. 2022 (USENIX Security), possible defenses"
    rank = 10
    excludes = frozenset({"ppdl", "discrete_sgd"})

    def __init__(self, settings: GradientCompressionConfig) -> None:
        super().__init__(settings)
        self._entries = 0
        self._kept = 0
        self._energy = 0.0
        self._batches = 0

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Thin out the cut gradient (n, width) of `party`."""
        count = int(self.settings.keep * g.numel())
        sent = keep_top(g, count)
        whole = float(torch.linalg.vector_norm(g, dtype=torch.float64))
        part = float(torch.linalg.vector_norm(sent, dtype=torch.float64))
        self._batches += 1
        self._entries += g.numel()
        self._kept += count
        self._energy += (part / whole) ** 2 if whole else 1.0
        return sent

    def event(self, plan: ReleasePlan) -> Event:
        """What is kept is exact."""
        return NoFormalGuarantee("the entries that are kept are sent as they are")

    def metrics(self) -> Mapping[str, float]:
        """Entries and how many were kept, and the mean share of a message's squared length in those."""
        return {
            "entries": self._entries,
            "entries_kept": self._kept,
            "mean_energy_kept": self._energy / max(self._batches, 1),
        }

    def state_dict(self) -> dict[str, Any]:
        """The counts so far."""
        return {"entries": self._entries, "kept": self._kept, "energy": self._energy, "batches": self._batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._entries, self._kept = int(state["entries"]), int(state["kept"])
        self._energy, self._batches = float(state["energy"]), int(state["batches"])
