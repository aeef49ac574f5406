"""How far attacks reach into a party's columns, and which of them counts: the one that knows least."""

from __future__ import annotations

from collections.abc import Iterable

from cutlayer.attacks.knowledge import Need, condition
from cutlayer.results.features import FeatureResult

NEARLY = 0.8
"""Part of the strongest attack's reach at which one that knows less is named in its place."""


def reach(result: FeatureResult) -> float:
    """Part of the columns that an attack reads or rebuilds, 0 to 1: an R², or the share of columns read exactly.

    Where more values are read exactly than whole columns, it is the share of values beyond the commonest ones.
    """
    value = result.value or 0.0
    if result.metric == "exact":
        guessed = result.baseline or 0.0
        read, columns = counted(result)
        value = max(read / columns if columns else 0.0, (value - guessed) / (1 - guessed) if guessed < 1 else 0.0)
    return min(1.0, max(0.0, value))


def by_knowledge(results: Iterable[FeatureResult]) -> list[FeatureResult]:
    """Of each party's columns and each rank of knowledge the attack that reads most, those that know least first."""
    best: dict[tuple[str, int], FeatureResult] = {}
    for result in results:
        key = result.party, _knowledge(result)
        if is_of_columns(result) and result.value is not None and (key not in best or reach(result) > reach(best[key])):
            best[key] = result
    return [best[key] for key in sorted(best, key=lambda key: key[1])]


def weakest(results: Iterable[FeatureResult]) -> dict[str, FeatureResult]:
    """Of each party the attack on its columns that knows least, of those with nearly the reach of the strongest.

    To know nothing is least, then to have other rows of the population, then rows that were sent. Of those that know
    the same it is the strongest; of equal ones the first.
    """
    found: dict[str, FeatureResult] = {}
    known = by_knowledge(results)
    for result in known:
        most = max(reach(other) for other in known if other.party == result.party)
        if reach(result) >= NEARLY * most:
            found.setdefault(result.party, result)
    return found


def is_of_columns(result: FeatureResult) -> bool:
    """Whether an attack is on all columns of a party, and not on one of them or on membership."""
    return result.metric in ("exact", "r2") and not result.column


def counted(result: FeatureResult) -> tuple[int, int]:
    """Number of columns that an attack reads exactly, and of all."""
    read, columns = (int(result.metrics.get(name) or 0) for name in ("columns_read", "columns"))
    return read, columns


def _knowledge(result: FeatureResult) -> int:
    """Rank of an attacker's knowledge of rows: none, other rows of the population, or rows that were sent."""
    if not condition(result.knowledge, result.known):
        return 0
    return 2 if {Need.AUXILIARY_FEATURES, Need.INITIAL_WEIGHTS} & {*result.knowledge} else 1
