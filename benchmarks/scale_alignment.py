"""Processor time and memory of finding the common rows of two tables, against the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.scale import Meter, apart, counts_to
from cutlayer.data.align import intersect
from cutlayer.data.ids import DIGEST_BYTES

OVERLAP = 0.8


@dataclass(frozen=True)
class Intersection:
    """Cost at one number of rows.

    Attributes:
        rows: Number of rows of each table.
        seconds: Processor time.
        peak_mb: Largest anonymous memory of the process, the digests included.
    """

    rows: int
    seconds: float
    peak_mb: float


@dataclass(frozen=True)
class Intersections:
    """Costs at several numbers of rows, and their slope.

    Attributes:
        sizes: Costs by rows.
        slope: Slope of log processor time against log rows, from the smallest to the largest size.
    """

    sizes: list[Intersection]
    slope: float


def scale_alignment(rows: int) -> Intersections:
    """Intersect the digests of two tables that share 80 % of their rows, each size in a process of its own."""
    sizes = [apart(measure, count) for count in counts_to(rows)]
    first, last = sizes[0], sizes[-1]
    slope = math.log(last.seconds / first.seconds) / math.log(last.rows / first.rows) if len(sizes) > 1 else math.nan
    return Intersections(sizes, round(slope, 3))


def measure(rows: int) -> Intersection:
    """Intersect once; a digest is as random as those of ids."""
    draw, meter = np.random.default_rng(0), Meter()
    every = draw.integers(0, 256, (rows + round(rows * (1 - OVERLAP)), DIGEST_BYTES), dtype=np.uint8)
    digests = {"bank": every[:rows].copy(), "shop": every[-rows:][::-1].copy()}
    del every
    with meter.running(), meter.stage("align"):
        common = intersect(digests)
    if len(common["bank"]) != 2 * rows - (rows + round(rows * (1 - OVERLAP))):
        raise AssertionError("another number of common rows")
    return Intersection(rows, meter.stages["align"].seconds, meter.stages["align"].peak_mb)
