"""`python -m benchmarks tasks --other PYTHON`: counts and survival between two parties, beside other libraries' models.

Each job is that of `init --protect labels`. The other models are fitted to all columns in one place and measured on the
same test rows, by an interpreter that has the packages of `benchmarks/tasks_reference.py`.
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON for each model of each data set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks tasks")
    parser.add_argument("--other", required=True, help="interpreter with scikit-survival, statsmodels and islp")
    other = parser.parse_args(arguments).other
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([other, str(SCRIPT), "data", made], check=True)
        for name in LABELS:
            for line in trained(Path(made) / name):
                print(json.dumps(line), flush=True)
        subprocess.run([other, str(SCRIPT), "models", made], check=True)
