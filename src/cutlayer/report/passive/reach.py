"""How far attacks on a party's columns reach, each figure with the weakest knowledge that reaches it."""

from __future__ import annotations

from collections.abc import Sequence

from cutlayer.attacks.knowledge import Need, condition, in_words
from cutlayer.report.grading import MIN_REBUILT_SHARE, rebuilt_phrase
from cutlayer.report.rounding import count, metric, share
from cutlayer.results.columns_read import counted, is_of_columns, reach
from cutlayer.results.features import FeatureResult
from cutlayer.results.metric_names import name_of

_OF_ROWS = (Need.AUXILIARY_FEATURES, Need.INITIAL_WEIGHTS, Need.SIMULATOR, Need.SHADOW_ROWS, Need.CANDIDATE_ROWS)
"""Knowledge beyond that of the population, the weakest first."""
MAX_WORDS = 3
"""Knowledge in a headline: two sentences have 25 words each."""


def knowledge_rank(result: FeatureResult) -> int:
    """Rank of an attacker's knowledge: 0 for none, 1 for the population alone, above that of rows and models."""
    ranks = (_OF_ROWS.index(need) + 2 if need in _OF_ROWS else 1 for need in result.knowledge)
    return max(ranks, default=0)


def weakest_first(results: Sequence[FeatureResult]) -> list[FeatureResult]:
    """Results by the strength of their knowledge, without those that less knowledge reaches too.

    Results are compared where they have the same metric of the same column.
    """
    shown: list[FeatureResult] = []
    best: dict[tuple[str, str], float] = {}
    known = [result for result in results if result.value is not None]
    for result in sorted(known, key=lambda result: (knowledge_rank(result), -(result.value or 0.0))):
        about, value = (result.metric, result.column), result.value or 0.0
        if about not in best or value > best[about]:
            best[about] = value
            shown.append(result)
    return shown


def ability_phrase(result: FeatureResult, whose: str = "") -> str:
    """What the attacker can do, in a few words.

    Args:
        result: Result of an attack.
        whose: Owner of the columns, after "of"; empty for none.
    """
    of = f" of {whose}" if whose else ""
    if result.metric == "exact":
        read, columns = counted(result)
        return f"read {count(read)} of {count(columns)} columns{of} exactly" if columns else f"read values{of} exactly"
    if result.metric == "r2":
        return f"rebuild {rebuilt_phrase(result.value or 0.0)} of the columns{of}"
    return f"infer the column {result.column}{of}" if result.column else f"tell which rows{of} were trained on"


def figure_text(result: FeatureResult) -> str:
    """The value of an attack's metric, with its name."""
    if result.metric == "exact":
        return f"{share(result.value or 0.0, 1)} of values exact"
    return f"{name_of(result.metric)} {metric(result.value)}"


def knowledge_text(result: FeatureResult) -> str:
    """What the attacker knows besides what it received, for a table."""
    return "; ".join(in_words(result.knowledge, result.known)) or "nothing but what it received"


def short_knowledge_phrase(result: FeatureResult) -> str:
    """What the attacker knows besides, in a few words, with a preposition."""
    if not result.knowledge:
        return "without any knowledge"
    words = condition(result.knowledge, result.known) or knowledge_text(result)
    return f"with {words}" if len(words.split()) <= MAX_WORDS else "with more knowledge"


def headline_results(results: Sequence[FeatureResult]) -> list[FeatureResult]:
    """The results that a headline names: the weakest knowledge that reads columns, and the one that reads most."""
    read = [result for result in weakest_first(results) if _extent(result) >= MIN_REBUILT_SHARE]
    if not read:
        return []
    most = max(read, key=lambda result: (round(_extent(result), 2), -knowledge_rank(result)))
    return [read[0]] if knowledge_rank(most) == knowledge_rank(read[0]) else [read[0], most]


def _extent(result: FeatureResult) -> float:
    """Part of the columns that an attack reads, 0 to 1; 0 where it is of a single column, or of membership."""
    return reach(result) if is_of_columns(result) else 0.0
