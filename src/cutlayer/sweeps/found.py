"""What a sweep has found so far: every trial, the front and the knee."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cutlayer.durable import write_whole
from cutlayer.kernels.pareto import knee, pareto_front
from cutlayer.sweeps.measure import Measured
from cutlayer.sweeps.space import Value, told_of
from cutlayer.version import __version__

State = Literal["complete", "failed", "running", "waiting"]
UNCOUNTED = (
    "The trials ran on private data, and choosing among them depends on it: no ledger counts the trials together, or "
    "the choice (Papernot and Steinke 2022)."
)
"""What no guarantee of a single run covers."""


@dataclass(frozen=True)
class SweptTrial:
    """One point of the sweep.

    Attributes:
        values: by path; empty while it waits for the sampler.
        reason: why it failed.
        worker: host and process that ran it.
        folder: with the small files of its run; `None` where they lie on another machine or were removed.
    """

    number: int
    values: Mapping[str, Value]
    state: State
    measured: Measured | None
    reason: str
    worker: str
    folder: str | None


@dataclass(frozen=True)
class Found:
    """All trials of a sweep.

    Attributes:
        job: its name.
        metric: the headline metric; `rows` are those it was chosen by, `validation` or `test`.
        leak: which messages' leak was minimised.
        varied: short name by path.
        asked: what was varied, as on the command line.
        storage: without user and password.
    """

    job: str
    metric: str
    rows: Literal["validation", "test"]
    leak: str
    varied: Mapping[str, str]
    asked: tuple[str, ...]
    storage: str
    trials: tuple[SweptTrial, ...]

    @cached_property
    def complete(self) -> tuple[tuple[SweptTrial, Measured], ...]:
        """The trials with figures, by ascending leak."""
        found = [(trial, trial.measured) for trial in self.trials if trial.measured is not None]
        return tuple(sorted(found, key=lambda one: (one[1].leak, -one[1].utility, one[0].number)))

    @cached_property
    def front(self) -> tuple[int, ...]:
        """Numbers of the trials that none beats in both utility and leak, by ascending leak."""
        places = pareto_front(*self._figures())
        return tuple(self.complete[place][0].number for place in places)

    @cached_property
    def knee(self) -> int | None:
        """Number of the front's knee; `None` where it has none."""
        place = knee(*self._figures())
        return None if place is None else self.complete[place][0].number

    @property
    def failed(self) -> tuple[SweptTrial, ...]:
        """The trials that could not be run."""
        return tuple(trial for trial in self.trials if trial.state == "failed")

    def told(self, trial: SweptTrial) -> str:
        """A trial's values in words."""
        return told_of(trial.values, self.varied)

    def to_json(self) -> dict[str, Any]:
        """As `sweep.json` holds it."""
        return {
            "cutlayer": __version__,
            "job": self.job,
            "metric": self.metric,
            "rows": self.rows,
            "leak": self.leak,
            "vary": list(self.asked),
            "storage": self.storage,
            "front": list(self.front),
            "knee": self.knee,
            "uncounted": UNCOUNTED,
            "trials": [asdict(trial) for trial in self.trials],
        }

    def write(self, path: Path) -> None:
        """Write `sweep.json` whole or not at all."""
        write_whole(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n", mode=0o644)

    def _figures(self) -> tuple[list[float], list[float]]:
        return [one.utility for _, one in self.complete], [one.leak for _, one in self.complete]
