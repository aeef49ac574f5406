"""The page of the label-dp study: what eps costs, what it leaves, and what drawing again would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

from studies.base import ASSIGNED, Found, Mean, table
from studies.claims import (
    Claim,
    Runs,
    Value,
    above,
    below,
    claims_table,
    every,
    leak,
    metric,
    shown,
    verdicts,
    within,
)
from studies.figures import Dot, Dots, plot

GROUPS = {"Criteo": "test AUC", "handwritten": "test accuracy"}
EPS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
REDRAWN_EPS = (0.5, 1.0, 2.0)
ONCE, EACH_EPOCH = "drawn once", "drawn in every epoch"
EPOCHS = {"Criteo": 12, "handwritten": 30}
ATTACKS = ("norm", "direction", "spectral")
SLACK = 0.02
"""How far the worst of twelve epochs of a sampled leak may lie above what one draw tells."""


def in_one_place(group: str) -> str:
    """Name of the cells that train without a cut."""
    return f"{group}, in one place"


def told_by_one_draw(eps: float) -> float:
    """AUC of a binary drawn label as a score of the true one: e^eps / (1 + e^eps), whatever the share of positives.

    >>> round(told_by_one_draw(1.0), 3)
    0.731
    """
    return 1 / (1 + math.exp(-eps))


def right_by_vote(eps: float, draws: int) -> float:
    """Chance that a majority of independent draws of a binary label is right; an even split is half right.

    >>> round(right_by_vote(1.0, 15), 3), round(right_by_vote(1.0, 1), 3)
    (0.973, 0.731)
    """
    right = stats.binom(draws, told_by_one_draw(eps))
    return float(right.sf(draws // 2) + (right.pmf(draws // 2) / 2 if draws % 2 == 0 else 0))


class LabelDPPage:
    """What the results say."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def text(self) -> str:
        """The body of the page."""
        claims = self.claims()
        parts = [verdicts(claims), "The reference is the theory of the mechanism unless a source is named."]
        parts.append(claims_table(claims))
        for group, name in GROUPS.items():
            if self.runs.settings(group):
                parts += [f"## {group}", _picture(group, f"{name} and leak by eps"), self._table(group)]
        parts += ["## What drawing again in every epoch would cost", _REDRAWING, self._redrawing()]
        return "\n\n".join(parts)

    def claims(self) -> list[Claim]:
        """All that theory says, judged."""
        return [*self._utility_claims(), *self._leak_claims(), *self._redrawing_claims()]

    def figures(self) -> dict[str, str]:
        """A figure per data set, of what has been run."""
        return {_file(group): self._figure(group) for group in GROUPS if self.runs.settings(group)}

    def _utility_claims(self) -> list[Claim]:
        claims = []
        for group, name in GROUPS.items():
            small, large = self.runs.loss((group, "eps 0.5")), self.runs.loss((group, "eps 5"))
            gap = self.runs.difference((group, "eps 5"), (group, "eps 0.5"), metric)
            told = f"{shown(small)} at 0.5, {shown(large)} at 5; {shown(gap)} more"
            claims += [
                Claim(f"{group}: a smaller eps costs more {name}", "fewer right labels", told, above(gap, 0.0)),
                Claim(
                    f"{group}: eps 5 costs less than 0.01",
                    "0.7 % flipped" if group == "Criteo" else "6 % flipped",
                    shown(large),
                    below(large, 0.01),
                ),
            ]
        return claims

    def _leak_claims(self) -> list[Claim]:
        claims = []
        for attack in ATTACKS:
            means = {eps: self.runs.mean(("Criteo", f"eps {eps:g}"), leak(f"gradient/{attack}")) for eps in EPS}
            verdict = every(below(one, told_by_one_draw(eps) + SLACK) for eps, one in means.items())
            text = f"Criteo, `{attack}` on gradients learns no more than the drawn label tells, give or take {SLACK:g}"
            limits = ", ".join(f"{told_by_one_draw(eps):.3f}" for eps in EPS)
            claims.append(
                Claim(text, f"{limits} at eps {_listed(EPS)}", ", ".join(map(shown, means.values())), verdict)
            )
        return claims

    def _redrawing_claims(self) -> list[Claim]:
        claims = []
        for eps in REDRAWN_EPS:
            place = (in_one_place("Criteo"), f"eps {eps:g}, {EACH_EPOCH}")
            right, seen = self.runs.mean(place, _measured("right_vote")), self.runs.mean(place, _measured("vote_auc"))
            theory, once = right_by_vote(eps, EPOCHS["Criteo"]), told_by_one_draw(eps)
            text = f"Criteo, eps {eps:g}: a vote over {EPOCHS['Criteo']} epochs' draws is right that often, within 0.01"
            claims.append(Claim(text, f"{theory:.3f} (one draw {once:.3f})", shown(right), within(right, theory, 0.01)))
            text = f"Criteo, eps {eps:g}: the spectral attack, counted over the epochs, tells more than one draw"
            claims.append(Claim(text, f"one draw {once:.3f}", shown(seen), above(seen, once)))
        for group, name in GROUPS.items():
            gains = [self._gain(group, eps) for eps in REDRAWN_EPS]
            text = f"{group}: drawing again in every epoch looks better in {name}, since errors average out"
            ours = ", ".join(shown(gain) for gain in gains)
            paper = f"above 0 at eps {_listed(REDRAWN_EPS)}"
            claims.append(Claim(text, paper, ours, every(above(gain, 0.0) for gain in gains)))
        return claims

    def _gain(self, group: str, eps: float) -> Mean | None:
        place = in_one_place(group)
        return self.runs.difference((place, f"eps {eps:g}, {EACH_EPOCH}"), (place, f"eps {eps:g}, {ONCE}"), metric)

    def _table(self, group: str) -> str:
        keys = sorted(
            {
                key
                for setting in self.runs.settings(group)
                for one in self.runs.all((group, setting))
                for key in one.leaks
            }
        )
        head = ["setting", GROUPS[group], "lost (paired)", *(key.replace("/", ", ") for key in keys)]
        rows = []
        for setting in self.runs.settings(group):
            lost = "–" if setting == "undefended" else shown(self.runs.loss((group, setting)))
            leaks = [shown(self.runs.mean((group, setting), leak(key))) for key in keys]
            rows.append([setting, shown(self.runs.mean((group, setting), metric)), lost, *leaks])
        return f"{_LEAKS}\n\n{table(head, rows)}"

    def _redrawing(self) -> str:
        rows = []
        for group in GROUPS:
            for eps in REDRAWN_EPS:
                for how in (ONCE, EACH_EPOCH):
                    place = (in_one_place(group), f"eps {eps:g}, {how}")
                    figures = [
                        self.runs.mean(place, _measured(key))
                        for key in ("right_once", "right_vote", "once_auc", "vote_auc")
                    ]
                    spent = eps * (EPOCHS[group] if how == EACH_EPOCH else 1)
                    rows.append(
                        [
                            group,
                            f"{eps:g}",
                            how,
                            shown(self.runs.mean(place, metric)),
                            f"{spent:g}",
                            *map(shown, figures),
                        ]
                    )
        head = [
            "data",
            "eps of one draw",
            "labels",
            "test metric",
            "eps really spent",
            "right in one draw",
            "right by vote",
        ]
        return table([*head, "spectral AUC, first epoch", "spectral AUC, all epochs"], rows)

    def _figure(self, group: str) -> str:
        settings = [*(f"eps {eps:g}" for eps in EPS), "undefended"]
        values: dict[str, Value] = {GROUPS[group]: metric}
        attacks = [f"gradient/{attack}" for attack in ATTACKS] + ["embedding/spectral"]
        attacks += [f"{attack}, {ASSIGNED}" for attack in attacks]
        known = {key for setting in settings for one in self.runs.all((group, setting)) for key in one.leaks}
        values |= {f"leak AUC, {key.replace('/', ', ')}": leak(key) for key in attacks if key in known}
        series = []
        for name, value in values.items():
            means = [self.runs.mean((group, setting), value) for setting in settings]
            dots = tuple(Dot(place, m.value, None, m.half, settings[place]) for place, m in enumerate(means) if m)
            series.append(Dots(name, dots))
        return plot(series, ("label DP", "metric, leak AUC"), f"Utility and leak by eps, {group}", 0.5, settings)


_LEAKS = (
    "Leak columns: max(AUC, 1 - AUC), of the passive party that learns most and its worst epoch. Of several classes "
    "the spectral attack finds clusters and names them by their size, which says little where all are as large; the "
    "*best assignment* has the names that fit the truth best in each batch, at the same epoch, as for somebody who "
    "knows a row of each. It fits chance too, so it is above 0.5 where gradients tell next to nothing, at eps 0.1."
)
_REDRAWING = (
    "A run draws each label once, and nothing can make it draw again. So these cells train the same network in one "
    "place, without a cut, from the same weights and on the same batches, on labels drawn once or in every epoch. "
    "`right by vote` is the share of training labels that a majority of all draws gets right; the spectral columns "
    "attack the gradient that would have been sent, in the first epoch alone and with its guesses counted over all "
    "epochs."
)


def _measured(key: str) -> Value:
    def of(one: Found) -> float | None:
        return one.measured.get(key)

    return of


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _file(group: str) -> str:
    return f"label-dp-{group.lower()}.svg"


def _picture(group: str, text: str) -> str:
    return f"![{text}](figures/{_file(group)})"
