"""What attacks read of a party's columns, in words."""

from __future__ import annotations

from cutlayer.attacks.knowledge import condition
from cutlayer.report.grading import rebuilt_phrase
from cutlayer.report.matrix import leak_step
from cutlayer.report.rounding import metric, share
from cutlayer.results.columns_read import counted, reach
from cutlayer.results.features import FeatureResult

EXACT_NOTE = "Exactly is up to the names of columns, and the offset, unit and sign of numbers"


def columns_read_figure(result: FeatureResult) -> str:
    r"""What an attack reads, as a figure.

    >>> exact = {"run": "this run", "party": "telco", "attack": "x", "release": "", "known": 0, "rows": 9}
    >>> exact |= {"metric": "exact", "value": 0.85, "baseline": 0.5}
    >>> columns_read_figure(FeatureResult(**exact, metrics={"columns_read": 42.0, "columns": 50.0}))
    '42 of 50 exactly'
    >>> columns_read_figure(FeatureResult(**exact)), columns_read_figure(FeatureResult(**exact | {"metric": "r2"}))
    ('85.0\xa0% of values', 'R² 0.850')
    """
    if result.metric == "r2":
        return f"R\u00b2 {metric(result.value)}"
    read, columns = counted(result)
    return f"{read} of {columns} exactly" if read or not result.value else f"{share(result.value, 1)} of values"


def columns_read_phrase(result: FeatureResult) -> str:
    """What an attack does to the columns of a party, as the end of a sentence."""
    if result.metric == "r2":
        return f"can rebuild {rebuilt_phrase(result.value or 0.0)} of the columns of {result.party}"
    read, columns = counted(result)
    if read or not result.value:
        return f"reads {read or 'none'} of {columns} columns of {result.party} exactly"
    return f"reads {share(result.value, 1)} of the values of {result.party} exactly"


def column_strength(result: FeatureResult) -> int:
    """Step of the colour scale of leaks, with all columns as every label."""
    return leak_step(0.5 + reach(result) / 2)


def knowledge_phrase(result: FeatureResult) -> str:
    """An attacker's required knowledge of rows, in a few words."""
    needed = condition(result.knowledge, result.known)
    return f"with {needed}" if needed else "without a known row"
