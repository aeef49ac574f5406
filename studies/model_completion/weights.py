"""Settings with some weights of DIMIP, and the claim that one of them hides and keeps what the party adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.claims import Verdict, above, all_hold, any_holds, below
from studies.model_completion.claims import CLOSE, DIMIP_GAIN, dimip_setting, margin, remaining_gain
from studies.results import UNDEFENDED, Condition, Results, Value, formatted


def weight_settings(lams: Sequence[float]) -> dict[str, Mapping[str, Any]]:
    """Protections of the undefended setting, and of one for each weight."""
    return {UNDEFENDED: {}, **{dimip_setting(lam): {"dimip": {"lam": lam}} for lam in lams}}


def share_kept(results: Results, condition: Condition) -> str:
    """Share of the gain that a defence keeps, such as `74%`; empty where there is no gain."""
    share = remaining_gain(results, condition)
    return "" if share is None else f"{share:.0%}"


def some_weight_hides(
    results: Results, group: str, about: str, completion: str, attack: Value, lams: Sequence[float], chance: float
) -> tuple[str, str, Verdict]:
    """Text, numbers and verdict of the claim that one of some weights hides, and keeps what the passive party adds.

    Args:
        results: Results of the study.
        group: Data set.
        about: Name of the data set and the attack in the text.
        completion: What is known and trained, such as `completion with few labels`.
        attack: Accuracy of the completed model.
        lams: Weights of DIMIP.
        chance: Accuracy of guessing.
    """
    parts: list[Verdict] = []
    found: list[str] = []
    for lam in lams:
        condition = (group, dimip_setting(lam))
        reached, left = results.mean(condition, attack), margin(results, condition, DIMIP_GAIN)
        parts.append(all_hold((below(reached, chance + CLOSE), above(left, 0.0))))
        found.append(f"{formatted(reached)} at {share_kept(results, condition) or '–'} ({lam:g})")
    text = (
        f"{about}: one of lambda {', '.join(f'{lam:g}' for lam in lams)} brings {completion} within {CLOSE:g} of "
        f"chance and keeps {DIMIP_GAIN:.0%} of what the passive party adds to the accuracy"
    )
    return text, "; ".join(found), any_holds(parts)
