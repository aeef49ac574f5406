"""Frozen records of the releases of protections; the ledger states their cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from cutlayer.accounting.plan import Condition, PrivateFit, ReleasePlan
from cutlayer.errors import ConfigError

MAX_COUNT, MAX_DRAWS = 2**53, 100_000
"""Maximum number of releases or steps, above which whole numbers are not all exact; and of draws, whose account is
composed numerically."""
_MIN_MULTIPLIER, _MAX_MULTIPLIER = 1e-100, 1e100
"""Noise multipliers whose square, by which costs are divided, is neither 0 nor infinite."""


@dataclass(frozen=True, kw_only=True)
class AboutLabels:
    """Conditions of a guarantee of labels: facts that partners learn by design.

    Attributes:
        split_by: Column of the active party, stated to be public, that orders the split which the receivers are sent;
            `None` where they are sent no split.
        unlabelled: Whether rows without a label are left out, so that the common rows show which rows have one.
    """

    split_by: str | None = None
    unlabelled: bool = False

    @property
    def given(self) -> tuple[str, ...]:
        """The conditions of the guarantee, in words that follow "given"."""
        order = f"which rows have the largest values of {self.split_by!r}, stated to be public"
        return ("which rows have a label",) * self.unlabelled + (order,) * (self.split_by is not None)


@dataclass(frozen=True)
class RandomizedResponse(AboutLabels):
    """Each row's label was drawn by randomised response; neighbours differ in one row's label.

    Attributes:
        eps: Privacy of one draw, per row, 0 or more.
        classes: Number of values that a label can take.
        draws: Number of independent draws of one row's label that are used: 1 where all epochs use one draw, more where
            unfinished runs drew the label too.
        stages: Number of parts of the rows in a ledger of an earlier version, which could draw a part with a prior from
            the draws of others; else 1.
    """

    eps: float
    classes: int
    draws: int = 1
    stages: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.eps < math.inf:
            raise ConfigError.expected("a randomised response of eps >= 0", self.eps)
        if self.classes < 2 or not 1 <= self.draws <= MAX_DRAWS:
            wanted = f"2 classes or more, and 1 to {MAX_DRAWS:,} draws"
            raise ConfigError.expected(wanted, f"{self.classes} and {self.draws}")
        if self.stages < 1:
            raise ConfigError.expected("1 stage or more", self.stages)


@dataclass(frozen=True)
class GaussianRelease:
    """Each row's embedding was released with Gaussian noise; neighbours differ in one row's features, replaced.

    Attributes:
        noise_multiplier: Standard deviation of the noise over the L2 sensitivity, which for rows clipped to norm C is
            2C.
        releases: Releases of each row with fresh noise, by the part of the split.
        condition: `unconditional` where neither the bottom model nor the encoding was fitted on the private rows.
        delta: delta that the noise was calibrated to, if it was; the ledger then states epsilon at it.
    """

    noise_multiplier: float
    releases: ReleasePlan
    condition: Condition = "conditional on the bottom model and the encoding"
    delta: float | None = None

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)
        if not 1 <= self.releases.max_releases <= MAX_COUNT:
            raise ConfigError.expected("1 release or more of every row", self.releases.max_releases)
        _check_delta(self.delta)


@dataclass(frozen=True)
class RandomizedGrade:
    """Each row's grade was drawn by randomised response; neighbours differ in one row's features, replaced.

    Attributes:
        eps: Privacy of one draw, above 0.
        draws: Maximum number of independent draws of one row's grade, which changes where its columns do.
        condition: As of `GaussianRelease`.
        again: Number of rows with more than one draw.
        unseen: Releases by batches, in which changed grades are not counted.
        refused: Predictions that were refused, each of which tells a bit of its rows.
        fit: The private fit of the model whose grades they are, if it has one.
    """

    eps: float
    draws: int = 1
    condition: Condition = "conditional on the bottom model and the encoding"
    again: int = 0
    unseen: int = 0
    refused: int = 0
    fit: PrivateFit | None = None

    def __post_init__(self) -> None:
        if not 0 < self.eps < math.inf or not 1 <= self.draws <= MAX_DRAWS:
            wanted = f"a grade of eps above 0, drawn 1 to {MAX_DRAWS:,} times"
            raise ConfigError.expected(wanted, f"{self.eps} and {self.draws}")


@dataclass(frozen=True)
class DPSGD:
    """A bottom model was trained by DP-SGD: gradients of rows clipped and noised; neighbours differ in a replaced row.

    Attributes:
        noise_multiplier: Standard deviation of the noise over the norm C that each row's gradient is clipped to.
            Replacing a row moves the sum by up to 2C; the account knows.
        steps: Number of batches that hold a row: one in each epoch. Batches come in a fixed order, so that there is no
            credit for sampling.
        delta: delta that the noise was calibrated to, if it was; the ledger then states epsilon at it.
    """

    noise_multiplier: float
    steps: int
    delta: float | None = None

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)
        if not 1 <= self.steps <= MAX_COUNT:
            raise ConfigError.expected("1 step or more", self.steps)
        _check_delta(self.delta)


@dataclass(frozen=True)
class LabelFree(AboutLabels):
    """No message to the receivers depends on a label; neighbours differ in any number of labels.

    The receivers release each row once, and are sent no gradient, so that what they hold and send is a function of
    their own columns and keys. The times at which messages are sent are not covered.
    """


@dataclass(frozen=True)
class NoFormalGuarantee:
    """No theorem bounds the leak through this protection; only the audit measures it.

    Attributes:
        why: The reason, one sentence.
        voids: Whether this is a message of its own, which no protection of the run covers: no total about the asset has
            an epsilon.
    """

    why: str
    voids: bool = False


Event = RandomizedResponse | RandomizedGrade | GaussianRelease | DPSGD | LabelFree | NoFormalGuarantee
Formal = RandomizedResponse | RandomizedGrade | GaussianRelease | DPSGD | LabelFree
"""Events that a theorem covers."""


def known_events(events: Iterable[Event]) -> list[Event]:
    """The same events, after a check that the ledger knows the cost of each.

    Raises:
        ConfigError: An event that the ledger does not know, which would otherwise count as nothing.
    """
    checked = list(events)
    for event in checked:
        if not isinstance(event, Event):
            known = ", ".join(kind.__name__ for kind in get_args(Event))
            wanted = f"an event that the ledger knows ({known})"
            raise ConfigError.expected(wanted, type(event).__name__, "add its cost to accounting")
    return checked


def _check_delta(delta: float | None) -> None:
    if delta is not None and not 0 < delta < 1:
        raise ConfigError.expected("delta between 0 and 1", delta)


def _check_multiplier(multiplier: float) -> None:
    if not _MIN_MULTIPLIER <= multiplier <= _MAX_MULTIPLIER:
        wanted = f"a noise multiplier from {_MIN_MULTIPLIER:g} to {_MAX_MULTIPLIER:g}"
        raise ConfigError.expected(wanted, multiplier, "without noise there is no guarantee")
