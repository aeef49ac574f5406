"""What attacks read of a party's columns, stated with the weakest knowledge that reaches it."""

from __future__ import annotations

from collections.abc import Iterable

from cutlayer.attacks.knowledge import Need, condition
from cutlayer.report.grading import rebuilding
from cutlayer.report.matrix import strength
from cutlayer.report.rounding import metric, share
from cutlayer.results.features import FeatureResult

NEARLY = 0.8
"""Part of the strongest attack's reach at which one that knows less is named in its place."""
EXACT = "Exactly is up to the names of columns, and the offset, unit and sign of numbers"


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


def _knowledge(result: FeatureResult) -> int:
    """Rank of an attacker's knowledge of rows: none, other rows of the population, or rows that were sent."""
    if not condition(result.knowledge, result.known):
        return 0
    return 2 if {Need.AUXILIARY_FEATURES, Need.INITIAL_WEIGHTS} & {*result.knowledge} else 1


def counted(result: FeatureResult) -> tuple[int, int]:
    """Number of columns that an attack reads exactly, and of all."""
    read, columns = (int(result.metrics.get(name) or 0) for name in ("columns_read", "columns"))
    return read, columns


def read_of_columns(result: FeatureResult) -> str:
    r"""What an attack reads, as a figure.

    >>> exact = {"run": "this run", "party": "telco", "attack": "x", "release": "", "known": 0, "rows": 9}
    >>> exact |= {"metric": "exact", "value": 0.85, "baseline": 0.5}
    >>> read_of_columns(FeatureResult(**exact, metrics={"columns_read": 42.0, "columns": 50.0}))
    '42 of 50 exactly'
    >>> read_of_columns(FeatureResult(**exact)), read_of_columns(FeatureResult(**exact | {"metric": "r2"}))
    ('85.0\xa0% of values', 'R² 0.850')
    """
    if result.metric == "r2":
        return f"R\u00b2 {metric(result.value)}"
    read, columns = counted(result)
    return f"{read} of {columns} exactly" if read or not result.value else f"{share(result.value, 1)} of values"


def reads_columns(result: FeatureResult) -> str:
    """What an attack does to the columns of a party, as the end of a sentence."""
    if result.metric == "r2":
        return f"can rebuild {rebuilding(result.value or 0.0)} of the columns of {result.party}"
    read, columns = counted(result)
    if read or not result.value:
        return f"reads {read or 'none'} of {columns} columns of {result.party} exactly"
    return f"reads {share(result.value, 1)} of the values of {result.party} exactly"


def column_strength(result: FeatureResult) -> int:
    """Step of the colour scale of leaks, with all columns as every label."""
    return strength(0.5 + reach(result) / 2)


def knowing(result: FeatureResult) -> str:
    """An attacker's required knowledge of rows, in a few words."""
    needed = condition(result.knowledge, result.known)
    return f"with {needed}" if needed else "without a known row"
