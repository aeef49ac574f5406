"""The page of the gradient-leakage study: claims, tables and figures from its results."""

from __future__ import annotations

from itertools import pairwise

from studies.base import Found, distance, table
from studies.claims import (
    Claim,
    Runs,
    Value,
    Verdict,
    above,
    below,
    claims_table,
    every,
    layer_leak,
    leak,
    metric,
    shown,
    verdicts,
    within,
)
from studies.days import TEST, Days
from studies.figures import Dot, Dots, plot

ATTACKS = ("norm", "direction", "hint", "spectral")
GROUPS = ("Criteo", "Avazu")
DAYS = "Avazu, by day"
DAY_SETTINGS = ("undefended", "sum_kl 3.6", "sum_kl 0.49", "sum_kl 0.16", "sum_kl 0.01", "max_norm")
ORDER = (
    "undefended",
    "sum_kl 3.6",
    "sum_kl 1.44",
    "sum_kl 0.64",
    "sum_kl 0.49",
    "sum_kl 0.16",
    "sum_kl 0.01",
)
"""Leaks in ByteDance's report fall in this order; max norm stands between 0.49 and 0.16."""
RECOMMENDED = ("sum_kl 0.64", "sum_kl 0.49", "sum_kl 0.16")
LOSSES = {"sum_kl 0.49": 0.012, "sum_kl 0.16": 0.014, "sum_kl 0.01": 0.04}
"""AUC lost to the noise in the report."""
LAYERS = "publisher/"


