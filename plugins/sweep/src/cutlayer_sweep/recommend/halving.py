"""Successive halving: many candidates for few epochs, the best of them for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cutlayer_sweep.pareto import pareto_front
from cutlayer_sweep.recommend.candidates import UNDEFENDED
from cutlayer_sweep.recommend.result import Limits, MeasuredCandidate

ETA = 3
"""Factor of the epochs from one rung to the next, and share of the candidates that is left."""
MIN_EPOCHS = 2


def rungs(epochs: int) -> list[int]:
    """Epochs of each rung, ascending; the last is the whole training.

    >>> rungs(10), rungs(60), rungs(3)
    ([3, 10], [2, 7, 20, 60], [3])
    """
    lengths = [epochs]
    while round(lengths[0] / ETA) >= MIN_EPOCHS:
        lengths.insert(0, round(lengths[0] / ETA))
    return lengths


def sorted_by_nearness(measured: Mapping[str, MeasuredCandidate], limits: Limits) -> list[str]:
    """Names of the defended candidates: those within the limits by what is read, then the others by their excess."""
    defended = [name for name in measured if name != UNDEFENDED]
    return sorted(defended, key=lambda name: (limits.nearness(measured[name]), name))


def front_of(measured: Mapping[str, MeasuredCandidate], limits: Limits) -> list[str]:
    """Names of the candidates that no other beats in leak, loss and columns rebuilt; the undefended counts."""
    names = sorted(measured)
    losses = [measured[name].loss for name in names]
    leaks = [limits.leak(measured[name]) for name in names]
    read = [measured[name].columns_read for name in names]
    return [names[index] for index in pareto_front([-loss for loss in losses], leaks, read)]


def survivors(measured: Mapping[str, MeasuredCandidate], limits: Limits) -> Sequence[str]:
    """Names for the next rung: the undefended, and of the others the nearest third and the front."""
    nearest = sorted_by_nearness(measured, limits)
    chosen = {UNDEFENDED, *nearest[: -(-len(nearest) // ETA)], *front_of(measured, limits)}
    return [name for name in measured if name in chosen]
