"""Evidence of a recommendation: limits, the trials of every rung, and the check with fresh seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cutlayer.errors import ConfigError
from cutlayer.storage.durable import write_whole
from cutlayer.version import __version__
from cutlayer_sweep.changes import parse_value
from cutlayer_sweep.metrics import CHOICE_IS_NOT_COUNTED, TrialMetrics
from cutlayer_sweep.seed_mean import SeedMean


@dataclass(frozen=True)
class MeasuredCandidate(TrialMetrics):
    """One candidate as measured; its `utility` is on the rows that are asked for.

    Attributes:
        loss: Headline metric of the undefended job with the same seed, minus `utility`.
    """

    loss: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Limits that a recommendation must meet.

    Attributes:
        max_leak: Largest leak; `None` limits the excess, or no leak.
        max_excess: Largest leak above a party's own columns; `None` limits the leak, or none.
        max_loss: Largest loss of the headline metric against the undefended job.
        guarantee: Largest epsilon of a label in the whole run; `None` asks for no guarantee.
        max_rebuilt: Largest share of a passive party's columns that an attack rebuilds, R² or read exactly; `None` for
            no limit.

    Raises:
        ConfigError: No limit on labels or columns, both of the first two, or a value out of range.
    """

    max_leak: float | None
    max_excess: float | None
    max_loss: float
    guarantee: float | None = None
    max_rebuilt: float | None = None

    def __post_init__(self) -> None:
        if self.max_leak is not None and self.max_excess is not None:
            raise ConfigError.expected("one of --max-leak and --max-excess", "both")
        if self.max_leak is None and self.max_excess is None and self.max_rebuilt is None:
            raise ConfigError.expected("--max-leak, --max-excess or --max-rebuilt", "none of them")
        if self.max_rebuilt is not None and not 0 <= self.max_rebuilt < 1:
            raise ConfigError.expected("--max-rebuilt of 0 to below 1", self.max_rebuilt, "it is a share of columns")
        if self.max_leak is not None and not 0.5 < self.max_leak <= 1:
            raise ConfigError.expected("--max-leak above 0.5 and at most 1", self.max_leak, "0.5 is chance")
        if self.max_excess is not None and not 0 <= self.max_excess <= 0.5:
            raise ConfigError.expected("--max-excess of 0 to 0.5", self.max_excess, "it is a difference of two AUC")
        if not 0 <= self.max_loss <= 1:
            raise ConfigError.expected("--max-loss of 0 to 1", self.max_loss, "it is a difference of two metrics")

    @property
    def of(self) -> Literal["leak", "excess"]:
        """Name of the limited quantity of the labels."""
        return "leak" if self.max_excess is None else "excess"

    def leak(self, measured: MeasuredCandidate) -> float:
        """The quantity that is limited: the leak, or its excess where own columns could be measured."""
        return measured.leak if self.max_excess is None or measured.excess is None else measured.excess

    def exceeded(self, leak: float, loss: float, read: float) -> float:
        """By how much the limits are exceeded together; 0 within all.

        Args:
            leak: The limited quantity of the labels.
            loss: Loss of the headline metric.
            read: Share of the columns that an attack rebuilds.
        """
        pairs = zip((leak, loss, read), self._most, strict=True)
        return sum(max(0.0, value - most) for value, most in pairs)

    def nearness(self, measured: MeasuredCandidate) -> tuple[float, float, float]:
        """Sorts candidates, the best first: by `exceeded`, then by what is read of labels and columns."""
        leak = self.leak(measured)
        read = measured.columns_read
        return self.exceeded(leak, measured.loss, read), leak if self._limits_labels else read, read

    def settled(self, candidate: CheckedCandidate) -> bool:
        """Whether the 95 % intervals of a candidate end within all limits, and not the means alone."""
        means = (candidate.leak, candidate.loss, candidate.rebuilt)
        ends = (mean.value + (mean.half_width or 0.0) for mean in means)
        return len(candidate.seeds) > 1 and self.exceeded(*ends) == 0

    @property
    def _limits_labels(self) -> bool:
        return self.max_leak is not None or self.max_excess is not None

    @property
    def _most(self) -> tuple[float, float, float]:
        leaks = [limit for limit in (self.max_leak, self.max_excess) if limit is not None]
        return (*leaks, 1.0)[0], self.max_loss, 1.0 if self.max_rebuilt is None else self.max_rebuilt

    def __str__(self) -> str:
        label = [f"{self.of} {self._most[0]:g}"] if self._limits_labels else []
        columns = [] if self.max_rebuilt is None else [f"columns rebuilt {self.max_rebuilt:g}"]
        guarantee = "" if self.guarantee is None else f" and epsilon {self.guarantee:g}"
        return ", ".join([*label, *columns, f"loss {self.max_loss:g}"]) + guarantee


