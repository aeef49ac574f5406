"""The search space: lists of values and ranges, and the point of each trial of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import optuna

from cutlayer.errors import ConfigError
from cutlayer_sweep.changes import Value, parse_value

Point = Mapping[str, Value]

MAX_POINTS = 10_000
EVEN_TRIALS = 10
"""Number of first trials of a search that are spread evenly, before the sampler has results to learn from."""

_SYNTAX = "PATH=VALUE,VALUE,... or PATH=LOW..HIGH or PATH=LOW..HIGH:log"


@dataclass(frozen=True)
class Choices:
    """A list of values for one key of the job."""

    path: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.path}={','.join(map(_typed, self.values))}"

    @property
    def edges(self) -> tuple[Value, ...]:
        """Values that must be valid for all to be valid: every value."""
        return self.values

    def at(self, share: float) -> Value:
        """The value at a share (0 to 1) of the list."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def suggested(self, trial: optuna.Trial) -> Value:
        """The value that the study gives this trial."""
        return self.values[self.values.index(trial.suggest_categorical(self.path, self.values))]


@dataclass(frozen=True)
class Range:
    """An interval of numbers for one key of the job, both ends included.

    Attributes:
        path: Dotted path of the key.
        low: Lower end.
        high: Upper end.
        log: Spread evenly in the logarithm.
        whole: Only whole numbers.
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
        """Values that must be valid for all to be valid: both ends."""
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
        """The value that the study gives this trial."""
        if self.whole:
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.path, self.low, self.high, log=self.log)


Varied = Choices | Range


def parse_varied(text: str) -> Varied:
    """Read one `--vary`.

    Raises:
        ConfigError: The text is no path with values, or its range is empty or cannot be logarithmic.

    >>> parse_varied("train.optimizer.lr=1e-4,1e-3")
    Choices(path='train.optimizer.lr', values=(0.0001, 0.001))
    >>> parse_varied("parties.bank.privacy.marvell.sum_kl=0.1..4:log")
    Range(path='parties.bank.privacy.marvell.sum_kl', low=0.1, high=4, log=True, whole=False)
    """
    path, _, values = (part.strip() for part in text.partition("="))
    if not (path and values) or not all(part.strip() for part in path.split(".")):
        raise ConfigError.expected(f"--vary {_SYNTAX}", repr(text))
    if ".." in values:
        return _range(text, path, values)
    choices = tuple(parse_value(word.strip()) for word in values.split(","))
    if "" in choices:
        raise ConfigError.expected(f"--vary {_SYNTAX}", repr(text), "a value is empty")
    for index, value in enumerate(choices):
        if value in choices[:index]:
            raise ConfigError.expected(f"every value of --vary {path} once", f"{format_value(value)} twice")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError.expected(f"finite numbers in --vary {path}", format_value(value))
    return Choices(path, choices)


def _range(text: str, path: str, values: str) -> Range:
    ends, colon, scale = values.partition(":")
    low, high = (parse_value(end.strip()) for end in ends.split("..", 1))
    numbers = [end for end in (low, high) if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(numbers) < 2 or not all(map(math.isfinite, numbers)) or (colon and scale != "log"):
        raise ConfigError.expected("--vary PATH=LOW..HIGH or PATH=LOW..HIGH:log with two numbers", repr(text))
    if numbers[0] >= numbers[1]:
        raise ConfigError.expected(f"--vary {path} from a smaller to a larger number", values)
    if colon and numbers[0] <= 0:
        raise ConfigError.expected(f"--vary {path} above 0 throughout for :log", values, "begin above 0, or drop :log")
    return Range(path, numbers[0], numbers[1], log=bool(colon))


def format_value(value: Value) -> str:
    """A value for readers, with four digits of a fraction, which distinguish trials.

    >>> format_value(1e-4), format_value(True), format_value("adam"), format_value(0.18194738)
    ('0.0001', 'true', 'adam', '0.1819')
    """
    return f"{value:.4g}" if isinstance(value, float) else _typed(value)


def _typed(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def describe_point(point: Point, names: Mapping[str, str]) -> str:
    """The values of a point with their names.

    Args:
        point: Values by path.
        names: Short name by path, in the order of the description.

    >>> lr = "train.optimizer.lr"
    >>> describe_point({lr: 1e-3, "train.epochs": 2}, {"train.epochs": "epochs", lr: "lr"})
    'epochs 2, lr 0.001'
    """
    return ", ".join(f"{name} {format_value(point[path])}" for path, name in names.items())


@dataclass(frozen=True)
class Space:
    """All that is varied at once.

    Attributes:
        varied: One dimension for each path.
        seed: Seed of the order of trials.
    """

    varied: tuple[Varied, ...]
    seed: int

    @property
    def points(self) -> int | None:
        """Number of points; `None` where a range makes them a continuum."""
        sizes = [len(dimension.values) for dimension in self.varied if isinstance(dimension, Choices)]
        return math.prod(sizes) if len(sizes) == len(self.varied) else None

    def fixed(self, slot: int) -> Point:
        """The point of a trial that is known beforehand; empty where the sampler of the study chooses it.

        The points of a grid are tried in a random order, so that its first trials are spread over all of it. The first
        trials of a search are the points of a scrambled Halton sequence.
        """
        if self.points is not None:
            indices = np.unravel_index(
                self._order[slot], [len(dimension.edges) for dimension in self.varied], order="F"
            )
            return {dimension.path: dimension.edges[at] for dimension, at in zip(self.varied, indices, strict=True)}
        if slot >= EVEN_TRIALS:
            return {}
        pairs = zip(self.varied, self._even[slot], strict=True)
        return {dimension.path: dimension.at(float(share)) for dimension, share in pairs}

    def suggested(self, trial: optuna.Trial) -> Point:
        """The point that the study gives this trial."""
        return {dimension.path: dimension.suggested(trial) for dimension in self.varied}

    @cached_property
    def _order(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.random.default_rng(self.seed).permutation(self.points or 0)

    @cached_property
    def _even(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        from scipy.stats import qmc

        sequence = qmc.Halton(len(self.varied), seed=np.random.default_rng(self.seed))
        drawn: np.ndarray[tuple[int, int], np.dtype[np.float64]] = sequence.random(EVEN_TRIALS)
        return drawn


def space_of(varied: Sequence[Varied], seed: int) -> Space:
    """The space of what is varied, in an order that does not depend on that of the command line.

    Raises:
        ConfigError: Nothing is varied, a path appears twice, or the grid has too many points.
    """
    paths = [dimension.path for dimension in varied]
    if not varied:
        raise ConfigError.expected(f"--vary {_SYNTAX}, once or more", "none")
    if repeated := sorted({path for path in paths if paths.count(path) > 1}):
        raise ConfigError.expected("every path of the job in one --vary", f"{repeated[0]} in several")
    space = Space(tuple(sorted(varied, key=lambda dimension: dimension.path)), seed)
    if (space.points or 0) > MAX_POINTS:
        remedy = "vary less, or search a range"
        raise ConfigError.expected(f"a grid of at most {MAX_POINTS:,} points", f"{space.points:,}", remedy)
    return space


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest ends of dotted paths that distinguish them.

    >>> short_names(["train.optimizer.lr", "parties.bank.privacy.dcor.alpha", "parties.shop.privacy.dcor.alpha"])
    {'train.optimizer.lr': 'lr', 'parties.bank.privacy.dcor.alpha': 'bank.privacy.dcor.alpha', \
'parties.shop.privacy.dcor.alpha': 'shop.privacy.dcor.alpha'}
    """
    names = {}
    for path in paths:
        parts = path.split(".")
        ends = [parts[-length:] for length in range(1, len(parts) + 1)]
        unique = (end for end in ends if sum(other.split(".")[-len(end) :] == end for other in paths) == 1)
        names[path] = ".".join(next(unique, parts))
    return names
