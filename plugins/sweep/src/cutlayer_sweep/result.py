"""Results of a sweep: every trial, the front of utility, leak and columns rebuilt, and its knee."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cutlayer.storage.durable import write_whole
from cutlayer.version import __version__
from cutlayer_sweep.changes import Value
from cutlayer_sweep.metrics import CHOICE_IS_NOT_COUNTED, TrialMetrics
from cutlayer_sweep.pareto import knee, pareto_front
from cutlayer_sweep.space import describe_point

State = Literal["complete", "failed", "running", "waiting"]


@dataclass(frozen=True)
class TrialResult:
    """One point of the sweep and what was measured there.

    Attributes:
        number: Number of the trial in the storage.
        values: Values by path; empty while the trial waits for the sampler.
        state: How far the trial is.
        measured: Metrics of the trial, once it is complete.
        reason: Why the trial failed.
        worker: Host and process that ran it.
        folder: Folder with the small files of its run; `None` where they are on another machine or were removed.
    """

    number: int
    values: Mapping[str, Value]
    state: State
    measured: TrialMetrics | None
    reason: str
    worker: str
    folder: str | None


@dataclass(frozen=True)
class SweepResult:
    """All trials of a sweep.

    Attributes:
        job: Name of the job.
        metric: Name of the headline metric.
        rows: Rows on which the knee is chosen.
        leak: Messages whose leak was minimised.
        names: Short names of the varied keys, by path.
        vary: What was varied, as on the command line.
        storage: Address of the storage, without user and password.
        trials: All trials, by slot.
    """

    job: str
    metric: str
    rows: Literal["validation", "test"]
    leak: str
    names: Mapping[str, str]
    vary: tuple[str, ...]
    storage: str
    trials: tuple[TrialResult, ...]

    @cached_property
    def complete(self) -> tuple[tuple[TrialResult, TrialMetrics], ...]:
        """The complete trials with their metrics, by ascending leak."""
        measured = [(trial, trial.measured) for trial in self.trials if trial.measured is not None]
        return tuple(sorted(measured, key=lambda pair: (pair[1].leak, -pair[1].utility, pair[0].number)))

    @cached_property
    def front(self) -> tuple[int, ...]:
        """Numbers of the trials that no other beats in utility, leak and columns rebuilt, by ascending leak."""
        return tuple(self.complete[index][0].number for index in pareto_front(*self._objectives()))

    @cached_property
    def knee(self) -> int | None:
        """Number of the front's knee; `None` without a knee."""
        index = knee(*self._objectives())
        return None if index is None else self.complete[index][0].number

    @property
    def failed(self) -> tuple[TrialResult, ...]:
        """The trials that failed."""
        return tuple(trial for trial in self.trials if trial.state == "failed")

    def describe(self, trial: TrialResult) -> str:
        """The values of a trial with their short names."""
        return describe_point(trial.values, self.names)

    def rank(self, trial: TrialResult) -> str:
        """`knee`, `front`, or nothing for a trial that another one beats."""
        return "knee" if trial.number == self.knee else "front" if trial.number in self.front else ""

    def to_json(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        fields = asdict(self)
        del fields["names"]
        more = {"front": list(self.front), "knee": self.knee, "uncounted": CHOICE_IS_NOT_COUNTED}
        return {"cutlayer": __version__, **fields, **more, "vary": list(self.vary), "trials": list(fields["trials"])}

    def write(self, path: Path) -> None:
        """Write `sweep.json` whole or not at all."""
        write_whole(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    @property
    def attacks_columns(self) -> bool:
        """Whether the columns of a passive party were attacked in any trial."""
        return any(metrics.rebuilt is not None for _, metrics in self.complete)

    def _objectives(self) -> tuple[list[float], list[float], list[float]]:
        """Utility, leak and columns read of the complete trials."""
        all_metrics = [metrics for _, metrics in self.complete]
        utility, leak = [each.utility for each in all_metrics], [each.leak for each in all_metrics]
        return utility, leak, [each.columns_read for each in all_metrics]
