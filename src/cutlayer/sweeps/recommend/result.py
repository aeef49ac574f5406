"""Evidence of a recommendation: limits, the trials of every rung, and the check with fresh seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutlayer.errors import ConfigError
from cutlayer.storage.durable import write_whole
from cutlayer.sweeps.result import UNCOUNTED
from cutlayer.version import __version__


@dataclass(frozen=True)
class Measured:
    """One candidate as measured.

    Attributes:
        utility: Headline metric.
        loss: Headline metric of the undefended job with the same seed, minus `utility`.
        leak: max(AUC, 1 - AUC) of the strongest attack, 0.5 to 1.
        excess: Largest leak minus what the party's own columns reveal; `None` where that is not defined.
        columns: What the columns of the party with the largest leak reveal by themselves.
        where: The strongest attack, as `party/message/attack`.
    """

    utility: float
    loss: float
    leak: float
    excess: float | None
    columns: float | None
    where: str


@dataclass(frozen=True)
class Limits:
    """Limits that a recommendation must meet.

    Attributes:
        max_leak: Largest leak; `None` limits the excess instead.
        max_excess: Largest leak above a party's own columns; `None` limits the leak.
        max_loss: Largest loss of the headline metric against the undefended job.
        guarantee: Largest epsilon of a label in the whole run; `None` asks for no guarantee.

    Raises:
        ConfigError: None or both of the first two, or a value out of range.
    """

    max_leak: float | None
    max_excess: float | None
    max_loss: float
    guarantee: float | None = None

    def __post_init__(self) -> None:
        if (self.max_leak is None) == (self.max_excess is None):
            got = "neither" if self.max_leak is None else "both"
            raise ConfigError.expected("one of --max-leak and --max-excess", got)
        if self.max_leak is not None and not 0.5 < self.max_leak <= 1:
            raise ConfigError.expected("--max-leak above 0.5 and at most 1", self.max_leak, "0.5 is chance")
        if self.max_excess is not None and not 0 <= self.max_excess <= 0.5:
            raise ConfigError.expected("--max-excess of 0 to 0.5", self.max_excess, "it is a difference of two AUC")
        if not 0 <= self.max_loss <= 1:
            raise ConfigError.expected("--max-loss of 0 to 1", self.max_loss, "it is a difference of two metrics")

    def leak(self, measured: Measured) -> float:
        """The quantity that is limited: the leak, or its excess where own columns could be measured."""
        return measured.leak if self.max_excess is None or measured.excess is None else measured.excess

    def exceeded(self, leak: float, loss: float) -> float:
        """By how much both limits are exceeded together, by the limited quantity and the loss; 0 within both."""
        return max(0.0, leak - self._leak_limit) + max(0.0, loss - self.max_loss)

    def settled(self, candidate: Checked) -> bool:
        """Whether the 95 % intervals of a candidate end within both limits, and not the means alone."""
        leak = candidate.leak + candidate.leak_margin
        loss = candidate.loss + candidate.loss_margin
        return len(candidate.seeds) > 1 and leak <= self._leak_limit and loss <= self.max_loss

    @property
    def _leak_limit(self) -> float:
        return self.max_leak if self.max_leak is not None else self.max_excess or 0.0

    def __str__(self) -> str:
        leak = f"leak {self.max_leak:g}" if self.max_leak is not None else f"excess {self.max_excess:g}"
        guarantee = "" if self.guarantee is None else f" and epsilon {self.guarantee:g}"
        return f"{leak}, loss {self.max_loss:g}{guarantee}"


@dataclass(frozen=True)
class Checked:
    """One candidate, trained again with fresh seeds.

    Attributes:
        name: Name of the candidate.
        seeds: The seeds.
        leak: The limited quantity, mean over the seeds.
        leak_margin: Half the width of the 95 % interval of `leak` (Student's t).
        leak_auc: Leak of the strongest attack, mean over the seeds.
        loss: Loss on test rows against the undefended job, mean of the differences by seed.
        loss_margin: Half the width of the 95 % interval of `loss` (Student's t).
        utility: Headline metric on test rows, mean.
        reached: Whether both means are within the limits.
    """

    name: str
    seeds: tuple[int, ...]
    leak: float
    leak_margin: float
    leak_auc: float
    loss: float
    loss_margin: float
    utility: float
    reached: bool


@dataclass(frozen=True)
class Recommendation:
    """The outcome of a search.

    Attributes:
        job: Name of the job.
        metric: Name of the headline metric.
        limits: What was asked for.
        last: Every candidate of the last rung, on the rows that the search chose by.
        front: Names of those that no other beats in leak and loss, by ascending leak.
        nearest: Names of the defended ones, the best first.
        checked: Those that were trained again with fresh seeds, in that order.
        chosen: Name of the recommended candidate; `None` if nothing reaches the limits.
        statements: The ledger's totals of the labels, by candidate.
        left_out: Candidates that were not tried, with the reason.
        trainings: Number of trainings of all rungs and of the check.
        epochs: Number of epochs of all these trainings.
        seconds: Time of all trainings, of all machines.
    """

    job: str
    metric: str
    limits: Limits
    last: Mapping[str, Measured]
    front: tuple[str, ...]
    nearest: tuple[str, ...]
    checked: tuple[Checked, ...]
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
        exceeded = {checked.name: self.limits.exceeded(checked.leak, checked.loss) for checked in self.checked}
        return min(exceeded, key=lambda name: (exceeded[name], name))

    def to_json(self) -> dict[str, Any]:
        """The content of `recommend.json`."""
        return {"cutlayer": __version__, **asdict(self), "best": self.best, "uncounted": UNCOUNTED}

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
    try:
        eps = float(value)
    except ValueError:
        eps = -1.0
    if name.strip() not in ("eps", "epsilon") or not 0 < eps < float("inf"):
        raise ConfigError.expected("--guarantee eps=NUMBER with a number above 0, such as eps=2", repr(text))
    return eps


def by_reason(left_out: Mapping[str, str]) -> str:
    """Candidates that were left out, those with the same reason together.

    >>> by_reason({"marvell 1": "no theorem", "label_dp 1": "refused", "max_norm": "no theorem"})
    'marvell 1, max_norm (no theorem); label_dp 1 (refused)'
    """
    names: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(those)} ({reason})" for reason, those in names.items())
