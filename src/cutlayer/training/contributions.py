"""Contributions of the passive parties to the model beside the active party's own columns, together and each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, compress

import numpy as np
import torch
from torch import Tensor

from cutlayer.kernels.rows.patterns import distinct_rows
from cutlayer.kernels.rows.small_groups import groups_to_show
from cutlayer.models.absence import MAX_PARTIES_OF_ALL_SETS, Names
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.results.utility import Difference, Gain, PatternUtility
from cutlayer.training.utility import Floats, interval, metric_replicates, percentile_interval


def difference_to(active: ActiveOutcome, other: Tensor, seed: int) -> Difference:
    """Headline metric of this run's model minus that of another one, on the same rows.

    Args:
        active: Results of the run.
        other: Logits of the other model for the same rows, (n, outputs).
        seed: Seed of the resampling.
    """
    task, labels = active.task, active.labels
    if len(labels) < 2:
        return Difference()
    value, base = (task.evaluate(logits, labels)[task.metric] for logits in (active.logits, other))
    resampled, resampled_base = (metric_replicates(task, logits, labels, seed) for logits in (active.logits, other))
    low, high = percentile_interval(resampled - resampled_base)
    return Difference(value=value - base, low=low, high=high)


def gain_over(active: ActiveOutcome, alone: Tensor, parties: Names, seed: int) -> Gain:
    """Gain of this run's model from passive parties over a model of own columns; arguments as of `difference_to`."""
    return Gain(parties=parties, **dict(difference_to(active, alone, seed)))


def utility_by_pattern(
    active: ActiveOutcome, parties: Names, seed: int, alone: Tensor | None
) -> tuple[PatternUtility, ...]:
    """This run's model on the held-out rows of each set of passive parties that have them; none where all have all.

    Of few rows there is no metric: labels could be read from it.

    Args:
        active: Results of the run.
        parties: The passive parties that were there at the end.
        seed: Seed of the resampling.
        alone: Logits of the model of own columns for the same rows, (n, outputs), if there is one.
    """
    present = {name: mask for name, mask in active.present.items() if name in parties}
    if not present or not len(active.labels):
        return ()
    measured = []
    matrix = torch.stack([*present.values()], dim=1).numpy()
    # Those of most parties first, and of as many in the order of the parties.
    groups = sorted(distinct_rows(matrix), key=lambda found: (found[0].sum(), *found[0]), reverse=True)
    codes = np.empty(len(matrix), np.int64)
    for code, (_, numbers) in enumerate(groups):
        codes[numbers] = code
    for (pattern, numbers), is_shown in zip(groups, groups_to_show([codes])[0], strict=True):
        names, rows = tuple(compress(present, pattern)), torch.from_numpy(numbers)
        if not is_shown:
            measured.append(PatternUtility(parties=names, rows=len(rows)))
            continue
        labels, logits = active.labels[rows], active.logits[rows]
        low, high = interval(active.task, logits, labels, seed)
        gain = None
        if names and alone is not None:
            gain = gain_over(replace(active, labels=labels, logits=logits), alone[rows], names, seed)
        value = active.task.evaluate(logits, labels)[active.task.metric]
        measured.append(PatternUtility(parties=names, rows=len(labels), value=value, low=low, high=high, gain=gain))
    return tuple(measured)


def contributions(active: ActiveOutcome, parties: Names, seed: int) -> tuple[Gain, ...]:
    """Shapley value of each passive party, with the metric on the held-out rows as the worth of a set of parties.

    The worth of no party is that of the active party's own columns, or of chance if it has none.

    Args:
        active: Results of the run, with the logits of every set of absent parties.
        parties: The passive parties that were there at the end.
        seed: Seed of the resampling, which is the same for all sets.

    Returns:
        One for each party; none for more than 6 parties, or where a set is not measured.

    Reference: Shapley 1953, A value for n-person games.
    """
    task, labels = active.task, active.labels
    if len(parties) > MAX_PARTIES_OF_ALL_SETS or len(labels) < 2:
        return ()
    chance = (
        task.chance if task.target != "ranking" else task.evaluate(torch.zeros(len(labels), 1), labels)[task.metric]
    )
    worth = {frozenset[str](): np.full(1, chance)}  # replaced where own columns answer without any party
    for absent, logits in {(): active.logits, **active.logits_without}.items():
        value = task.evaluate(logits, labels)[task.metric]
        worth[frozenset(parties) - {*absent}] = np.append(value, metric_replicates(task, logits, labels, seed))
    gains = []
    for name, values in shapley(parties, worth).items():
        low, high = percentile_interval(values[1:])
        gains.append(Gain(parties=(name,), value=float(values[0]), low=low, high=high))
    return tuple(gains)


def shapley(players: Sequence[str], worth: Mapping[frozenset[str], Floats]) -> dict[str, Floats]:
    """Mean, over the orders in which the players may come, of what each adds to those before it.

    Args:
        players: Names of the n players.
        worth: Worth of every set of them, arrays of one shape.

    >>> worth = {frozenset(): 0.0, frozenset("a"): 1.0, frozenset("b"): 2.0, frozenset("ab"): 4.0}
    >>> shapley("ab", {names: np.array(value) for names, value in worth.items()})
    {'a': array([1.5]), 'b': array([2.5])}
    """
    values: dict[str, Floats] = {}
    for name in players:
        others = [other for other in players if other != name]
        # The share of the orders in which exactly these come before: 1 / n, over the number of sets of their size.
        values[name] = np.zeros(1)
        for size in range(len(players)):
            for before in combinations(others, size):
                added = worth[frozenset({*before, name})] - worth[frozenset(before)]
                values[name] = values[name] + added / (len(players) * math.comb(len(others), size))
    return values