class GradientPage:
    """What the results say."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.days = Days(runs, DAYS, DAY_SETTINGS, ATTACKS)

    def text(self) -> str:
        """The body of the page."""
        claims = self.claims()
        parts = [verdicts([claim for own in claims.values() for claim in own])]
        for group, own in claims.items():
            parts += [f"## Claims: {group}", claims_table(own)]
        for group in GROUPS:
            if self.runs.settings(group):
                parts += [
                    f"## {group}",
                    _picture(_name(group), f"Leak of every defence on {group}"),
                    self._table(group),
                ]
        if self._layer_names():
            parts += ["## Every layer of the passive network, Criteo", _picture("layers", "Leak of every layer")]
            parts += ["Leak columns: max(AUC, 1 - AUC) of the spectral attack at the worst epoch.", self._layers()]
        if self.days.days:
            parts += ["## Avazu, by day", _picture("days-test", "Test AUC by day")]
            parts += [_picture(f"days-{attack}", f"Leak under {attack} by day") for attack in ATTACKS]
            parts.append(self.days.text())
        return "\n\n".join(parts)

    def figures(self) -> dict[str, str]:
        """The page's figures, of what has been run."""
        found = {_name(group): self._group_figure(group) for group in GROUPS if self.runs.settings(group)}
        if self._layer_names():
            found["layers"] = self._layers_figure()
        if self.days.days:
            found["days-test"] = self.days.figure(TEST, "test AUC")
            labels = {attack: f"leak AUC above 0.5, {attack}" for attack in ATTACKS}
            found |= {f"days-{a}": self.days.figure(f"gradient/{a}", label) for a, label in labels.items()}
        return {_file(key): picture for key, picture in found.items()}

    def claims(self) -> dict[str, list[Claim]]:
        """Every claim of the report, judged, by group."""
        found = {group: [*self._order(group), *self._range(group), *self._cost(group)] for group in GROUPS}
        return found | ({DAYS: self.days.claims(ORDER, LOSSES)} if self.days.days else {})

    def _order(self, group: str) -> list[Claim]:
        claims = []
        for attack in ATTACKS:
            value = _gain(f"gradient/{attack}")
            steps = {
                f"{_short(a)} to {_short(b)}": self.runs.difference((group, a), (group, b), value)
                for a, b in pairwise(ORDER)
            }
            judged = {name: above(step, 0.0) for name, step in steps.items()}
            clear = sum(verdict == Verdict.HOLDS for verdict in judged.values())
            rest = [f"{name} by {shown(steps[name])}" for name, verdict in judged.items() if verdict != Verdict.HOLDS]
            text = f"`{attack}`: leak falls in the order none, 3.6, 1.44, 0.64, 0.49, 0.16, 0.01"
            ours = f"{clear} of {len(steps)} falls are resolved" + (f", not {', '.join(rest)}" if rest else "")
            claims.append(
                Claim(text, "none >> 3.6 >>> 1.44 >> 0.64 > 0.49 >> 0.16 > 0.01", ours, every(judged.values()))
            )
            less = self.runs.difference((group, "sum_kl 0.49"), (group, "max_norm"), value)
            more = self.runs.difference((group, "max_norm"), (group, "sum_kl 0.16"), value)
            claims.append(
                Claim(
                    f"`{attack}`: max norm leaks less than 0.49 and more than 0.16",
                    "0.49 > max norm >> 0.16",
                    f"{shown(less)} less, {shown(more)} more",
                    every((above(less, 0.0), above(more, 0.0))),
                )
            )
        return claims

    def _range(self, group: str) -> list[Claim]:
        claims = []
        for attack in ATTACKS:
            leaks = [self.runs.mean((group, setting), leak(f"gradient/{attack}")) for setting in RECOMMENDED]
            text = f"`{attack}`: 0.64, 0.49 and 0.16 leave a leak AUC below 0.6"
            ours = ", ".join(shown(one) for one in leaks)
            claims.append(Claim(text, "0.5 to 0.6", ours, every(below(one, 0.6) for one in leaks)))
        left = self.runs.mean((group, "sum_kl 0.16"), leak("embedding/spectral"))
        text = "The noise does not protect the embedding, whose leak at 0.16 stays above 0.6"
        return [*claims, Claim(text, "about 0.75 (Sun et al., s = 8)", shown(left), above(left, 0.6))]

    def _cost(self, group: str) -> list[Claim]:
        claims = []
        for setting, paper in LOSSES.items():
            lost = self.runs.loss((group, setting))
            text = f"{setting} costs {paper:g} of test AUC, within 0.01"
            claims.append(Claim(text, f"{paper:g}", shown(lost), within(lost, paper, 0.01)))
        losses = [self.runs.loss((group, setting)) for setting in RECOMMENDED]
        text = "0.64, 0.49 and 0.16 cost less than 0.02"
        ours = ", ".join(shown(lost) for lost in losses)
        return [*claims, Claim(text, "under 0.02", ours, every(below(lost, 0.02) for lost in losses))]

    def _table(self, group: str) -> str:
        head = [
            "defence",
            "test AUC",
            "lost (paired)",
            *(f"{a} on gradients" for a in ATTACKS),
            "spectral on the embedding",
        ]
        keys = [*(f"gradient/{attack}" for attack in ATTACKS), "embedding/spectral"]
        rows = []
        for setting in self.runs.settings(group):
            lost = "–" if setting == "undefended" else shown(self.runs.loss((group, setting)))
            leaks = [shown(self.runs.mean((group, setting), _gain(key))) for key in keys]
            rows.append([setting, shown(self.runs.mean((group, setting), metric)), lost, *leaks])
        note = "Leak columns: |AUC - 0.5| at the worst epoch of each run, mean over seeds with its 95 % interval."
        return f"{note}\n\n{table(head, rows)}"

    def _layer_names(self) -> list[str]:
        found = (
            layer for setting in DAY_SETTINGS for one in self.runs.all(("Criteo", setting)) for layer in one.layers
        )
        return [name for name in dict.fromkeys(found) if name.startswith(LAYERS)]

    def _layers(self) -> str:
        rows = [
            [
                f"`{layer.removeprefix(LAYERS)}`",
                *(shown(self.runs.mean(("Criteo", s), layer_leak(layer))) for s in ORDER),
                shown(self.runs.mean(("Criteo", "max_norm"), layer_leak(layer))),
            ]
            for layer in self._layer_names()
        ]
        return table(["layer", *ORDER, "max_norm"], rows)

    def _layers_figure(self) -> str:
        layers = self._layer_names()
        series = []
        for setting in DAY_SETTINGS:
            means = [self.runs.mean(("Criteo", setting), layer_leak(layer)) for layer in layers]
            dots = tuple(Dot(place, m.value, None, m.half, setting) for place, m in enumerate(means) if m)
            series.append(Dots(setting, dots))
        names = [layer.removeprefix(LAYERS) for layer in layers]
        return plot(series, ("layer", "leak AUC, worst epoch"), "Leak of every passive layer on Criteo", 0.5, names)

    def _group_figure(self, group: str) -> str:
        settings = [*ORDER, "max_norm"]
        keys = {attack: f"gradient/{attack}" for attack in ATTACKS} | {
            "spectral on the embedding": "embedding/spectral"
        }
        series = []
        for name, key in keys.items():
            means = [self.runs.mean((group, setting), leak(key)) for setting in settings]
            dots = tuple(Dot(place, m.value, None, m.half, settings[place]) for place, m in enumerate(means) if m)
            series.append(Dots(name, dots))
        return plot(series, ("defence", "leak AUC, worst epoch"), f"Leak of every defence on {group}", 0.5, settings)


def _gain(key: str) -> Value:
    """|AUC - 0.5| at the worst epoch."""

    def of(one: Found) -> float | None:
        return distance(one.leaks[key]["auc"]) if key in one.leaks else None

    return of


def _short(setting: str) -> str:
    return setting.removeprefix("sum_kl ")


def _name(group: str) -> str:
    return group.lower()


def _file(key: str) -> str:
    return f"gradient-leakage-{key}.svg"


def _picture(key: str, text: str) -> str:
    return f"![{text}](figures/{_file(key)})"
