"""`python -m benchmarks utility --data DIR` compares the jobs that `init` writes with scikit-learn's models.

Results are appended to a file, one line for each data set, seed and side; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from benchmarks.utility.datasets import LARGEST, LOADERS, DataSet, load
from benchmarks.utility.sides import TEST, ours, quiet, references
from studies.provenance import provenance

METRICS = {"binary": "AUC", "multiclass": "accuracy", "regression": "R²"}
MARGIN = 0.005
"""How far below the best on all columns the job may be."""
SIDES = ("cutlayer", "scikit-learn")


def measured(
    name: str, data: DataSet, seed: int, side: str, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Train one side on a data set, and return a line of the file of results."""
    began = time.perf_counter()
    scores, chosen = ours(data, seed, changes) if side == SIDES[0] else (references(data, seed), {})
    return {
        "data": name,
        "seed": seed,
        "side": side,
        "rows": len(data.labels),
        "metric": METRICS[data.task],
        "scores": scores,
        "chosen": chosen,
        "seconds": round(time.perf_counter() - began, 1),
        "commit": provenance()["commit"],
    }


class Row(NamedTuple):
    """A data set's results, each the mean over its seeds.

    Attributes:
        name: Name of the data set.
        rows: Number of rows, the test rows included.
        seeds: Number of seeds.
        metric: Name of the metric.
        ours: Metric of the job.
        references: Metric of each model of scikit-learn.
        gap: The job minus the best on all columns, and the half-width of its 95 % interval: over the seeds, or, of one
            seed, over parts of the test rows.
        gain: The same of the best on the bank's columns.
    """

    name: str
    rows: int
    seeds: int
    metric: str
    ours: float
    references: Mapping[str, float]
    gap: tuple[float, float]
    gain: tuple[float, float]

    @property
    def is_near(self) -> bool:
        """Whether the job is within the margin of the best on all columns."""
        return self.gap[0] >= -MARGIN

    @property
    def is_worth_it(self) -> bool:
        """Whether the job is not below the best on the bank's columns by more than the interval."""
        return self.gain[0] >= -self.gain[1]


def rows_of(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Rows of the table, of data sets with results of both sides."""
    found: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for line in lines:
        found.setdefault(line["data"], {}).setdefault(line["side"], {})[line["seed"]] = line
    return [_row(name, *(found[name][side] for side in SIDES)) for name in LOADERS if len(found.get(name, {})) == 2]


def _row(name: str, job: Mapping[int, Mapping[str, Any]], others: Mapping[int, Mapping[str, Any]]) -> Row:
    seeds = sorted(job.keys() & others.keys())
    first = job[seeds[0]]
    scores = np.array([job[seed]["scores"]["cutlayer"] for seed in seeds])
    every = {model: np.array([others[seed]["scores"][model] for seed in seeds]) for model in others[seeds[0]]["scores"]}
    means = {model: float(values[:, 0].mean()) for model, values in every.items()}
    gaps = []
    for columns in ("all", "own"):
        best = max((model for model in means if model.startswith(columns)), key=lambda model: means[model])
        differences = scores - every[best]
        samples = differences[:, 0] if len(seeds) > 1 else differences[0, 1:]
        gaps.append((float(differences[:, 0].mean()), _half_width(samples)))
    return Row(name, first["rows"], len(seeds), first["metric"], float(scores[:, 0].mean()), means, *gaps)


def _half_width(samples: npt.NDArray[np.float64]) -> float:
    """Half of the 95 % interval of the mean, by Student's distribution."""
    quantile = stats.t.ppf(0.975, len(samples) - 1)
    return float(quantile * samples.std(ddof=1) / math.sqrt(len(samples)))


def page(rows: Sequence[Row]) -> str:
    """The table as Markdown, and how many data sets reach the goals."""
    models = ("linear", "boosting", "MLP")
    lines = [
        "| data set | rows | seeds | metric | job | linear | boosting | MLP | to the best | own | to the best own |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        values = " | ".join(f"{row.references[f'all {model}']:.3f}" for model in models)
        own = max(row.references[f"own {model}"] for model in models)
        gap, gain = _difference(*row.gap, is_met=row.is_near), _difference(*row.gain, is_met=row.is_worth_it)
        lines.append(
            f"| {row.name} | {row.rows:,} | {row.seeds} | {row.metric} | {row.ours:.3f} | {values} | {gap} | {own:.3f} "
            f"| {gain} |"
        )
    near, worth = sum(row.is_near for row in rows), sum(row.is_worth_it for row in rows)
    lines += [
        "",
        f"{near} of {len(rows)} within {MARGIN} of the best on all columns; {worth} of {len(rows)} not below the best "
        f"on the bank's own columns by more than the interval. Data sets have {LARGEST:,} rows at most, drawn at "
        f"random; {TEST:.0%} are test rows.",
    ]
    return "\n".join(lines).replace("-0.", "−0.") + "\n"


def _difference(mean: float, half_width: float, *, is_met: bool) -> str:
    text = f"{mean:+.3f} ± {half_width:.3f}"
    return text if is_met else f"**{text}**"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the table; times go to the standard error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks utility", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=Path("utility.jsonl"), help="file that results are appended to")
    parser.add_argument(
        "--only", nargs="+", choices=LOADERS, default=[*LOADERS], metavar="NAME", help=", ".join(LOADERS)
    )
    parser.add_argument("--seeds", type=int, help="number of seeds, instead of each data set's own")
    parser.add_argument("--changes", type=json.loads, default={}, help="sections of the job, as JSON, to try others")
    given = parser.parse_args(arguments)
    quiet()
    lines = lines_of(given.results)
    done = {(line["data"], line["seed"], line["side"]) for line in lines}
    for name in given.only:
        data = load(name, given.data)
        for seed in range(given.seeds or data.seeds):
            for side in SIDES:
                if (name, seed, side) in done:
                    continue
                lines.append(measured(name, data, seed, side, given.changes))
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
                sys.stderr.write(f"{name}, seed {seed}, {side}: {lines[-1]['seconds']} s\n")
    sys.stdout.write(page(rows_of(line for line in lines if line["data"] in given.only)))


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Results of earlier calls; a last line that an interruption cut off is removed."""
    texts = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    if texts and not texts[-1].endswith("\n"):
        path.write_text("".join(texts[:-1]), encoding="utf-8")
        del texts[-1]
    return [json.loads(text) for text in texts]


if __name__ == "__main__":
    main()
