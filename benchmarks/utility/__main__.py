"""`python -m benchmarks.utility --data DIR` prints the table of default settings against scikit-learn."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from benchmarks.utility.datasets import NAMES, DataSet, load
from benchmarks.utility.sides import ours, quiet, references

METRICS = {"binary": "AUC", "multiclass": "accuracy", "regression": "R²"}


class Row(NamedTuple):
    """A data set's results, each the mean over its seeds.

    Attributes:
        name: Name of the data set.
        rows: Number of rows, the test rows included.
        parties: Number of parties.
        metric: Name of the metric.
        ours: Metric of the job of default settings.
        tabular: Metric of the same job with bottom models of kind `tabular`.
        references: Metrics of scikit-learn's models, by name.
        seeds: Number of seeds.
    """

    name: str
    rows: int
    parties: int
    metric: str
    ours: float
    tabular: float
    references: Mapping[str, float]
    seeds: int

    @property
    def gaps(self) -> tuple[float, float]:
        """Each of the two jobs minus the best of the references."""
        best = max(self.references.values())
        return self.ours - best, self.tabular - best


def measure(data: DataSet, seeds: int | None = None, changes: Mapping[str, Any] | None = None) -> Row:
    """Train both sides on a data set.

    Args:
        data: Columns by party, and labels.
        seeds: Number of seeds; by default that of the data set.
        changes: Sections of the job that differ from the default.
    """
    count = seeds or data.seeds
    given = changes or {}
    tabular = {**given, "model": {**given.get("model", {}), "bottom": {"kind": "tabular"}}}
    own, other = (mean(ours(data, seed, job) for seed in range(count)) for job in (given, tabular))
    others = [references(data, seed) for seed in range(count)]
    averages = {model: mean(scores[model] for scores in others) for model in others[0]}
    return Row(data.name, len(data.labels), len(data.parts), METRICS[data.task], own, other, averages, count)


def page(rows: Iterable[Row]) -> str:
    """The table as Markdown."""
    lines = [
        "| data set | rows | parties | seeds | metric | default | tabular | linear | boosting | MLP | to the best |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        values = " | ".join(f"{row.references[model]:.3f}" for model in ("linear", "boosting", "MLP"))
        own = "refused | refused |" if math.isnan(row.ours) else f"{row.ours:.3f} | {row.tabular:.3f} |"
        gap = "" if math.isnan(row.ours) else ", ".join(f"{gap:+.3f}" for gap in row.gaps)
        lines.append(
            f"| {row.name} | {row.rows:,} | {row.parties} | {row.seeds} | {row.metric} | {own} {values} | {gap} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and print the table; a data set's time goes to the standard error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.utility", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--seeds", type=int, help="number of seeds, instead of each data set's own")
    parser.add_argument("--changes", type=json.loads, default={}, help="sections of the job, as JSON, to try others")
    given = parser.parse_args(arguments)
    quiet()
    rows = []
    for name in given.only:
        began = time.perf_counter()
        rows.append(measure(load(name, given.data), given.seeds, given.changes))
        gaps = ", ".join(f"{gap:+.3f}" for gap in rows[-1].gaps)
        sys.stderr.write(f"{name}: {gaps} in {time.perf_counter() - began:.0f} s\n")
    sys.stdout.write(page(rows))


if __name__ == "__main__":
    main()
