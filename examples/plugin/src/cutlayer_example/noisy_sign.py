"""Noisy signs: every entry keeps its sign, loses its size and gets noise."""

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor
from cutlayer.protections.contract.base import LabelProtection
from cutlayer.protections.contract.views import ActiveView


class NoisySignConfig(FrozenModel):
    """How much noise is added to the signs.

    Attributes:
        scale: Standard deviation of the noise over the mean absolute entry.
    """

    scale: float = Field(ge=0, strict=True)


class NoisySign(LabelProtection[NoisySignConfig]):
    """Send the sign of each entry and Gaussian noise, times the mean absolute entry of the batch.

    Reference: Bernstein et al. 2018, signSGD (arXiv 1802.04434), which sends signs to save bytes; as a defence at the
    cut layer it is an example.

    Guarantee: none, empirical. The signs still point in the direction of the row.

    Advice: an example, which nobody has measured.
    """

    name = "noisy_sign"
    config = NoisySignConfig
    reference = "Bernstein et al. 2018 (arXiv 1802.04434)"
    start = NoisySignConfig(scale=0.5)
    rank = 20
    no_guarantee = "the signs of a gradient keep its direction"
    counters = ("rows",)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Replace each entry of the cut gradient (n, width) by its sign, with noise."""
        self.count(rows=len(g))
        noise = self.context.noise.normal(tuple(g.shape), hook=self.name, peer=party, step=view.step, content=g)
        return g.abs().mean() * (g.sign() + self.settings.scale * noise)
