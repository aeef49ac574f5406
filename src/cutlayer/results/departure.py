"""What a model is worth when parties leave."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.results.number import Number


class AbsenceUtility(FrozenModel):
    """This run's model on the test rows while some passive parties are absent.

    Attributes:
        absent: who; nobody in the first row.
        contributed: the parties whose features the answers rest on.
        low, high: bound the headline metric (95 % bootstrap).
        references: headline metric of other models without the same parties, such as `retrained`.
    """

    absent: tuple[str, ...]
    contributed: tuple[str, ...]
    metrics: Mapping[str, Number]
    low: Number = None
    high: Number = None
    references: Mapping[str, Number] = Field(default_factory=dict)


class DepartureResult(FrozenModel):
    """What is left when parties leave.

    Attributes:
        heads: of the top model; `extra_parameters` are those of all but the first.
    """

    heads: int = 1
    extra_parameters: int = 0
    rows: tuple[AbsenceUtility, ...] = ()
