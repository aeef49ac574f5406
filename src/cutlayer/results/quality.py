"""How well a model ranks, how far its probabilities can be trusted, and which errors it makes."""

from __future__ import annotations

from collections.abc import Sequence

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


class OperatingPoint(FrozenModel):
    """Quality of a binary model if the rows with the largest scores are predicted to be positive.

    Attributes:
        threshold: Probability of the positive class from which rows are predicted to be positive.
        rate: Share of the rows that are.
        precision: Share of true positives among them.
        recall: Share of all positives that are among them: the cumulative gain, and the true positive rate.
        false_positive_rate: Share of all negatives that are among them.
        lift: Precision as a multiple of the share of positives in all rows.
    """

    threshold: float
    rate: float
    precision: float
    recall: float
    false_positive_rate: float
    lift: float


def at_rate(points: Sequence[OperatingPoint], rate: float) -> OperatingPoint | None:
    """The point that selects the most rows but no more than a share of them; `None` where each selects more."""
    return max((point for point in points if point.rate <= rate + 1e-9), key=lambda point: point.rate, default=None)


class Quality(FrozenModel):
    """Metrics of the final model on the reported held-out rows, besides those of every epoch.

    Attributes:
        metrics: Metrics by name.
        bins: Rows in up to ten groups of equal size by their prediction, ascending.
        confusions: Errors by class; empty for a regression and for more than 30 classes.
        thresholds: Thresholds of a binary model by the share of rows that can be treated: 1, 5, 10 and 20 %.
        curve: Up to 200 thresholds of it, descending: the ROC curve, gains and lift.
        own_curve: The same of the model of the active party's own columns.
    """

    metrics: dict[str, Number] = Field(default_factory=dict)
    bins: tuple[CalibrationBin, ...] = ()
    confusions: tuple[Confusion, ...] = ()
    thresholds: tuple[OperatingPoint, ...] = ()
    curve: tuple[OperatingPoint, ...] = ()
    own_curve: tuple[OperatingPoint, ...] = ()
