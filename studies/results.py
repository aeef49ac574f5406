"""Results of trainings by data set and setting, and means over their seeds with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cutlayer_sweep.seed_mean import SeedMean as SeedMean
from cutlayer_sweep.seed_mean import seed_mean_of as seed_mean_of

UNDEFENDED = "undefended"


@dataclass(frozen=True)
class TrialResult:
    """Results of a training.

    Attributes:
        group: Data set and network, such as `Criteo`.
        setting: What is varied, such as `sum_kl 0.16`.
        seed: Seed of the training, 1 or more.
        metric: Headline metric on test rows, 0 to 1.
        seconds: Seconds of training.
        leaks: By `message/attack`: `auc` at the worst party and epoch, `epoch` of that, and `last`, the AUC of the last
            epoch; signed, so that 0 and 1 are both a full leak.
        layers: The same by `party/layer`.
        measured: What the study's `measure` adds, as JSON values.
        commit: Commit of the code that it was trained on, with `-dirty` if changed; empty if not recorded.
        host: Processor that it was trained on, as `x86_64 AVX512, 2 cores`; empty if not recorded.
    """

    group: str
    setting: str
    seed: int
    metric: float
    seconds: float
    leaks: Mapping[str, Mapping[str, float]]
    layers: Mapping[str, Mapping[str, float]]
    measured: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""
    host: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """Group, setting and seed, which no two results of a study share."""
        return self.group, self.setting, self.seed


Value = Callable[[TrialResult], float | None]
"""A number of one training, or `None` where that training does not have it."""
Condition = tuple[str, str]
"""Group and setting."""


def formatted(value: SeedMean | str | None) -> str:
    """A mean with its interval, a text as it is, or a dash for what is not known."""
    return "–" if value is None else str(value)


def comma_separated(values: Iterable[SeedMean | float | None]) -> str:
    """Values in their order; numbers as short as they are.

    >>> comma_separated([0.5, 2.0, SeedMean(0.7, None)])
    '0.5, 2, 0.700'
    """
    return ", ".join(f"{value:g}" if isinstance(value, float | int) else formatted(value) for value in values)


class Results:
    """The trainings of a study by group and setting, and means over their seeds.

    Args:
        results: Results of trainings, in the order of the page.
    """

    def __init__(self, results: Sequence[TrialResult]) -> None:
        self._by_condition: dict[Condition, dict[int, TrialResult]] = {}
        for result in results:
            self._by_condition.setdefault((result.group, result.setting), {})[result.seed] = result

    def settings(self, group: str) -> list[str]:
        """All settings of a group, in the order they were run."""
        return [setting for own, setting in self._by_condition if own == group]

    def conditions(self, group: str, settings: Iterable[str] | None = None) -> dict[str, Condition]:
        """Conditions of a group's settings that have results, by setting.

        Args:
            group: Data set.
            settings: Settings in the order of the page; all in the order in which they were run if `None`.
        """
        present = self.settings(group)
        wanted = present if settings is None else [setting for setting in settings if setting in present]
        return {setting: (group, setting) for setting in wanted}

    def all(self, condition: Condition) -> list[TrialResult]:
        """The trainings of one setting, one a seed."""
        return list(self._by_condition.get(condition, {}).values())

    def mean(self, condition: Condition, value: Value) -> SeedMean | None:
        """A value's mean over the seeds; `None` where there is none."""
        return seed_mean_of(value(result) for result in self.all(condition))

    def difference(
        self, first: Condition, second: Condition, value: Value, other: Value | None = None
    ) -> SeedMean | None:
        """Mean over the common seeds of a value at the first condition minus a value at the second.

        Args:
            first: Condition of the minuend.
            second: Condition of the subtrahend.
            value: Value at the first condition.
            other: Value at the second condition; `value` if `None`.
        """
        minuends, subtrahends = self._by_condition.get(first, {}), self._by_condition.get(second, {})
        common = minuends.keys() & subtrahends.keys()
        pairs = [(value(minuends[seed]), (other or value)(subtrahends[seed])) for seed in common]
        return seed_mean_of(a - b for a, b in pairs if a is not None and b is not None)

    def loss(self, condition: Condition, base: str = UNDEFENDED) -> SeedMean | None:
        """Loss of test metric of a setting, against the `base` of the same group."""
        return self.difference((condition[0], base), condition, metric)

    def column(self, value: Value) -> Callable[[Condition], SeedMean | None]:
        """Column of a table: the value's mean at the condition of each row."""
        return lambda condition: self.mean(condition, value)

    def blank_column(self, value: Value) -> Callable[[Condition], SeedMean | str]:
        """Column of a table: as `column`, with a blank where the value is not known."""
        return lambda condition: self.mean(condition, value) or ""

    def columns(self, values: Mapping[str, Value]) -> dict[str, Callable[[Condition], SeedMean | None]]:
        """Columns of a table by heading."""
        return {heading: self.column(value) for heading, value in values.items()}

    def loss_column(self, base: str = UNDEFENDED, blank: str = "–") -> Callable[[Condition], SeedMean | str | None]:
        """Column of a table: the loss of test metric at the condition of each row, `blank` at the base itself."""
        return lambda condition: blank if condition[1] == base else self.loss(condition, base)

    def at(self, condition: Condition) -> Callable[[Value], SeedMean | None]:
        """Column of a table whose rows are values: their means at this condition."""
        return partial(self.mean, condition)


def metric(result: TrialResult) -> float | None:
    """The headline metric on test rows."""
    return result.metric


def seconds(result: TrialResult) -> float | None:
    """Seconds of training."""
    return result.seconds


def measured(key: str) -> Value:
    """A number that the study measured itself, by its key under `measured`."""
    return lambda result: None if result.measured.get(key) is None else float(result.measured[key])


def distance_from_chance(auc: float) -> float:
    """|AUC - 0.5|, what an attacker gains whichever way its scores point."""
    return abs(auc - 0.5)


def leak(key: str, when: str = "auc") -> Value:
    """Leak of an attack: max(AUC, 1 - AUC), since an attacker who can rank can also invert.

    Args:
        key: `message/attack`.
        when: `auc` for the worst epoch, `last` for the last epoch.
    """
    return lambda result: 0.5 + distance_from_chance(result.leaks[key][when]) if key in result.leaks else None


def layer_leak(key: str) -> Value:
    """Leak of a layer, `party/layer`, at its worst epoch."""
    return lambda result: 0.5 + distance_from_chance(result.layers[key]["auc"]) if key in result.layers else None
