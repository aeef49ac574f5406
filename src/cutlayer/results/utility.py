"""How good a model is on held-out rows, beside its references."""

from __future__ import annotations

from collections.abc import Mapping

from cutlayer.config import FrozenModel
from cutlayer.results.number import Number


class ModelUtility(FrozenModel):
    """One model on the test rows; `low` and `high` bound the headline metric (95 % bootstrap)."""

    name: str
    note: str = ""
    metrics: Mapping[str, Number]
    low: Number = None
    high: Number = None


class UtilityResult(FrozenModel):
    """This run against its references, by the headline metric and others."""

    metric: str
    higher_is_better: bool = True
    rows: tuple[ModelUtility, ...] = ()
