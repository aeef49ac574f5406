"""`python -m benchmarks pilot --data DIR`: whether a pilot's interval has what the full run of the same job adds.

Each job is that of `init`, with grades, with the sketch, or with grades of a partner of noise. What the full run adds
is that of `benchmarks grades`, of the same job and seed. Results are appended to a file; what is there stays.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.grades import RESULTS as FULL
from benchmarks.grades import label_epsilon, rounded, span_of, written
from benchmarks.utility.__main__ import METRICS, lines_of
from benchmarks.utility.datasets import DataSet, load
from benchmarks.utility.sides import LABEL, test_rows, write_tables
from cutlayer.cli.init import init
from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.models.top_estimators.result import PartnerPilot
from cutlayer.results.pilot import Verdict, verdict_of
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from studies.provenance import provenance

TABLES = (
    *("motor", "friedman", "bank-2000", "adult-2000", "age-3000", "bank", "credit", "bank-rare", "adult", "avazu"),
    *("limit", "criteo", "movies"),
)
KINDS = ("grades", "sketch", "noise")
ROWS, SHARE = 1000, 4
"""Rows of a pilot, or that share of fewer."""
EPSILON = 8.0
NOISE_COLUMNS, NOISE_ROWS = 8, 5_000
"""Columns of a partner of noise, and rows of its tables: fewer, since its gain is known to be 0."""
RESULTS = Path(__file__).parent / "results" / "pilot.jsonl"


def measured(
    name: str, data: DataSet, kind: str, seed: int, full: Sequence[Mapping[str, Any]], most: int = ROWS
) -> dict[str, Any]:
    """Run a pilot, and return a line of the file of results.

    Args:
        name: Name of the data set.
        data: Columns by party, and labels.
        kind: What the partner releases, one of `KINDS`.
        seed: Seed of the job.
        full: Lines of the full runs.
        most: Number of rows of the pilot, of which a quarter of the table is the maximum.
    """
    truth: float | None = 0.0
    if kind == "noise":
        data = data.drawn(NOISE_ROWS)
        noise = np.random.default_rng(seed).normal(size=(len(data.labels), NOISE_COLUMNS))
        data = DataSet(data.task, data.bank, pd.DataFrame(noise).add_prefix("noise_"), data.labels)
    else:
        known = next((line for line in full if (line.get("data"), line.get("seed")) == (name, seed)), None)
        truth = None if known is None else _added(known, kind)
    rows = min(most, len(data.labels) // SHARE)
    began, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="cutlayer-pilot-") as scratch:
        folder = Path(scratch)
        write_tables(data, folder)
        with redirect_stdout(io.StringIO()):
            init(folder, label=LABEL, protect="labels", yes=True)
        options = Options(Keys(folder / "keys"), pilot=rows)
        run = execute(validated(Job, job_of(folder, data, kind, seed), "job"), folder / "run", options, Progress())
        (found,) = run.summary.pilot
        line = {
            "data": name,
            "kind": kind,
            "seed": seed,
            "most": most,
            "rows": len(data.labels),
            "metric": METRICS[data.task],
        }
        line |= {"truth": truth, "matters": run.summary.utility.matters, "pilot": found.model_dump(mode="json")}
        line |= {"account": _account(run), "seconds": round(time.monotonic() - began)}
        return line | {"cpu": round(time.process_time() - cpu), "commit": provenance()["commit"]}


def _added(full: Mapping[str, Any], kind: str) -> float:
    """What a full run adds to own columns."""
    return float((full["8"]["grade"] if kind == "grades" else full["sketch"]) - full["own"])


def job_of(folder: Path, data: DataSet, kind: str, seed: int) -> dict[str, Any]:
    """The job that `init` wrote, with the sketch or with grades."""
    raw = written(folder, seed)
    raw["compare"] = []
    raw["parties"]["partner"] |= {"audit": {"attacks": [] if kind == "noise" else ["inversion"]}}
    if kind != "sketch":
        label, _ = label_epsilon(data, len(data.labels) - len(test_rows(len(data.labels), seed)))
        drawn = {"eps": label, **({"range": [*span_of(data)]} if data.task == "regression" else {})}
        raw["parties"]["bank"]["privacy"] = {"label_dp": drawn}
        raw["parties"]["partner"] |= {"fit": {"kind": "grade", "least_z": 0}}
        raw["parties"]["partner"]["privacy"] = {"grade_dp": {"epsilon": EPSILON}}
        raw["model"]["bottom"]["partner"] = {"kind": "grade", "least_rows": 0}
    return raw


def _account(run: RunFolder) -> dict[str, Any]:
    """The privacy cost of a pilot, and the most that an attack read of the partner's columns."""
    totals = {total.protects: total.epsilon for total in run.summary.ledger.totals}
    read = [result.value for result in run.audit.features if result.value is not None]
    return {"epsilon": totals, "read": max(read, default=None)}


