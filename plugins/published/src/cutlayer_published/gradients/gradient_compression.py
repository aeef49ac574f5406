"""Gradient compression: only the largest entries of a message are sent."""

from __future__ import annotations

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import LabelProtection
from cutlayer.protections.contract.views import ActiveView
from cutlayer_published.gradients.keep_top import keep_top

_GRID = "a compression of 90 % keeps 0.1; the published grids go from 0.75 to 0"


class GradientCompressionConfig(FrozenModel):
    """Share of a message that is sent.

    Attributes:
        keep: Share of a message's entries that are kept, 0 to 1; a compression of 90 % keeps 0.1, and 0 sends zeros.
    """

    keep: float = Field(ge=0, le=1, strict=True, description=_GRID)


class GradientCompression(LabelProtection[GradientCompressionConfig]):
    """Keep the entries of largest magnitude of each message, over all rows and columns, and replace others by zeros.

    Exactly floor(keep x entries) are kept: of equal entries the first. The published code keeps one fewer, since it
    compares with the smallest kept value strictly, fewer still where values are equal, and fails where the share comes
    to no entry. `mean_energy_kept` of its metrics is the mean share of a message's squared length in the kept entries.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022),
    possible defenses, after Lin et al., Deep gradient compression (arXiv 1712.01887), without its memory of what was
    left out.

    Guarantee: none, empirical. The rows that keep entries are those of the largest gradients, which reveals something.

    Advice: hides little (docs/results/model-completion.md).
    """

    name = "gradient_compression"
    config = GradientCompressionConfig
    reference = "Fu et al. 2022 (USENIX Security), possible defenses"
    start = GradientCompressionConfig(keep=0.1)
    rank = 10
    on_cpu = True
    excludes = frozenset({"ppdl", "discrete_sgd"})
    no_guarantee = "the entries that are kept are sent as they are"
    counters = ("entries", "entries_kept")
    means = (("mean_energy_kept", "energy", "batches"),)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Sparsify the cut gradient (n, width) of `party`."""
        count = int(self.settings.keep * g.numel())
        sent = keep_top(g, count)
        total = float(torch.linalg.vector_norm(g, dtype=torch.float64))
        part = float(torch.linalg.vector_norm(sent, dtype=torch.float64))
        self.count(batches=1, entries=g.numel(), entries_kept=count, energy=(part / total) ** 2 if total else 1.0)
        return sent
