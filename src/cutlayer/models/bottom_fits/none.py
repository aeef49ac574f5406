"""No fit: the bottom model stays as it was drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cutlayer.config import FrozenModel
from cutlayer.models.bottom_fits.base import Fit, TrainingColumns

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel


class NoFit(FrozenModel):
    """The random initial weights do not change. They depend on no row."""

    kind: Literal["none"] = "none"


def keep_initial_weights(_settings: NoFit, _bottom: BottomModel, _columns: TrainingColumns) -> tuple[float, ...]:
    """Change nothing; there is no loss."""
    return ()


NONE = Fit(NoFit, keep_initial_weights)
