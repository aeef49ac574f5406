"""Numbers that are no plain values: counts, amounts and times until an event on the log link, and grades in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cutlayer.config.target import Target
from cutlayer.errors import DataError
from cutlayer.kernels.statistics.ranking import ndcg, ordered_pairs
from cutlayer.kernels.statistics.survival import comparable_pairs, cumulative_hazard, integrated_brier, step_values
from cutlayer.kernels.statistics.tweedie import deviance
from cutlayer.lazy import Tensor, torch

Floats = npt.NDArray[np.float64]

POWERS: Mapping[Target, float] = {"count": 1.0, "amount": 1.5, "severity": 2.0, "survival": 1.0}
"""Power of the mean that the variance of a target follows; of a plain value there is none."""
METRICS: Mapping[Target, str] = {
    "value": "r2",
    "count": "d2",
    "amount": "d2",
    "severity": "d2",
    "survival": "concordance",
    "ranking": "ndcg",
}
_MAX_STEPS = 500
"""Maximum number of steps of a cumulative hazard that a model keeps."""
_GRID = 50
_PAIRED_GROUPS = 2_000
_PAIRED_ROWS = 20_000
"""Maximum number of rows whose pairs are compared; of more, evenly spaced ones are."""


class Hazard(NamedTuple):
    """Cumulative hazard of a row of relative hazard 1, by the estimate of Nelson and Aalen, or of Breslow.

    Attributes:
        moments: Times of events, ascending; at most 500.
        values: Cumulative hazards from these times on.
    """

    moments: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, labels: Tensor, risks: Floats | None = None) -> Hazard:
        """The estimate of labels (n, 2), times and events.

        Args:
            labels: The labels.
            risks: Relative hazards of the rows, (n,); `None` where all are 1.

        Raises:
            DataError: There is no event.
        """
        times, events = _times(labels)
        moments, values = cumulative_hazard(times, events, risks)
        if not len(moments):
            raise DataError.expected("an event among the training rows", "none", "provide more rows")
        kept = np.unique(np.linspace(0, len(moments) - 1, _MAX_STEPS).astype(np.int64))
        return cls(tuple(moments[kept].tolist()), tuple(values[kept].tolist()))

    def at(self, times: Floats) -> Floats:
        """Cumulative hazard up to some times, of any shape."""
        return step_values(times, np.asarray(self.moments), np.asarray(self.values), 0.0)

    @property
    def quartiles(self) -> tuple[float, ...]:
        """Times of the first, second and third quarter of the moments; fewer where they are equal."""
        return tuple(np.unique(np.quantile(self.moments, (0.25, 0.5, 0.75), method="nearest")).tolist())

    def survival(self, relative: Floats, times: Floats) -> Floats:
        """Probability of no event up to each time (k,), of rows with relative hazards (n,): (n, k)."""
        return np.exp(-np.outer(relative, self.at(times)))


NO_HAZARD = Hazard()


class Terms(NamedTuple):
    """Parts of a metric 1 - sum(errors) / sum(spreads), by row, (n,).

    Attributes:
        errors: What each row adds to the error.
        spreads: What it adds to the error of a model that knows nothing.
        pairs: Whether these count pairs of rows, each at both of its rows.
    """

    errors: Floats
    spreads: Floats
    pairs: bool = False

    @property
    def value(self) -> float:
        """The metric; NaN where no model can err."""
        spread = float(self.spreads.sum())
        return 1 - float(self.errors.sum()) / spread if spread > 0 else float("nan")


def learned_targets(labels: Tensor, target: Target, hazard: Hazard) -> tuple[Tensor, Tensor | None]:
    """What a model learns of labels, float64 (n,), and the weight of each row, if rows have any.

    A grade is learned as it is: on the measured data that ranks about as well as a loss of pairs.

    With exposure that is the rate, weighted by the exposure, whose likelihood is that of the count with the exposure as
    an offset. Of a time until an event it is the event by the cumulative hazard up to the time, weighted by that: the
    likelihood of proportional hazards, given the hazard of a row of relative hazard 1, is that of a Poisson count.

    Args:
        labels: Values, (n,); rates and exposures, times and events, or grades and groups, (n, 2).
        target: What is learned.
        hazard: The cumulative hazard of `survival`.

    Reference: Whitehead 1980, Fitting Cox's regression model to survival data using GLIM (JRSS C 29).
    """
    values = labels.double()
    if values.dim() == 1:
        return values, None
    if target == "ranking":
        return values[:, 0], None
    if target != "survival":
        return values[:, 0], values[:, 1]
    passed = torch.from_numpy(hazard.at(values[:, 0].numpy()))
    return torch.where(passed > 0, values[:, 1] / passed.clamp_min(1e-300), 0.0), passed


def metric_terms(logarithms: Tensor, labels: Tensor, target: Target, hazard: Hazard) -> Terms:
    """The headline metric of predictions: the explained share of the deviance (D²), or Harrell's concordance.

    Args:
        logarithms: Logarithms of predicted means or relative hazards, (n,).
        labels: As of `learned_targets`.
        target: As of `learned_targets`.
        hazard: As of `learned_targets`.
    """
    if target == "survival":
        some = torch.arange(0, len(labels), -(-len(labels) // _PAIRED_ROWS) or 1)
        errors, pairs = np.zeros(len(labels)), np.zeros(len(labels))
        right, pairs[some] = comparable_pairs(logarithms[some].double().numpy(), *_times(labels[some]))
        errors[some] = pairs[some] - right
        return Terms(errors, pairs, pairs=True)
    means, weights = learned_targets(labels, target, hazard)
    mean = np.average(means, weights=weights)
    both = (logarithms.double(), torch.full_like(means, mean).log())
    if not mean > 0:
        return Terms(np.full(len(means), np.nan), np.zeros(len(means)))
    parts = (deviance(each, means, POWERS[target]) for each in both)
    errors, spreads = ((part if weights is None else part * weights).numpy() for part in parts)
    return Terms(errors, spreads)


def further_metrics(logarithms: Tensor, labels: Tensor, target: Target, hazard: Hazard) -> Mapping[str, float]:
    """Mean deviance and absolute error, by exposure; or the integrated Brier score. Arguments as of `metric_terms`."""
    if target == "survival":
        times, events = _times(labels)
        grid = np.quantile(times[events], np.linspace(0.05, 0.95, _GRID)) if events.any() else np.zeros(1)
        if not np.unique(grid).size > 1:
            return {"integrated_brier": float("nan")}
        survival = hazard.survival(logarithms.double().exp().numpy(), grid)
        return {"integrated_brier": integrated_brier(survival, grid, times, events)}
    means, weights = learned_targets(labels, target, hazard)
    errors = (deviance(logarithms.double(), means, POWERS[target]), (means - logarithms.double().exp()).abs())
    return dict(zip(("deviance", "mae"), (float(np.average(e, weights=weights)) for e in errors), strict=True))


def ranking_terms(scores: Tensor, labels: Tensor) -> Terms:
    """Mean NDCG@10 over the groups of two grades or more; what a group adds stands at its first row.

    Args:
        scores: Predicted scores, (n,).
        labels: Grades and numbers of groups, (n, 2).
    """
    grades, groups, first = _grades(labels)
    found = ndcg(scores.double().numpy(), grades, groups)
    errors, spreads = np.zeros(len(labels)), np.zeros(len(labels))
    errors[first], spreads[first] = np.nan_to_num(1 - found), ~np.isnan(found)
    return Terms(errors, spreads)


def ranking_metrics(scores: Tensor, labels: Tensor) -> Mapping[str, float]:
    """Mean over groups of the share of pairs in the right order; of many groups evenly spaced ones are taken."""
    grades, groups, first = _grades(labels)
    some = groups % (-(-len(first) // _PAIRED_GROUPS) or 1) == 0
    shares = ordered_pairs(scores.double().numpy()[some], grades[some], np.unique(groups[some], return_inverse=True)[1])
    known = shares[~np.isnan(shares)]
    return {"pairs_in_order": float(known.mean()) if len(known) else float("nan")}


def _grades(labels: Tensor) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Grades (n,), numbers of groups from 0 without gaps (n,), and the first row of each group (k,)."""
    _, first, groups = np.unique(labels[:, 1].numpy(), return_index=True, return_inverse=True)
    return labels[:, 0].double().numpy(), groups, first


def _times(labels: Tensor) -> tuple[Floats, npt.NDArray[np.bool_]]:
    return labels[:, 0].double().numpy(), (labels[:, 1] > 0).numpy()
