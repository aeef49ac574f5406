"""Times of events of which some are censored: cumulative hazard, concordance and Brier score."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_CELLS = 1 << 24
"""Pairs of rows that are compared at a time."""


def cumulative_hazard(times: Floats, events: Flags, risks: Floats | None = None) -> tuple[Floats, Floats]:
    """Cumulative hazard of a row of relative hazard 1, after each time at which there is an event.

    Args:
        times: Time until the event, or until a row was last seen without, (n,).
        events: Whether the event happened, (n,).
        risks: Relative hazards of the rows (Breslow 1972); `None` where all are 1 (Nelson 1972, Aalen 1978).

    Returns:
        Times, ascending, and cumulative hazards, (k,) each; empty without an event.
    """
    weights = np.ones(len(times)) if risks is None else risks
    order = np.argsort(times, kind="stable")
    at_risk = weights[order][::-1].cumsum()[::-1]
    moments, counts = np.unique(times[events], return_counts=True)
    return moments, np.cumsum(counts / at_risk[np.searchsorted(times[order], moments)])


def step_values(at: Floats, moments: Floats, values: Floats, before: float) -> Floats:
    """Values of a right-continuous step function that jumps at some moments, ascending, (m,)."""
    return np.concatenate([[before], values])[np.searchsorted(moments, at, side="right")]


def comparable_pairs(scores: Floats, times: Floats, events: Flags) -> tuple[Floats, Floats]:
    """Number of each row's comparable pairs that are concordant, ties of scores counting half, and of all of them.

    A pair is comparable where the earlier time is that of an event, or where of two equal times one is an event's and
    the other is censored. It is concordant where the row of the event has the greater score.

    Args:
        scores: Greater where the event is expected earlier, (n,).
        times: As in `cumulative_hazard`.
        events: As in `cumulative_hazard`.

    Reference: Harrell, Califf, Pryor, Lee, Rosati 1982, Evaluating the yield of medical tests (JAMA 247).
    """
    order = np.argsort(times, kind="stable")
    scores, times, events = scores[order], times[order], events[order]
    concordant, comparable = np.zeros(len(times)), np.zeros(len(times))
    of_events = np.flatnonzero(events)
    step = max(1, _CELLS // max(len(times), 1))
    for start in range(0, len(of_events), step):
        rows = of_events[start : start + step]
        first = int(np.searchsorted(times, times[rows[0]]))
        moment, score = times[rows, None], scores[rows, None]
        later = (times[first:] > moment) | ((times[first:] == moment) & ~events[first:])
        right = later * ((scores[first:] < score) + 0.5 * (scores[first:] == score))
        concordant[rows] += right.sum(1)
        comparable[rows] += later.sum(1)
        concordant[first:] += right.sum(0)
        comparable[first:] += later.sum(0)
    back = np.argsort(order, kind="stable")
    return concordant[back], comparable[back]


def integrated_brier(survival: Floats, grid: Floats, times: Floats, events: Flags) -> float:
    """Mean squared error of survival probabilities over a range of times, weighted for what was censored before.

    The weights are the inverse of the probability of not being censored yet, by the Kaplan-Meier estimate of these
    rows.

    Args:
        survival: Probability of no event up to each time of the grid, (n, k).
        grid: Times, ascending, two or more, (k,).
        times: As in `cumulative_hazard`.
        events: As in `cumulative_hazard`.

    Reference: Graf, Schmoor, Sauerbrei, Schumacher 1999, Assessment and comparison of prognostic classification
    schemes for survival data (Stat. Med. 18).
    """
    moments, uncensored = _uncensored(times, events)
    of_rows = step_values(times, moments, uncensored, 1.0)
    of_grid = step_values(grid, moments, uncensored, 1.0)
    happened = (times[:, None] <= grid) & events[:, None] & (of_rows > 0)[:, None]
    inverse = 1 / np.where(of_rows > 0, of_rows, 1.0)
    errors = np.where(happened, survival**2 * inverse[:, None], 0.0)
    errors += np.where(times[:, None] > grid, (1 - survival) ** 2 / np.maximum(of_grid, 1e-12), 0.0)
    means = errors.mean(0)
    return float((np.diff(grid) * (means[1:] + means[:-1]) / 2).sum() / (grid[-1] - grid[0]))


def _uncensored(times: Floats, events: Flags) -> tuple[Floats, Floats]:
    """Kaplan-Meier estimate of not being censored, after each time; an event precedes a censoring."""
    moments, at = np.unique(times, return_inverse=True)
    censored, happened = (np.bincount(at, kind, len(moments)) for kind in (~events, events))
    at_risk = (censored + happened)[::-1].cumsum()[::-1] - happened
    staying: Floats = 1 - censored / np.maximum(at_risk, 1.0)
    return moments, np.multiply.accumulate(staying)
