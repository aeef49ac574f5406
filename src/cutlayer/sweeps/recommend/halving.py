"""Successive halving: many candidates for few epochs, the best of them for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cutlayer.kernels.statistics.pareto import pareto_front
from cutlayer.sweeps.recommend.candidates import UNDEFENDED
from cutlayer.sweeps.recommend.result import Limits, Measured

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


def by_nearness(measured: Mapping[str, Measured], limits: Limits) -> list[str]:
    """Names of the defended candidates: those within the limits by ascending leak, then the others by their excess."""
    leaks = {name: limits.leak(each) for name, each in measured.items() if name != UNDEFENDED}
    return sorted(leaks, key=lambda name: (limits.exceeded(leaks[name], measured[name].loss), leaks[name], name))


def front(measured: Mapping[str, Measured], limits: Limits) -> list[str]:
    """Names of the candidates that no other beats in both leak and loss, by ascending leak; the undefended counts."""
    names = sorted(measured)
    losses = [measured[name].loss for name in names]
    leaks = [limits.leak(measured[name]) for name in names]
    return [names[index] for index in pareto_front([-loss for loss in losses], leaks)]


def survivors(measured: Mapping[str, Measured], limits: Limits) -> Sequence[str]:
    """Names for the next rung: the undefended, and of the others the nearest third and the front."""
    nearest = by_nearness(measured, limits)
    chosen = {UNDEFENDED, *nearest[: -(-len(nearest) // ETA)], *front(measured, limits)}
    return [name for name in measured if name in chosen]
