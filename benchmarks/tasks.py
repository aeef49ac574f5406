"""`python -m benchmarks tasks --other PYTHON`: counts and survival between two parties, beside other libraries' models.

Each job is that of `init --protect labels`. The other models are fitted to all columns in one place and measured on the
same test rows, by an interpreter that has the packages of `benchmarks/tasks_reference.py`. A line for each model is
printed, and written with the commit into a file of results.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pyarrow import parquet

from benchmarks.tasks_reference import LABELS
from cutlayer.cli.init import init
from cutlayer.config.load import load_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from studies.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "tasks.jsonl"
SCRIPT = Path(__file__).with_name("tasks_reference.py")


def trained(folder: Path) -> Iterator[dict[str, Any]]:
    """Train the job of a data set; its own models, and its test rows in a file."""
    task = "survival" if folder.name == "flchain" else "count"
    with redirect_stdout(io.StringIO()):
        init(folder, owner="owner.csv", label=LABELS[folder.name][0], protect="labels", task=task, yes=True)
    run = folder / "run"
    execute(load_job(folder / "job.yaml"), run, Options(Keys(folder / "keys")), Progress())
    ids = [int(each) for each in parquet.read_table(run / "predictions.parquet")["id"].to_pylist()]
    (folder / "test.json").write_text(json.dumps(ids))
    for row in RunFolder.open(run).summary.utility.rows:
        yield {"data": folder.name, "model": str(row.name), "low": row.low, "high": row.high, **row.metrics}


def measured(other: str, folder: Path) -> Iterator[dict[str, Any]]:
    """A line for each model of each data set: those of the jobs, then the other libraries'.

    Args:
        other: Interpreter that has the packages of the other libraries.
        folder: Empty folder for the tables and runs.
    """
    subprocess.run([other, str(SCRIPT), "data", str(folder)], check=True)
    for name in LABELS:
        yield from trained(folder / name)
    models = subprocess.run([other, str(SCRIPT), "models", str(folder)], check=True, stdout=subprocess.PIPE, text=True)
    yield from map(json.loads, models.stdout.splitlines())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON for each model of each data set, and write them to the file of results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks tasks")
    parser.add_argument("--other", required=True, help="interpreter with scikit-survival, statsmodels and islp")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that is written")
    given = parser.parse_args(arguments)
    texts = []
    with tempfile.TemporaryDirectory() as made:
        for line in measured(given.other, Path(made)):
            texts.append(json.dumps({**line, "commit": provenance()["commit"]}))
            print(texts[-1], flush=True)
    given.results.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
