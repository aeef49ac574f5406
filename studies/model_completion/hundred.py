"""CIFAR-100: its trainings, the claims about them, and its section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.claims import Claim, above, all_hold, below
from studies.image_halves import LENET, ImageHalves
from studies.model_completion.attacks import FEW
from studies.model_completion.claims import alone, completed, dimip_setting, margin
from studies.model_completion.weights import share_kept, some_weight_hides, weight_settings
from studies.page import ClaimsTable, Section, table
from studies.results import UNDEFENDED, Condition, Results, SeedMean, TrialResult, formatted, measured, metric

HUNDRED = ImageHalves(
    "CIFAR-100 halves, subset", "cifar100/cifar100_subset.npz", LENET, epochs=12, batch=32, rows=12_000
)
"""The schedule of CIFAR-10 on as many rows of the other set."""
LAMS = (0.03, 0.05)
"""The weights that hide most on CIFAR-10 among those that keep more than half of what the party adds."""
CHANCE, HALF = 0.01, 0.5
_ATTACK, _SCRATCH = completed("honest", FEW, "frozen"), completed("scratch", FEW)
_TEXT = (
    f"The first {HUNDRED.rows:,} rows of a stratified subset, network and schedule of CIFAR-10; undefended, and at the "
    "two weights of DIMIP that hide most on CIFAR-10 among those that keep more than half of what the party adds. The "
    "attacker has 400 labels, 4 of each class. Only the passive attack on the frozen extractor was run."
)


def settings() -> dict[str, Mapping[str, Any]]:
    """Protections of each setting."""
    return weight_settings(LAMS)


def hundred_sections(results: Results) -> list[Section]:
    """Claims and table, if there are results."""
    group = HUNDRED.group
    if not results.settings(group):
        return []
    columns = {
        "model": results.column(metric),
        "lost (paired)": results.loss_column(blank=""),
        "after the departure": results.column(measured("after")),
        "passive, few, frozen": results.column(_ATTACK),
        "norm": results.column(measured("norm")),
        "spread": results.column(measured("spread")),
        "gain kept": lambda own: share_kept(results, own),
    }
    undefended = (group, UNDEFENDED)
    ends = (
        f"The active party alone: {formatted(results.mean(undefended, alone))}; from scratch on the few labels: "
        f"{formatted(results.mean(undefended, _SCRATCH))}."
    )
    rows = table("defence", results.conditions(group), columns)
    return [Section(group, (_TEXT, ClaimsTable(_claims(results)), ends, rows))]


def _claims(results: Results) -> tuple[Claim, ...]:
    base = (HUNDRED.group, UNDEFENDED)
    few = results.difference(base, base, _ATTACK, _SCRATCH)
    added = margin(results, base, 0.0)
    return (
        Claim(
            "CIFAR-100: the passive party adds to the accuracy of the active party alone",
            "yes",
            f"{formatted(added)} more",
            above(added, 0.0),
        ),
        Claim(
            "CIFAR-100: undefended, completion with few labels beats training from scratch on them",
            "yes (Fu et al.)",
            f"{formatted(few)} more",
            above(few, 0.0),
        ),
        _chance(results),
        *(_halved(results, lam) for lam in LAMS),
    )


def _chance(results: Results) -> Claim:
    about, how = "CIFAR-100, passive attack", "completion on the frozen extractor with few labels"
    text, found, verdict = some_weight_hides(results, HUNDRED.group, about, how, _ATTACK, LAMS, CHANCE)
    # Two weights cannot refute a claim about some weight, so it is not counted as the paper's.
    return Claim(text, "figures 4, 5", found, verdict, own=True)


def _halved(results: Results, lam: float) -> Claim:
    """Whether a weight takes back half of what completion has over scratch, and keeps half of the gain."""
    base, own = (HUNDRED.group, UNDEFENDED), (HUNDRED.group, dimip_setting(lam))
    beyond = _beyond_half(results, own, base)
    left = margin(results, own, HALF)
    text = (
        f"CIFAR-100: lambda {lam:g} takes back half of what completion with few labels has over training from scratch "
        f"on them, and keeps {HALF:.0%} of what the passive party adds"
    )
    ours = f"attack {formatted(results.mean(own, _ATTACK))}, {share_kept(results, own) or '–'} kept"
    return Claim(text, "–", ours, all_hold((below(beyond, 0.0), above(left, 0.0))))


def _beyond_half(results: Results, own: Condition, base: Condition) -> SeedMean | None:
    """Completion under a defence, above the middle between the undefended one and training from scratch."""

    def middle(undefended: TrialResult) -> float | None:
        attack, scratch = _ATTACK(undefended), _SCRATCH(undefended)
        return None if attack is None or scratch is None else scratch + HALF * (attack - scratch)

    return results.difference(own, base, _ATTACK, middle)
