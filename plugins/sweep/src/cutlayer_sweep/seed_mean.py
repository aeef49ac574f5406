"""Means over seeds with their intervals, and what they settle."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from cutlayer.results.decimals import minus

MIN_SEEDS = 2
"""Seeds from which on a mean has an interval."""
MAX_SEEDS = 100
"""Beyond so many seeds a difference is too small for this spread to be worth settling."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds with its 95 % interval (Student's t).

    Attributes:
        value: The mean.
        half_width: Half the width of the interval; `None` from a single value.
        seeds: Number of values; 0 if unknown.
    """

    value: float
    half_width: float | None
    seeds: int = 0

    def __str__(self) -> str:
        """Three decimals, as `0.723 ± 0.004`; two digits that count where these are zeros, as `0.00012 ± 3e-05`."""
        largest = max(abs(self.value), self.half_width or 0.0)
        return self.text(".2g" if 0 < largest < 0.0005 else ".3f")

    def text(self, spec: str) -> str:
        """The mean and its interval by a format.

        Args:
            spec: Format of both numbers, such as `.3f` or `.1%`.
        """
        value = minus(format(round(self.value, 3) + 0.0 if spec == ".3f" else self.value, spec))  # never -0.000
        return value if self.half_width is None else f"{value} ± {self.half_width:{spec}}"

    def side_of(self, limit: float) -> int | None:
        """-1 or 1 where the whole interval is below or above a limit; `None` where it is not, or there is none."""
        if self.half_width is None or abs(self.value - limit) <= self.half_width:
            return None
        return -1 if self.value < limit else 1

    def seeds_to_settle(self, limit: float) -> int | None:
        """Number of seeds at which the interval of the same mean and standard deviation leaves out a limit.

        `None` beyond `MAX_SEEDS`, and from a single value.
        """
        wanted = range(self.seeds + 1, MAX_SEEDS + 1)
        widths = ((n, self.half_width_at(n)) for n in wanted)
        return next((n for n, width in widths if width is not None and width < abs(self.value - limit)), None)

    def half_width_at(self, seeds: int) -> float | None:
        """Half the width of the interval at the same standard deviation of so many seeds; `None` from a single value.

        Args:
            seeds: Number of seeds, 2 or more.
        """
        if self.half_width is None or self.seeds < MIN_SEEDS:
            return None
        return self.half_width * math.sqrt(self.seeds / seeds) * t_quantile(seeds) / t_quantile(self.seeds)


def seed_mean_of(values: Iterable[float | None]) -> SeedMean | None:
    """Mean and half-width of the 95 % t interval of the known values; `None` without any.

    >>> str(seed_mean_of([0.7, 0.72, None, 0.71]))
    '0.710 ± 0.025'
    >>> str(seed_mean_of([0.0001, 0.00012, 0.00011]))
    '0.00011 ± 2.5e-05'
    >>> str(seed_mean_of([-0.25, -0.15]))  # a minus sign, which LaTeX and tables set as one
    '−0.200 ± 0.635'
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) < MIN_SEEDS:
        return SeedMean(known[0], None, len(known))
    half_width = t_quantile(len(known)) * statistics.stdev(known) / len(known) ** 0.5
    return SeedMean(statistics.fmean(known), half_width, len(known))


def t_quantile(seeds: int) -> float:
    """Student's t that makes the half-width of the 95 % interval of a mean of so many values, 2 or more."""
    from scipy.special import stdtrit  # `scipy.stats`, which calls it, takes half a second to import

    return float(stdtrit(seeds - 1, (1 + CONFIDENCE) / 2))
