"""What is varied: lists of values and ranges, and which point each trial of a sweep tries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import qmc

from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    import optuna

Value = bool | int | float | str
Point = Mapping[str, Value]

MOST_POINTS = 10_000
EVEN_TRIALS = 10
"""So many trials of a search are spread evenly before the sampler has something to learn from."""

_SYNTAX = "PATH=VALUE,VALUE,... or PATH=LOW..HIGH or PATH=LOW..HIGH:log"
_WORDS: Mapping[str, bool] = {"true": True, "false": False}


@dataclass(frozen=True)
class Choices:
    """A list of values for one place of the job."""

    path: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.path}={','.join(map(_typed, self.values))}"

    @property
    def edges(self) -> tuple[Value, ...]:
        """What must be right for all to be right: every value."""
        return self.values

    def at(self, share: float) -> Value:
        """The value at a share (0 to 1) of the list."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def suggested(self, trial: optuna.Trial) -> Value:
        """What the study gives this trial."""
        return self.values[self.values.index(trial.suggest_categorical(self.path, self.values))]


@dataclass(frozen=True)
class Range:
    """An interval of numbers for one place of the job, both ends included.

    Attributes:
        log: evenly spread in the logarithm.
        whole: only whole numbers.
    """

    path: str
    low: int | float
    high: int | float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.path}={_typed(self.low)}..{_typed(self.high)}{':log' * self.log}"

    @property
    def edges(self) -> tuple[Value, ...]:
        """What must be right for all to be right: both ends."""
        return (self.low, self.high)

    def at(self, share: float) -> Value:
        """The value at a share (0 to 1) of the way from one end to the other."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else float(value)

    def suggested(self, trial: optuna.Trial) -> Value:
        """What the study gives this trial."""
        if self.whole:
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.path, self.low, self.high, log=self.log)


Varied = Choices | Range


def parse_varied(text: str) -> Varied:
    """Read one `--vary`.

    Raises:
        ConfigError: it is no place with values, or a range that is empty or cannot be logarithmic.

    >>> parse_varied("train.optimizer.lr=1e-4,1e-3")
    Choices(path='train.optimizer.lr', values=(0.0001, 0.001))
    >>> parse_varied("parties.bank.privacy.marvell.sum_kl=0.1..4:log")
    Range(path='parties.bank.privacy.marvell.sum_kl', low=0.1, high=4, log=True, whole=False)
    """
    path, equals, values = (part.strip() for part in text.partition("="))
    if not (path and equals and values) or not all(part.strip() for part in path.split(".")):
        raise ConfigError.expected(f"--vary {_SYNTAX}", repr(text))
    if ".." in values:
        return _range(text, path, values)
    found = tuple(_value(word.strip()) for word in values.split(","))
    if "" in found:
        raise ConfigError.expected(f"--vary {_SYNTAX}", repr(text), "a value is empty")
    for place, value in enumerate(found):
        if value in found[:place]:
            raise ConfigError.expected(f"every value of --vary {path} once", f"{written(value)} twice")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError.expected(f"finite numbers in --vary {path}", written(value))
    return Choices(path, found)


def _range(text: str, path: str, values: str) -> Range:
    ends, colon, scale = values.partition(":")
    low, high = (_value(end.strip()) for end in ends.split("..", 1))
    numbers = [end for end in (low, high) if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(numbers) < 2 or not all(map(math.isfinite, numbers)) or (colon and scale != "log"):
        raise ConfigError.expected("--vary PATH=LOW..HIGH or PATH=LOW..HIGH:log with two numbers", repr(text))
    if numbers[0] >= numbers[1]:
        raise ConfigError.expected(f"--vary {path} from a smaller to a larger number", values)
    if colon and numbers[0] <= 0:
        raise ConfigError.expected(f"--vary {path} above 0 throughout for :log", values, "begin above 0, or drop :log")
    return Range(path, numbers[0], numbers[1], log=bool(colon))


def _value(word: str) -> Value:
    if word in _WORDS:
        return _WORDS[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def written(value: Value) -> str:
    """A value to be read: four digits of a fraction, which tell trials apart.

    >>> written(1e-4), written(True), written("adam"), written(0.18194738)
    ('0.0001', 'true', 'adam', '0.1819')
    """
    return f"{value:.4g}" if isinstance(value, float) else _typed(value)


def _typed(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def told_of(point: Point, names: Mapping[str, str]) -> str:
    """A point in words.

    Args:
        names: short name by path, in the order of the words.

    >>> told_of({"train.optimizer.lr": 1e-3, "train.epochs": 2}, {"train.epochs": "epochs", "train.optimizer.lr": "lr"})
    'epochs 2, lr 0.001'
    """
    return ", ".join(f"{name} {written(point[path])}" for path, name in names.items())


@dataclass(frozen=True)
class Space:
    """All that is varied at once.

    Attributes:
        varied: one for each place.
        seed: of the order of trials.
    """

    varied: tuple[Varied, ...]
    seed: int

    @property
    def points(self) -> int | None:
        """How many points there are; `None` where a range makes them a continuum."""
        sizes = [len(one.values) for one in self.varied if isinstance(one, Choices)]
        return math.prod(sizes) if len(sizes) == len(self.varied) else None

    def fixed(self, slot: int) -> Point:
        """The point of a trial that is known beforehand; empty where the sampler of the study chooses it.

        A grid is walked in a random order, so that any first part of it is spread over the whole. The first trials of
        a search are the points of a scrambled Halton sequence.
        """
        if self.points is not None:
            return self._of_grid(int(self._order[slot]))
        if slot >= EVEN_TRIALS:
            return {}
        return {one.path: one.at(float(share)) for one, share in zip(self.varied, self._even[slot], strict=True)}

    def suggested(self, trial: optuna.Trial) -> Point:
        """The point that the study gives this trial."""
        return {one.path: one.suggested(trial) for one in self.varied}

    @cached_property
    def _order(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.random.default_rng(self.seed).permutation(self.points or 0)

    @cached_property
    def _even(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        sequence = qmc.Halton(len(self.varied), seed=np.random.default_rng(self.seed))
        drawn: np.ndarray[tuple[int, int], np.dtype[np.float64]] = sequence.random(EVEN_TRIALS)
        return drawn

    def _of_grid(self, number: int) -> Point:
        point: dict[str, Value] = {}
        for one in self.varied:
            assert isinstance(one, Choices)  # noqa: S101 (a grid has nothing else)
            number, place = divmod(number, len(one.values))
            point[one.path] = one.values[place]
        return point


def space_of(varied: Sequence[Varied], seed: int) -> Space:
    """Put together what is varied, in an order that does not depend on that of the command line.

    Raises:
        ConfigError: nothing, a place twice, or a grid of too many points.
    """
    paths = [one.path for one in varied]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if not varied:
        raise ConfigError.expected(f"--vary {_SYNTAX}, once or more", "none")
    if twice:
        raise ConfigError.expected("every place of the job in one --vary", f"{twice[0]} in several")
    space = Space(tuple(sorted(varied, key=lambda one: one.path)), seed)
    if (space.points or 0) > MOST_POINTS:
        raise ConfigError.expected(
            f"a grid of at most {MOST_POINTS:,} points", f"{space.points:,}", "vary less, or search a range"
        )
    return space


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """As few of the last parts of each path as tell it from the others.

    >>> short_names(["train.optimizer.lr", "parties.bank.privacy.dcor.alpha", "parties.shop.privacy.dcor.alpha"])
    {'train.optimizer.lr': 'lr', 'parties.bank.privacy.dcor.alpha': 'bank.privacy.dcor.alpha', \
'parties.shop.privacy.dcor.alpha': 'shop.privacy.dcor.alpha'}
    """

    def tail(path: str, parts: int) -> str:
        return ".".join(path.split(".")[-parts:])

    def shortest(path: str) -> str:
        length = path.count(".") + 1
        tails = (tail(path, n) for n in range(1, length) if [tail(p, n) for p in paths].count(tail(path, n)) == 1)
        return next(tails, path)

    return {path: shortest(path) for path in paths}
