"""The claims of ByteDance's report about gradients, judged by the results of the gradient-leakage study."""

from __future__ import annotations

from itertools import pairwise

from studies.claims import NOT_TRIED, Claim, Verdict, above, all_hold, below, within
from studies.results import (
    UNDEFENDED,
    Results,
    TrialResult,
    Value,
    comma_separated,
    distance_from_chance,
    formatted,
    leak,
    metric,
)

ATTACKS = ("norm", "direction", "hint", "spectral")
PUBLISHED = "norm"
"""The attack of the report; the others are published elsewhere, and are judged beside it."""
GROUPS = ("Criteo", "Avazu")
BY_DAY = "Avazu, by day"
DAY_SETTINGS = (UNDEFENDED, "sum_kl 3.6", "sum_kl 0.49", "sum_kl 0.16", "sum_kl 0.01", "max_norm")
ORDER = (
    UNDEFENDED,
    "sum_kl 3.6",
    "sum_kl 1.44",
    "sum_kl 0.64",
    "sum_kl 0.49",
    "sum_kl 0.16",
    "sum_kl 0.01",
)
"""Leaks in ByteDance's report fall in this order; max norm is between 0.49 and 0.16."""
RECOMMENDED = ("sum_kl 0.64", "sum_kl 0.49", "sum_kl 0.16")
LOSSES = {"sum_kl 0.49": 0.012, "sum_kl 0.16": 0.014, "sum_kl 0.01": 0.04}
"""Test AUC lost to the noise in the report."""


def gradient_claims(results: Results, group: str) -> list[Claim]:
    """The claims about one data set."""
    order = [
        claim for attack in ATTACKS for claim in (_order(results, group, attack), _max_norm(results, group, attack))
    ]
    order.insert(2, _max_norm(results, group, PUBLISHED, "last"))
    return [*order, _performance(results, group), *_range(results, group), *_cost(results, group)]


def gain(key: str, when: str = "auc") -> Value:
    """|AUC - 0.5| of the attack `message/attack`, at its worst epoch, or at the last one."""

    def value(result: TrialResult) -> float | None:
        return distance_from_chance(result.leaks[key][when]) if key in result.leaks else None

    return value


def short(setting: str) -> str:
    """A setting without the name of its parameter."""
    return setting.removeprefix("sum_kl ")


def _order(results: Results, group: str, attack: str) -> Claim:
    steps = {
        f"{short(a)} to {short(b)}": results.difference((group, a), (group, b), gain(f"gradient/{attack}"))
        for a, b in pairwise(ORDER)
    }
    verdicts = {name: above(step, 0.0) for name, step in steps.items()}
    clear = sum(verdict == Verdict.HOLDS for verdict in verdicts.values())
    rest = [f"{name} by {formatted(steps[name])}" for name, verdict in verdicts.items() if verdict != Verdict.HOLDS]
    text = f"`{attack}`: leak falls in the order none, 3.6, 1.44, 0.64, 0.49, 0.16, 0.01"
    ours = f"{clear} of {len(steps)} falls are resolved" + (f", not {', '.join(rest)}" if rest else "")
    paper = "none >> 3.6 >>> 1.44 >> 0.64 > 0.49 >> 0.16 > 0.01" if attack == PUBLISHED else NOT_TRIED
    return Claim(text, paper, ours, all_hold(verdicts.values()))


def _max_norm(results: Results, group: str, attack: str, when: str = "auc") -> Claim:
    """The place of max norm at the worst epoch, or at the last, which is that of the report."""
    value = gain(f"gradient/{attack}", when)
    less = results.difference((group, "sum_kl 0.49"), (group, "max_norm"), value)
    more = results.difference((group, "max_norm"), (group, "sum_kl 0.16"), value)
    return Claim(
        f"`{attack}`, {'last' if when == 'last' else 'worst'} epoch: max norm leaks less than 0.49 and more than 0.16",
        "0.49 > max norm >> 0.16" if when == "last" else NOT_TRIED,
        f"{formatted(less)} less, {formatted(more)} more",
        all_hold((above(less, 0.0), above(more, 0.0))),
    )


def _performance(results: Results, group: str) -> Claim:
    """The order of the test AUCs: the recommended range costs less than 0.16 does, and that less than 0.01."""
    steps = [
        results.difference((group, a), (group, b), metric)
        for a, b in (("sum_kl 3.6", "sum_kl 0.16"), ("sum_kl 0.49", "sum_kl 0.16"), ("sum_kl 0.16", "sum_kl 0.01"))
    ]
    text = "Test AUC falls in the order 3.6 and 0.49, 0.16, 0.01"
    verdict = all_hold(above(step, 0.0) for step in steps)
    return Claim(text, "none > 3.6, ..., 0.49 > 0.16 > 0.01", f"falls by {comma_separated(steps)}", verdict)


def _range(results: Results, group: str) -> list[Claim]:
    claims = []
    for attack in ATTACKS:
        leaks = [results.mean((group, setting), leak(f"gradient/{attack}")) for setting in RECOMMENDED]
        text = f"`{attack}`: leak AUC at 0.64, 0.49 and 0.16 is below 0.6"
        verdict = all_hold(below(value, 0.6) for value in leaks)
        claims.append(Claim(text, "0.5 to 0.6" if attack == PUBLISHED else NOT_TRIED, comma_separated(leaks), verdict))
    left = results.mean((group, "sum_kl 0.16"), leak("embedding/spectral"))
    text = "The noise does not protect the embedding, whose leak at 0.16 stays above 0.6"
    return [*claims, Claim(text, "about 0.75 (Sun et al., s = 8)", formatted(left), above(left, 0.6))]


def _cost(results: Results, group: str) -> list[Claim]:
    claims = []
    for setting, paper in LOSSES.items():
        lost = results.loss((group, setting))
        text = f"{setting} costs {paper:g} of test AUC, within 0.01"
        claims.append(Claim(text, f"{paper:g}", formatted(lost), within(lost, paper, 0.01)))
    losses = [results.loss((group, setting)) for setting in RECOMMENDED]
    text = "0.64, 0.49 and 0.16 cost less than 0.02"
    verdict = all_hold(below(lost, 0.02) for lost in losses)
    return [*claims, Claim(text, "under 0.02", comma_separated(losses), verdict)]
