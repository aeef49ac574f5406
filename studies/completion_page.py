"""The page of the model-completion study: claims, tables and figures from its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from studies.base import table
from studies.claims import Runs, Value, claims_table, metric, shown, verdicts
from studies.completing import ALL, FEW, MORE
from studies.completion_claims import (
    CLASSES,
    DROPOUT,
    GROUPS,
    OTHERS,
    UNDEFENDED,
    WITHOUT,
    CompletionClaims,
    alone,
    by_epoch,
    by_sgd,
    completed,
    earlier,
    ended_after,
    measured,
    with_sgd,
)
from studies.figures import Dot, Dots, plot

ATTACK: Value = completed("honest", FEW, "frozen")
COLUMNS: Mapping[str, Value] = {
    "model": metric,
    "after the quit": measured("after"),
    "passive, few, frozen": ATTACK,
    "passive, few, tuned": completed("honest", FEW, "tuned"),
    "passive, all, frozen": completed("honest", ALL, "frozen"),
    "active, few, frozen": completed("malicious", FEW, "frozen"),
    "active, all, frozen": completed("malicious", ALL, "frozen"),
    "norm": measured("norm"),
    "spread": measured("spread"),
}
CONTROLS = {
    "completed, frozen extractor": "honest frozen",
    "completed, tuned extractor": "honest tuned",
    "completed after the active attack, frozen": "malicious",
    "from scratch": "scratch",
}
DIMIP, GRADIENTS, EPOCHS = "dimip", "gradients", "epochs"


class CompletionPage:
    """What the results say.

    Args:
        epochs: of a whole training, by data set.
    """

    def __init__(self, runs: Runs, epochs: Mapping[str, int]) -> None:
        self.runs, self.epochs = runs, epochs
        self.groups = [group for group in CLASSES if runs.settings(group)] or list(GROUPS)

    def text(self) -> str:
        """The body of the page."""
        claims = CompletionClaims(self.runs, self.groups).all()
        parts = [
            verdicts(claims),
            claims_table(claims),
            "Every attack figure is the accuracy on test rows of the best variant, picked after the fact: a little too "
            "high, for attacks and controls alike. *Frozen*: only a head was trained, so that what it reads is in the "
            "extractor. *Tuned*: the extractor was trained too, so that with all labels any defence is "
            "forgotten and it is training from scratch. *Few*: 40 labels in all, at least 4 of each class. *Norm* and "
            "*spread*: mean length of the passive party's embedding of a training row, and root mean square distance "
            "from the mean embedding; an embedding that is dead has spread 0 and hides all by saying nothing, and one "
            "whose spread is many times the undefended one is of a training that ran away.",
        ]
        for group in self.groups:
            parts += [
                f"## {group}",
                "### Undefended, and the controls",
                self._controls(group),
                "### Attack against model accuracy",
                *(_picture(group, which, "Attack against model accuracy") for which in (DIMIP, GRADIENTS)),
                self._table(group),
                "### By epoch",
                "Completion on the frozen extractor with few labels, and the model's accuracy, after so many epochs.",
                _picture(group, EPOCHS, "Attack by epochs trained"),
                self._by_epoch(group),
                *self._sgd(group),
            ]
        return "\n\n".join(part for part in parts if part)

    def figures(self) -> dict[str, str]:
        """The page's figures."""
        found = {}
        for group in self.groups:
            for which, families in self._families(group).items():
                found[_file(group, which)] = self._figure(group, families)
            found[_file(group, EPOCHS)] = self._epochs_figure(group)
        return found

    def _controls(self, group: str) -> str:
        place, rows = (group, UNDEFENDED), []
        for words, key in CONTROLS.items():
            run, _, how = key.partition(" ")
            values = [self.runs.mean(place, completed(run, labels, how)) for labels in (FEW, MORE, ALL)]
            rows.append([words, *map(shown, values)])
        others = {"linear probe": measured("probe"), "active party alone": alone, "joint model": metric}
        rows += [[words, "", "", shown(self.runs.mean(place, value))] for words, value in others.items()]
        return table(["", "few labels", "40 of each class", "all labels"], rows)

    def _ends(self, group: str, setting: str) -> dict[int, tuple[str, str]]:
        """Where to find the setting's results after so many epochs, the whole training last."""
        whole = self.epochs[group]
        return {epochs: (group, ended_after(setting, epochs)) for epochs in earlier(whole)} | {whole: (group, setting)}

    def _by_epoch(self, group: str) -> str:
        ends = {setting: self._ends(group, setting) for setting in by_epoch()}
        rows = [
            [str(epochs), *(shown(self.runs.mean(ends[s][epochs], value)) for value in (ATTACK, metric) for s in ends)]
            for epochs in ends[UNDEFENDED]
        ]
        return table(["epochs", *(f"attack, {s}" for s in ends), *(f"model, {s}" for s in ends)], rows)

    def _epochs_figure(self, group: str) -> str:
        series = []
        for setting in by_epoch():
            means = {epochs: self.runs.mean(place, ATTACK) for epochs, place in self._ends(group, setting).items()}
            series.append(
                Dots(setting, tuple(Dot(e, mean.value, None, mean.half) for e, mean in means.items() if mean))
            )
        label = f"Completion on the frozen extractor by epochs trained, {group}"
        return plot(series, ("epochs", "attack accuracy, few labels"), label, 1 / CLASSES[group])

    def _sgd(self, group: str) -> list[str]:
        """What SGD makes of some settings, where they were trained by it."""
        base, names = by_sgd(UNDEFENDED), [by_sgd(setting) for setting in with_sgd()]
        if base not in self.runs.settings(group):
            return []
        values = (metric, ATTACK, measured("norm"), measured("spread"))
        rows = []
        for name in names:
            model, *rest = (shown(self.runs.mean((group, name), value)) for value in values)
            lost = "" if name == base else shown(self.runs.loss((group, name), base))
            rows.append([name, model, lost, *rest])
        told = f"The active party alone, by SGD: {shown(self.runs.mean((group, base), alone))}."
        header = ["defence", "model", "lost (paired)", "passive, few, frozen", "norm", "spread"]
        return ["### By SGD", told, table(header, rows)]

    def _main(self, group: str) -> list[str]:
        """The settings that were trained for all epochs by the data set's own optimiser."""
        early = {ended_after(setting, epochs) for setting in by_epoch() for epochs in earlier(self.epochs[group])}
        further = early | set(map(by_sgd, with_sgd()))
        return [setting for setting in self.runs.settings(group) if setting not in further]

    def _table(self, group: str) -> str:
        rows = []
        for setting in self._main(group):
            place = (group, setting)
            first, *rest = (shown(self.runs.mean(place, value)) for value in COLUMNS.values())
            lost = "" if setting == UNDEFENDED else shown(self.runs.loss(place))
            rows.append([setting, first, lost, *rest])
        first, *others = COLUMNS
        return table(["defence", first, "lost (paired)", *others], rows)

    def _families(self, group: str) -> dict[str, dict[str, list[str]]]:
        names = self._main(group)
        plain = [name for name in names if name.startswith("dimip") and "," not in name]
        undefended = {"undefended": [UNDEFENDED]}
        several: dict[str, list[str]] = {
            "DIMIP, lambda 0 to 1": plain,
            f"DIMIP {WITHOUT}": [name for name in names if name.endswith(WITHOUT)],
            f"DIMIP {DROPOUT}": [name for name in names if name.endswith(DROPOUT)],
        }
        single = {other: [name for name in names if name.startswith(other)] for other in OTHERS}
        dcor = {"dcor": single.pop("dcor")}
        return {DIMIP: {**undefended, **several, **dcor}, GRADIENTS: {**undefended, DIMIP: plain, **single}}

    def _figure(self, group: str, families: Mapping[str, Sequence[str]]) -> str:
        series = [Dots(name, self._dots(group, settings), joined=False) for name, settings in families.items()]
        axes = ("model accuracy", "attack accuracy, few labels")
        return plot(series, axes, f"Completion on the frozen extractor by model accuracy, {group}", 1 / CLASSES[group])

    def _dots(self, group: str, settings: Sequence[str]) -> tuple[Dot, ...]:
        pairs = [(s, self.runs.mean((group, s), metric), self.runs.mean((group, s), ATTACK)) for s in settings]
        return tuple(Dot(x.value, y.value, x.half, y.half, s) for s, x, y in pairs if x and y)


def _file(group: str, which: str) -> str:
    return "-".join(f"model completion {group} {which}".lower().replace("-", " ").split()) + ".svg"


def _picture(group: str, which: str, words: str) -> str:
    return f"![{words}, {group}, {which}](figures/{_file(group, which)})"
