"""Utility of a model when parties leave."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.results.number import Bounded, Number


class AbsenceUtility(Bounded):
    """This run's model on the reported rows while some passive parties are absent.

    Attributes:
        absent: The absent parties; none in the first row.
        contributed: The parties whose features the answers rest on.
        metrics: Metrics by name.
        low: Lower bound of the headline metric (95 % bootstrap).
        high: Upper bound of it.
        references: Headline metric of other models without the same parties, by kind of run.
    """

    absent: tuple[str, ...]
    contributed: tuple[str, ...]
    metrics: Mapping[str, Number]
    references: Mapping[str, Number] = Field(default_factory=dict)


class LeftParty(FrozenModel):
    """A passive party that was lost in training, which went on without it.

    Attributes:
        party: Name of the party.
        epoch: Epoch in which it was lost, from 1; 0 after the last.
        step: Step of the epoch, from 1.
        why: Reason.
    """

    party: str
    epoch: int
    step: int
    why: str


class DepartureResult(FrozenModel):
    """Utility for every set of absent parties that was evaluated.

    Attributes:
        left: The parties that were lost in training; every row is without them.
        heads: Number of heads of the top model.
        extra_parameters: Parameters of all heads but the first.
        rows: One for each set of absent parties.
    """

    left: tuple[LeftParty, ...] = ()
    heads: int = 1
    extra_parameters: int = 0
    rows: tuple[AbsenceUtility, ...] = ()
