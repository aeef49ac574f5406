"""The page of the model-completion study: sections of settings by values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from studies.charts import Chart, series_of
from studies.claims import Kind
from studies.model_completion.attacks import ALL, FEW, MORE
from studies.model_completion.claims import (
    ACTIVE_BY_SGD,
    CLASSES,
    CLOSE,
    DROPOUT,
    GROUPS,
    OTHER_DEFENCES,
    WITHOUT,
    CompletionClaims,
    alone,
    by_epoch,
    by_sgd,
    completed,
    earlier,
    ended_after,
    margin,
    with_sgd,
)
from studies.model_completion.hundred import hundred_sections
from studies.model_completion.normalised import normalised_sections
from studies.model_completion.weights import share_kept
from studies.page import Block, ClaimsTable, Page, Section, Table, file_name, table
from studies.results import UNDEFENDED, Condition, Results, SeedMean, Value, formatted, measured, metric

ATTACK: Value = completed("honest", FEW, "frozen")
SIZE: Mapping[str, Value] = {"norm": measured("norm"), "spread": measured("spread")}
COLUMNS: Mapping[str, Value] = {
    "after the departure": measured("after"),
    "passive, few, frozen": ATTACK,
    "passive, few, tuned": completed("honest", FEW, "tuned"),
    "passive, all, frozen": completed("honest", ALL, "frozen"),
    "active, few, frozen": completed("malicious", FEW, "frozen"),
    "active, all, frozen": completed("malicious", ALL, "frozen"),
    **SIZE,
}
CONTROLS = {
    "completed, frozen extractor": ("honest", "frozen"),
    "completed, tuned extractor": ("honest", "tuned"),
    "completed after the active attack, frozen": ("malicious", ""),
    "from scratch": ("scratch", ""),
}
_READING = (
    "Every attack accuracy is that of the best variant on test rows, selected after the fact: slightly too high, for "
    "attacks and controls alike. *Frozen*: only a head was trained, so that it measures what is in the extractor. "
    "*Tuned*: the extractor was trained too. With all labels this undoes any defence, and the attack becomes training "
    "from scratch. *Few*: 40 labels in all, at least 4 of each class. *Norm* and *spread*: mean length of "
    "the passive party's embedding of a training row, and root mean square distance from the mean embedding. An "
    "embedding with spread 0 is constant and hides everything; a spread many times the undefended one shows a "
    "training that diverged. *Gain kept*: share of what the passive party adds to the accuracy of the active party "
    "alone that is left under the defence, of the means over the seeds."
)

_SCALES = (
    "Settings that name a scale of noise after a comma were attacked by the passive attack on the frozen extractor "
    "with few labels alone, and start from other weights than the settings without one. Over all strengths and scales "
    f"that were run, and hiding being within {CLOSE:g} of chance:"
)
_HIDES = {
    Kind.HOLDS: "hides at some of them and keeps most of what the party adds",
    Kind.FAILS: "hides at none of them that keeps most of what the party adds",
    **dict.fromkeys(
        (Kind.OPEN, Kind.LEVEL, Kind.BEYOND),
        "may hide at one of them and keep most of what the party adds, which these seeds do not settle",
    ),
}


def completion_page(results: Results, epochs: Mapping[str, int]) -> Page:
    """Claims, then the sections of each data set.

    Args:
        results: Results of the study.
        epochs: Number of epochs of a whole training, by data set.
    """
    groups = [group for group in CLASSES if results.settings(group)] or list(GROUPS)
    claims = CompletionClaims(results, groups).all()
    sections = [section for group in groups for section in _Group(results, group, epochs[group]).sections()]
    return Page(
        (
            Section("", (ClaimsTable(claims), _READING)),
            *sections,
            *normalised_sections(results),
            *hundred_sections(results),
        )
    )


class _Group:
    """The sections of one data set."""

    def __init__(self, results: Results, group: str, epochs: int) -> None:
        self.results, self.group = results, group
        self.ends = {
            setting: {n: (group, ended_after(setting, n)) for n in earlier(epochs)} | {epochs: (group, setting)}
            for setting in by_epoch()
        }
        """Condition of each setting of `by_epoch` by number of epochs, the whole training last."""
        others = {own[1] for ends in self.ends.values() for own in ends.values() if own[1] not in by_epoch()}
        others |= {*map(by_sgd, with_sgd()), ACTIVE_BY_SGD}
        self.main = [setting for setting in results.settings(group) if setting not in others]
        """Settings that were trained for all epochs by the data set's own optimizer."""

    def sections(self) -> list[Section]:
        """The controls, attack against model accuracy, by epoch, and by SGD."""
        columns = {"model": metric, "lost (paired)": None, **COLUMNS}
        return [
            Section(self.group, ()),
            Section("Undefended, and the controls", (self._controls(),), level=3),
            Section(
                "Attack against model accuracy",
                (*self._tradeoffs(), self._settings(self.main, columns), *self._removed(), *self._scales()),
                level=3,
            ),
            Section("By epoch", self._by_epoch(), level=3),
            *self._sgd(),
        ]

    def _controls(self) -> Table:
        base, rows = (self.group, UNDEFENDED), []
        for words, (run, extractor) in CONTROLS.items():
            values = [completed(run, labels, extractor) for labels in (FEW, MORE, ALL)]
            rows.append((words, *(formatted(self.results.mean(base, value)) for value in values)))
        references = {"linear probe": measured("probe"), "active party alone": alone, "joint model": metric}
        rows += [(words, "", "", formatted(self.results.mean(base, value))) for words, value in references.items()]
        return Table(("", "few labels", "40 of each class", "all labels"), tuple(rows))

    def _settings(self, settings: Sequence[str], columns: Mapping[str, Value | None], base: str = UNDEFENDED) -> Table:
        """A row for each setting; the column without a value is the loss against `base`."""
        lost = self.results.loss_column(base, blank="")
        cells: dict[str, Callable[[Condition], SeedMean | str | None]] = {
            name: self.results.column(value) if value else lost for name, value in columns.items()
        }
        if base == UNDEFENDED:
            cells["gain kept"] = lambda own: share_kept(self.results, own)
        return table("defence", self.results.conditions(self.group, settings), cells)

    def _removed(self) -> list[str]:
        """The defences that leave a model which is not better than the active party alone, in words."""
        worth = {setting: margin(self.results, (self.group, setting), 0.0) for setting in self.main}
        without_gain = [name for name, own in worth.items() if own and own.half_width and own.value < own.half_width]
        if not without_gain:
            return []
        names = ", ".join(f"`{name}`" for name in without_gain)
        return [
            f"These leave a model that is not better, by these seeds, than the active party alone: {names}. There the "
            "defence amounts to removing the passive party."
        ]

    def _scales(self) -> list[str]:
        """What further scales of noise came to, in words."""
        words = [
            f"`{defence}` {_HIDES.get(claim.verdict.kind, 'was not run')}: {claim.ours}."
            for defence, claim in CompletionClaims(self.results).scales(self.group).items()
        ]
        return [" ".join((_SCALES, *words))] if words else []

    def _by_epoch(self) -> tuple[Block, ...]:
        lines = [
            series_of(setting, [(epochs, self.results.mean(own, ATTACK), "") for epochs, own in ends.items()])
            for setting, ends in self.ends.items()
        ]
        columns: dict[str, Callable[[int], SeedMean | None]] = {}
        for name, value in (("attack", ATTACK), ("model", metric)):
            columns |= {f"{name}, {setting}": self._at_epochs(ends, value) for setting, ends in self.ends.items()}
        label = f"Completion on the frozen extractor by epochs trained, {self.group}"
        axes = ("epochs", "attack accuracy, few labels")
        return (
            "Completion on the frozen extractor with few labels, and accuracy of the model, after this many epochs.",
            Chart(self._file("epochs"), label, axes, tuple(lines), 1 / CLASSES[self.group]),
            table("epochs", {str(epochs): epochs for epochs in self.ends[UNDEFENDED]}, columns),
        )

    def _at_epochs(self, ends: Mapping[int, Condition], value: Value) -> Callable[[int], SeedMean | None]:
        return lambda epochs: self.results.mean(ends[epochs], value)

    def _sgd(self) -> list[Section]:
        """The settings that were trained by SGD too, where they were."""
        base = by_sgd(UNDEFENDED)
        if base not in self.results.settings(self.group):
            return []
        columns = {"model": metric, "lost (paired)": None, "passive, few, frozen": ATTACK, **SIZE}
        reached = formatted(self.results.mean((self.group, base), alone))
        rows = self._settings(list(map(by_sgd, with_sgd())), columns, base)
        active = [self._active_by_sgd()] if self.results.all((self.group, ACTIVE_BY_SGD)) else []
        return [Section("By SGD", (f"The active party alone, by SGD: {reached}.", rows, *active), level=3)]

    def _active_by_sgd(self) -> str:
        values = (ATTACK, completed("malicious", FEW), metric, measured("malicious_accuracy"))
        passive, active, model, attacked = (
            formatted(self.results.mean((self.group, ACTIVE_BY_SGD), value)) for value in values
        )
        return (
            f"Undefended by SGD again, with the active attack: completion with few labels on the frozen extractor gets "
            f"{active}, and {passive} without the malicious optimiser; the joint model {attacked} and {model}."
        )

    def _tradeoffs(self) -> list[Chart]:
        """Attack against model accuracy: DIMIP and dCor, and the gradient defences."""
        plain = [name for name in self.main if name.startswith("dimip") and "," not in name]
        others = {defence: [name for name in self.main if name.startswith(defence)] for defence in OTHER_DEFENCES}
        dimip = {
            UNDEFENDED: [UNDEFENDED],
            "DIMIP, lambda 0 to 1": plain,
            f"DIMIP {WITHOUT}": [name for name in self.main if name.endswith(WITHOUT)],
            f"DIMIP {DROPOUT}": [name for name in self.main if name.endswith(DROPOUT)],
            "dcor": others.pop("dcor"),
        }
        gradients = {UNDEFENDED: [UNDEFENDED], "dimip": plain, **others}
        return [self._tradeoff("dimip", dimip), self._tradeoff("gradients", gradients)]

    def _tradeoff(self, which: str, families: Mapping[str, Sequence[str]]) -> Chart:
        def point(setting: str) -> tuple[SeedMean | None, SeedMean | None, str]:
            own = (self.group, setting)
            return self.results.mean(own, metric), self.results.mean(own, ATTACK), setting

        lines = [series_of(name, map(point, settings), joined=False) for name, settings in families.items()]
        label = f"Completion on the frozen extractor by model accuracy, {self.group}, {which}"
        axes = ("model accuracy", "attack accuracy, few labels")
        return Chart(self._file(which), label, axes, tuple(lines), 1 / CLASSES[self.group])

    def _file(self, which: str) -> str:
        return file_name("model-completion", self.group, which)
