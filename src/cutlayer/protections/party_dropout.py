"""Party-wise dropout: the top model learns to predict without some of the parties."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from cutlayer.config import FrozenModel, Job, near_miss
from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import Asset, Context, Protection, Side
from cutlayer.protections.contract.views import ActiveView, Mode

Rate = Annotated[float, Field(ge=0, lt=1, strict=True)]


class PartyDropoutConfig(FrozenModel):
    """Dropout rate of each party.

    Attributes:
        rate: Share of the steps in which a party is dropped: one number for all passive parties, or a mapping from
            party to number. A party that is not in the mapping is never dropped. The paper tries 0.05 to 0.5.
    """

    rate: Rate | Mapping[str, Rate] = Field(description="the paper tries 0.05 to 0.5")


class PartyDropout(Protection[PartyDropoutConfig]):
    """In each training step replace each passive party's embedding by zeros with a probability of its own.

    The draws of parties and steps are independent, and what stays is not scaled by 1 / (1 - rate): a party that has
    left looks to the top model just as a dropped one did. A dropped party gets zeros for its task gradient. Evaluation
    uses every party. The draws are a function of the run's seed, the party and the step, so that a resume repeats them;
    they hide nothing.

    Reference: Sun, Du et al., Robust and IP-protecting vertical federated learning against unexpected quitting of
    parties (arXiv 2303.18178), party-wise dropout.

    Guarantee: none, empirical. What a model loses with a party depends on the other parties' features.

    Advice: costs little or nothing at low rates (docs/results/departures.md).
    """

    name = "party_dropout"
    config = PartyDropoutConfig
    side = Side.ACTIVE
    protects = Asset.MODEL
    reference = "Sun, Du et al. 2023 (arXiv 2303.18178), party-wise dropout"
    start = PartyDropoutConfig(rate=0.1)
    rank = 30
    no_guarantee = "it makes the model robust to a party that leaves, and hides nothing from anyone"
    counters = ("steps",)

    def setup(self, context: Context) -> None:
        """Match the rates with the passive parties."""
        super().setup(context)
        for fault in self._strangers(context.party, context.peers):
            raise ConfigError(fault)
        rate = self.settings.rate
        self._rates = dict(rate) if isinstance(rate, Mapping) else dict.fromkeys(context.peers, rate)
        self.counts |= {f"dropped.{name}": 0 for name in self._rates}
        self._seed = torch.initial_seed()  # of this party's own random state, which the job's seed decides

    def faults(self, job: Job, party: str) -> Iterator[str]:
        """Rates are for parties of the job."""
        return self._strangers(party, job.peers_of(party))

    def _strangers(self, party: str, peers: Sequence[str]) -> Iterator[str]:
        rate = self.settings.rate
        for name in rate.keys() - set(peers) if isinstance(rate, Mapping) else ():
            where = f"parties.{party}.privacy.party_dropout.rate.{name}"
            yield f"{where}: no passive party of that name{near_miss(name, list(peers))}"

    def embeddings_in(self, es: Mapping[str, Tensor], view: ActiveView) -> Mapping[str, Tensor]:
        """Drop some of the embeddings (n, width) of a training step."""
        if view.mode is not Mode.TRAIN:
            return es
        dropped = {name for name in es if self._draw(name, view.step) < self._rates.get(name, 0.0)}
        self.count(steps=1, **{f"dropped.{name}": 1 for name in dropped})
        return {name: torch.zeros_like(e) if name in dropped else e for name, e in es.items()}

    def _draw(self, party: str, step: int) -> float:
        """A uniform number in [0, 1)."""
        digest = hashlib.blake2b(f"party_dropout/{self._seed}/{step}/{party}".encode(), digest_size=6).digest()
        return int.from_bytes(digest, "little") / 2**48