def page(lines: Sequence[Mapping[str, Any]], full: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The tables as Markdown, one for each kind and number of rows, with the figures that the goals are of.

    Args:
        lines: Lines of the file of results.
        full: Lines of the full runs, whose mean over seeds is what a partner adds: the test rows of one are few.
    """
    for kind, most in dict.fromkeys((line["kind"], line.get("most", ROWS)) for line in lines):
        yield f"\n**{kind}, {most:,} rows at most**\n"
        yield (
            "| data set | metric | rows | pilot | own | full runs add | pilot (interval) | says | width / gain "
            "| R²: pilot, full |"
        )
        yield "|---" * 10 + "|"
        some = [_Row.of(line, full) for line in lines if (line["kind"], line.get("most", ROWS)) == (kind, most)]
        yield from (row.text for row in some)
        known = [row for row in some if row.gain is not None]
        covered, of_seed = sum(row.covers for row in known), sum(row.covers_one for row in known)
        yield f"\nThe mean of the full runs is in {covered} of {len(known)} intervals, of its seed in {of_seed}."
        if kind == "noise":
            yield f'It says "nothing" in {sum(row.says is Verdict.NOTHING for row in some)} of {len(some)}.'
        else:
            yield f"Median width {median(row.width for row in known):.2f} of the gain."


@dataclass(frozen=True)
class _Row:
    """A line of the table: its text, what the full runs add, whether the interval has it, its width over the gain."""

    text: str
    gain: float | None
    covers: bool
    covers_one: bool
    width: float
    says: Verdict

    @classmethod
    def of(cls, line: Mapping[str, Any], full: Sequence[Mapping[str, Any]]) -> _Row:
        found = PartnerPilot.model_validate(line["pilot"])
        says = verdict_of(found, line["matters"])
        runs = [each for each in full if each.get("data") == line["data"]]
        added = [_added(each, line["kind"]) for each in runs] if line["kind"] != "noise" else [0.0]
        read = next((each["8"]["recovered"] for each in runs if not each["seed"]), None)
        gain = fmean(added) if added else None
        low, high = found.low or 0.0, found.high or 0.0
        width = (high - low) / abs(gain) if gain else math.inf
        covers, covers_one = ((low <= (value or 0.0) <= high) for value in (gain, line["truth"]))
        text = (
            f"| {line['data']} | {line['metric']} | {line['rows']:,} | {found.rows:,} | {found.own:.3f} "
            f"| {'–' if gain is None else f'{gain:+.3f}'} | {found.value:+.3f} ({low:+.3f} to {high:+.3f}"
            f"{'' if covers else ', missed'}) | {says.value} | {'–' if width == math.inf else f'{width:.2f}'} "
            f"| {rounded(line['account']['read'])}, {rounded(read if line['kind'] == 'grades' else None)} |"
        )
        return cls(text, gain, covers, covers_one, width, says)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks pilot", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that results are appended to")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=[*TABLES], help=", ".join(TABLES))
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[*KINDS], help=", ".join(KINDS))
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a pilot, at most")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    given = parser.parse_args(arguments)
    lines, full = lines_of(given.results), lines_of(FULL)
    done = {(line["data"], line["kind"], line["seed"], line.get("most", ROWS)) for line in lines}
    for seed, kind, name in (
        (seed, kind, name) for seed in range(given.seeds) for kind in given.kinds for name in given.tables
    ):
        if (name, kind, seed, given.rows) not in done:
            lines.append(measured(name, load(name, given.data), kind, seed, full, given.rows))
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    sys.stdout.write("\n".join(page(lines, full)) + "\n")


if __name__ == "__main__":
    main()
