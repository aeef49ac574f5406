"""The claims of ByteDance's report about gradients, judged by the results of the gradient-leakage study."""

from __future__ import annotations

from itertools import pairwise

from studies.claims import NOT_TRIED, Claim, above, below, within
from studies.results import (
    UNDEFENDED,
    Results,
    TrialResult,
    Value,
    distance_from_chance,
    formatted,
    leak,
    metric,
)

ATTACKS = ("norm", "direction", "hint", "spectral")
PUBLISHED = "norm"
"""The attack of the report; the others are published elsewhere, and are judged beside it."""
GROUPS = ("Criteo", "Avazu")
AT_BOTH = "Avazu, columns at both"
"""Group whose active party has columns of its own, as the report's may."""
AT_BOTH_SETTINGS = (UNDEFENDED, "sum_kl 0.16", "max_norm")
BY_DAY = "Avazu, by day"
DAY_SETTINGS = (UNDEFENDED, *(f"sum_kl {kl}" for kl in ("3.6", "1.44", "0.64", "0.49", "0.16", "0.01")), "max_norm")
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
_PUBLISHED_ORDER = "none >> 3.6 >>> 1.44 >> 0.64 > 0.49 >> 0.16 > 0.01"
LOSSES = {"sum_kl 0.49": 0.012, "sum_kl 0.16": 0.014, "sum_kl 0.01": 0.04}
"""Test AUC lost to the noise in the report."""


def gradient_claims(results: Results, group: str) -> list[Claim]:
    """The claims about one data set."""
    order = []
    for attack in ATTACKS:
        order += [*_order(results, group, attack), *_max_norm(results, group, attack)]
        order += _max_norm(results, group, attack, "last") if attack == PUBLISHED else []
    return [*order, *_performance(results, group), *_range(results, group), *_cost(results, group)]


def at_both_claims(results: Results) -> list[Claim]:
    """The claims about the group whose active party has columns too."""
    claims, noise = [], (AT_BOTH, "sum_kl 0.16")
    for attack in ATTACKS:
        published = attack == PUBLISHED
        fall = results.difference((AT_BOTH, UNDEFENDED), noise, gain(f"gradient/{attack}"))
        left = results.mean(noise, leak(f"gradient/{attack}"))
        order, bound = (_PUBLISHED_ORDER, "0.5 to 0.6") if published else (NOT_TRIED, NOT_TRIED)
        text = f"`{attack}`: leak falls from {short(UNDEFENDED)} to 0.16"
        claims.append(Claim(text, order, f"by {formatted(fall)}", above(fall, 0.0)))
        claims.append(Claim(f"`{attack}`: leak AUC at 0.16 is below 0.6", bound, formatted(left), below(left, 0.6)))
    lost = results.loss(noise)
    text = "sum_kl 0.16 costs less than 0.02 of test AUC"
    return [*claims, Claim(text, "under 0.02", formatted(lost), below(lost, 0.02))]


def gain(key: str, when: str = "auc") -> Value:
    """|AUC - 0.5| of the attack `message/attack`, at its worst epoch, or at the last one."""

    def value(result: TrialResult) -> float | None:
        return distance_from_chance(result.leaks[key][when]) if key in result.leaks else None

    return value


def short(setting: str) -> str:
    """A setting without the name of its parameter."""
    return setting.removeprefix("sum_kl ")


def _order(results: Results, group: str, attack: str) -> list[Claim]:
    claims = []
    for first, second in pairwise(ORDER):
        fall = results.difference((group, first), (group, second), gain(f"gradient/{attack}"))
        text = f"`{attack}`: leak falls from {short(first)} to {short(second)}"
        paper = _PUBLISHED_ORDER if attack == PUBLISHED else NOT_TRIED
        claims.append(Claim(text, paper, f"by {formatted(fall)}", above(fall, 0.0)))
    return claims


def _max_norm(results: Results, group: str, attack: str, when: str = "auc") -> list[Claim]:
    """The place of max norm at the worst epoch, or at the last, which is that of the report."""
    value = gain(f"gradient/{attack}", when)
    less = results.difference((group, "sum_kl 0.49"), (group, "max_norm"), value)
    more = results.difference((group, "max_norm"), (group, "sum_kl 0.16"), value)
    prefix = f"`{attack}`, {'last' if when == 'last' else 'worst'} epoch: max norm leaks"
    paper = "0.49 > max norm >> 0.16" if when == "last" else NOT_TRIED
    return [
        Claim(f"{prefix} less than 0.49", paper, f"{formatted(less)} less", above(less, 0.0)),
        Claim(f"{prefix} more than 0.16", paper, f"{formatted(more)} more", above(more, 0.0)),
    ]


def _performance(results: Results, group: str) -> list[Claim]:
    """The order of the test AUCs: the recommended range costs less than 0.16 does, and that less than 0.01."""
    claims = []
    for first, second in (
        ("sum_kl 3.6", "sum_kl 0.16"),
        ("sum_kl 0.49", "sum_kl 0.16"),
        ("sum_kl 0.16", "sum_kl 0.01"),
    ):
        fall = results.difference((group, first), (group, second), metric)
        text = f"Test AUC falls from {short(first)} to {short(second)}"
        claims.append(Claim(text, "none > 3.6, ..., 0.49 > 0.16 > 0.01", f"by {formatted(fall)}", above(fall, 0.0)))
    return claims


def _range(results: Results, group: str) -> list[Claim]:
    claims = []
    for attack in ATTACKS:
        paper = "0.5 to 0.6" if attack == PUBLISHED else NOT_TRIED
        for setting in RECOMMENDED:
            reached = results.mean((group, setting), leak(f"gradient/{attack}"))
            text = f"`{attack}`: leak AUC at {short(setting)} is below 0.6"
            claims.append(Claim(text, paper, formatted(reached), below(reached, 0.6)))
    left = results.mean((group, "sum_kl 0.16"), leak("embedding/spectral"))
    text = "The noise does not protect the embedding, whose leak at 0.16 stays above 0.6"
    return [*claims, Claim(text, "about 0.75 (Sun et al., s = 8)", formatted(left), above(left, 0.6))]


def _cost(results: Results, group: str) -> list[Claim]:
    claims = []
    for setting, paper in LOSSES.items():
        lost = results.loss((group, setting))
        text = f"{setting} costs {paper:g} of test AUC, within 0.01"
        claims.append(Claim(text, f"{paper:g}", formatted(lost), within(lost, paper, 0.01)))
    for setting in RECOMMENDED:
        lost = results.loss((group, setting))
        text = f"{setting} costs less than 0.02 of test AUC"
        claims.append(Claim(text, "under 0.02", formatted(lost), below(lost, 0.02)))
    return claims