@dataclass(frozen=True)
class CheckedCandidate:
    """One candidate, trained again with fresh seeds, as means over these.

    Attributes:
        name: Name of the candidate.
        seeds: The seeds.
        leak: The limited quantity.
        leak_auc: Leak of the strongest attack.
        loss: Loss on test rows against the undefended job, of the differences by seed.
        utility: Headline metric on test rows.
        rebuilt: Share of the columns that an attack rebuilds; 1 where none is defined.
        reached: Whether all means are within the limits.
    """

    name: str
    seeds: tuple[int, ...]
    leak: SeedMean
    leak_auc: SeedMean
    loss: SeedMean
    utility: SeedMean
    rebuilt: SeedMean
    reached: bool


@dataclass(frozen=True)
class Recommendation:
    """The outcome of a search.

    Attributes:
        job: Name of the job.
        metric: Name of the headline metric.
        limits: What was asked for.
        last: Every candidate of the last rung, on the rows that the search chose by.
        front: Names of those that no other beats in leak, loss and columns rebuilt, by ascending leak.
        nearest: Names of the defended ones, the best first.
        checked: Those that were trained again with fresh seeds, in that order.
        chosen: Name of the recommended candidate; `None` if nothing reaches the limits.
        statements: The ledger's totals, by candidate.
        left_out: Candidates that were not tried, with the reason.
        trainings: Number of trainings of all rungs and of the check.
        epochs: Number of epochs of all these trainings.
        seconds: Time of all trainings, of all machines.
    """

    job: str
    metric: str
    limits: Limits
    last: Mapping[str, MeasuredCandidate]
    front: tuple[str, ...]
    nearest: tuple[str, ...]
    checked: tuple[CheckedCandidate, ...]
    chosen: str | None
    statements: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]
    trainings: int
    epochs: int
    seconds: float

    @property
    def best(self) -> str | None:
        """Name of the recommended candidate, or of the nearest that was checked."""
        if self.chosen is not None or not self.checked:
            return self.chosen
        exceeded = {
            each.name: self.limits.exceeded(each.leak.value, each.loss.value, each.rebuilt.value)
            for each in self.checked
        }
        return min(exceeded, key=lambda name: (exceeded[name], name))

    def to_json(self) -> dict[str, Any]:
        """The content of `recommend.json`."""
        return {"cutlayer": __version__, **asdict(self), "best": self.best, "uncounted": CHOICE_IS_NOT_COUNTED}

    def write(self, path: Path) -> None:
        """Write `recommend.json` whole or not at all."""
        write_whole(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")


def parse_guarantee(text: str | None) -> float | None:
    """Read `--guarantee`.

    Raises:
        ConfigError: It is not `eps=NUMBER` with a number above 0.

    >>> parse_guarantee("eps=2"), parse_guarantee(None)
    (2.0, None)
    """
    if text is None:
        return None
    name, _, value = text.partition("=")
    eps = parse_value(value.strip())
    if name.strip() not in ("eps", "epsilon") or isinstance(eps, bool | str) or not 0 < eps < float("inf"):
        raise ConfigError.expected("--guarantee eps=NUMBER with a number above 0, such as eps=2", repr(text))
    return float(eps)


def names_by_reason(left_out: Mapping[str, str]) -> str:
    """Candidates that were left out, those with the same reason together.

    >>> names_by_reason({"marvell 1": "no theorem", "label_dp 1": "refused", "max_norm": "no theorem"})
    'marvell 1, max_norm (no theorem); label_dp 1 (refused)'
    """
    names: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(those)} ({reason})" for reason, those in names.items())
