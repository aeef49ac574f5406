"""What the audit adds to a job, by rows, task and parties: the job that `init` writes, with its audit and without.

Both are runs of the command line in new processes, in turn and with one key, so that they train alike, with the default
audit and with none. The job releases once, fits its top model, and compares with an undefended training by steps and
with training alone; the audit attacks the messages of both trainings. The tables are synthetic: 16 numbers and 4
categories, shared among the parties.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from ruamel.yaml import YAML

from benchmarks.start import timed

SIZES = (200, 2_000, 20_000, 200_000)
CLASSES = {"binary": 2, "four classes": 4, "ten classes": 10, "regression": 0}
PARTIES = (2, 4)
LARGE, MAX_RATIO, MAX_SECONDS = 20_000, 1.10, 2.0
"""The goal: from so many rows on this ratio at most, and below so many seconds more."""
NUMBERS, CATEGORIES = 16, 4
KEY = "key"
RUN = ("-m", "cutlayer", "run", "--json", "--key", KEY)
NO_AUDIT = {"attacks": [], "every": "never"}


@dataclass(frozen=True)
class Price:
    """The audit of one job; medians over the repeats.

    Attributes:
        task: Kind of labels.
        parties: Number of parties.
        rows: Number of rows.
        bare_seconds: Processor seconds of the job without an audit.
        more_seconds: Processor seconds more with it.
        ratio: Processor time with the audit over that without.
        lowest: Lowest of it.
        highest: Highest of it.
        wall_ratio: The same of elapsed time.
        within_goal: Whether the ratio, or of few rows the seconds, are within the goal.
    """

    task: str
    parties: int
    rows: int
    bare_seconds: float
    more_seconds: float
    ratio: float
    lowest: float
    highest: float
    wall_ratio: float
    within_goal: bool


@dataclass(frozen=True)
class AuditPrices:
    """The audit of every job.

    Attributes:
        repeats: Number of runs of each job.
        prices: Every job.
    """

    repeats: int
    prices: list[Price]


def audit_prices(rows: int, repeats: int) -> AuditPrices:
    """Measure every task and number of parties, at each of `SIZES` up to `rows`; a line of each on standard error."""
    cases = [(task, parties, size) for size in SIZES if size <= rows for task in CLASSES for parties in PARTIES]
    prices = []
    for case in cases:
        prices.append(price(*case, repeats))
        sys.stderr.write(json.dumps(asdict(prices[-1])) + "\n")  # the whole takes an hour
    return AuditPrices(repeats, prices)


def price(task: str, parties: int, rows: int, repeats: int) -> Price:
    """Run one job with and without its audit, in turn."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-audit-price-") as scratch:
        folder = Path(scratch)
        write_jobs(folder, task, parties, rows)
        rounds = [
            [timed(folder, (*RUN, f"{name}.yaml", "--out", f"{name}-{index}"), 0) for name in ("job", "bare")]
            for index in range(repeats)
        ]
    ratios = [audited.cpu / bare.cpu for audited, bare in rounds]
    ratio = statistics.median(ratios)
    more = statistics.median(audited.cpu - bare.cpu for audited, bare in rounds)
    return Price(
        task=task,
        parties=parties,
        rows=rows,
        bare_seconds=round(statistics.median(bare.cpu for _, bare in rounds), 2),
        more_seconds=round(more, 2),
        ratio=round(ratio, 3),
        lowest=round(min(ratios), 3),
        highest=round(max(ratios), 3),
        wall_ratio=round(statistics.median(audited.seconds / bare.seconds for audited, bare in rounds), 3),
        within_goal=ratio <= MAX_RATIO if rows >= LARGE else more <= MAX_SECONDS,
    )


def write_jobs(folder: Path, task: str, parties: int, rows: int) -> None:
    """Write a table for each party, the job that `init` makes of them, and `bare.yaml`, the same without an audit."""
    draw, classes = np.random.default_rng(0), CLASSES[task]
    (folder / KEY).write_bytes(bytes(range(32)))
    (folder / KEY).chmod(0o600)
    columns: dict[str, Any] = {f"x{i}": draw.standard_normal(rows) for i in range(NUMBERS)}
    columns |= {f"c{i}": np.char.add("v", draw.integers(0, 8, rows).astype(str)) for i in range(CATEGORIES)}
    signal = sum(columns[f"x{i}"] for i in range(0, NUMBERS, 2)) + 2 * draw.standard_normal(rows)
    places = np.argsort(np.argsort(signal)) * classes // rows
    label = np.char.add("k", places.astype(str)) if classes else signal
    for index, name in enumerate(["active", *(f"partner{i}" for i in range(1, parties))]):
        own = {"id": np.arange(rows)} | {column: columns[column] for column in [*columns][index::parties]}
        own |= {"label": label} if index == 0 else {}
        parquet.write_table(pa.table(own), folder / f"{name}.parquet")
    labels = ("--labels", "active.parquet", "--label", "label")
    timed(folder, ("-m", "cutlayer", "init", ".", *labels, "--yes"), 0)
    yaml = YAML()
    raw = yaml.load(folder / "job.yaml")
    for party in raw["parties"].values():
        party["audit"] = NO_AUDIT
    yaml.dump(raw, folder / "bare.yaml")
