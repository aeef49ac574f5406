"""Predictions of theory about label differential privacy, judged by the results of the label-dp study."""

from __future__ import annotations

import math

from scipy import stats

from studies.claims import Claim, above, all_hold, below, within
from studies.results import Condition, Mean, Results, comma_separated, formatted, leak, measured, metric

GROUPS = {"Criteo": "test AUC", "handwritten": "test accuracy"}
EPS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
REDRAWN_EPS = (0.5, 1.0, 2.0)
ONCE, EACH_EPOCH = "drawn once", "drawn in every epoch"
EPOCHS = {"Criteo": 12, "handwritten": 30}
ATTACKS = ("norm", "direction", "spectral")
SLACK = 0.02
"""How far the worst of twelve epochs of a sampled leak may lie above the AUC of one draw."""


def centralised(group: str) -> str:
    """Name of the group whose trials train on all columns in one place, without a cut."""
    return f"{group}, centralised"


def redrawn(group: str, eps: float, draws: str) -> Condition:
    """Condition of a centralised training whose labels are drawn once or in every epoch."""
    return (centralised(group), f"eps {eps:g}, {draws}")


def one_draw_auc(eps: float) -> float:
    """AUC of a binary drawn label as a score of the true one: e^eps / (1 + e^eps), whatever the share of positives.

    >>> round(one_draw_auc(1.0), 3)
    0.731
    """
    return 1 / (1 + math.exp(-eps))


def majority_accuracy(eps: float, draws: int) -> float:
    """Probability that a majority of independent draws of a binary label is right; a tie is half right.

    >>> round(majority_accuracy(1.0, 15), 3), round(majority_accuracy(1.0, 1), 3)
    (0.973, 0.731)
    """
    right = stats.binom(draws, one_draw_auc(eps))
    return float(right.sf(draws // 2) + (right.pmf(draws // 2) / 2 if draws % 2 == 0 else 0))


def label_dp_claims(results: Results) -> tuple[Claim, ...]:
    """Every claim, judged."""
    return (*_utility(results), *_leaks(results), *_votes(results), *_gains(results))


def _utility(results: Results) -> list[Claim]:
    claims = []
    for group, name in GROUPS.items():
        small, large = results.loss((group, "eps 0.5")), results.loss((group, "eps 5"))
        gap = results.difference((group, "eps 5"), (group, "eps 0.5"), metric)
        ours = f"{formatted(small)} at 0.5, {formatted(large)} at 5; {formatted(gap)} more"
        flipped = "0.7 % flipped" if group == "Criteo" else "6 % flipped"
        claims += [
            Claim(f"{group}: a smaller eps costs more {name}", "fewer right labels", ours, above(gap, 0.0)),
            Claim(f"{group}: eps 5 costs less than 0.01", flipped, formatted(large), below(large, 0.01)),
        ]
    return claims


def _leaks(results: Results) -> list[Claim]:
    claims = []
    for attack in ATTACKS:
        means = {eps: results.mean(("Criteo", f"eps {eps:g}"), leak(f"gradient/{attack}")) for eps in EPS}
        verdict = all_hold(below(value, one_draw_auc(eps) + SLACK) for eps, value in means.items())
        text = f"Criteo, `{attack}` on gradients leaks no more than the drawn label itself, within {SLACK:g}"
        limits = ", ".join(f"{one_draw_auc(eps):.3f}" for eps in EPS)
        claims.append(Claim(text, f"{limits} at eps {comma_separated(EPS)}", comma_separated(means.values()), verdict))
    return claims


def _votes(results: Results) -> list[Claim]:
    claims = []
    for eps in REDRAWN_EPS:
        condition = redrawn("Criteo", eps, EACH_EPOCH)
        right, counted = (results.mean(condition, measured(key)) for key in ("right_vote", "vote_auc"))
        theory, once = majority_accuracy(eps, EPOCHS["Criteo"]), one_draw_auc(eps)
        text = f"Criteo, eps {eps:g}: a vote over the draws of {EPOCHS['Criteo']} epochs is right so often, within 0.01"
        paper = f"{theory:.3f} (one draw {once:.3f})"
        claims.append(Claim(text, paper, formatted(right), within(right, theory, 0.01)))
        text = f"Criteo, eps {eps:g}: the spectral attack, counted over the epochs, has a higher AUC than one draw"
        claims.append(Claim(text, f"one draw {once:.3f}", formatted(counted), above(counted, once)))
    return claims


def _gains(results: Results) -> list[Claim]:
    claims = []
    for group, name in GROUPS.items():
        gains = [_gain(results, group, eps) for eps in REDRAWN_EPS]
        text = f"{group}: drawing again in every epoch improves {name}, since errors average out"
        paper = f"above 0 at eps {comma_separated(REDRAWN_EPS)}"
        claims.append(Claim(text, paper, comma_separated(gains), all_hold(above(gain, 0.0) for gain in gains)))
    return claims


def _gain(results: Results, group: str, eps: float) -> Mean | None:
    return results.difference(redrawn(group, eps, EACH_EPOCH), redrawn(group, eps, ONCE), metric)
