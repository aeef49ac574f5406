"""How well a model ranks, how far its probabilities can be trusted, and which errors it makes."""

from __future__ import annotations

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.results.number import Number


class CalibrationBin(FrozenModel):
    """Held-out rows of similar predictions.

    Attributes:
        predicted: Mean of what was predicted: a probability, or a value of a regression.
        observed: Share of the rows where it was right, or the mean of the true values.
        rows: Number of rows.
    """

    predicted: float
    observed: float
    rows: int = Field(ge=1)


class Confusion(FrozenModel):
    """Predicted against true classes.

    Attributes:
        threshold: Probability of the second class from which it is predicted; `None` where the likeliest class is.
        basis: Why that threshold.
        counts: Number of rows by true class (row) and predicted class (column), in the order of the classes.
    """

    threshold: Number = None
    basis: str = ""
    counts: tuple[tuple[int, ...], ...]


class Quality(FrozenModel):
    """Metrics of the final model on the reported held-out rows, besides those of every epoch.

    Attributes:
        metrics: Metrics by name.
        bins: Rows in up to ten groups of equal size by their prediction, ascending.
        confusions: Errors by class; empty for a regression and for more than 30 classes.
    """

    metrics: dict[str, Number] = Field(default_factory=dict)
    bins: tuple[CalibrationBin, ...] = ()
    confusions: tuple[Confusion, ...] = ()
