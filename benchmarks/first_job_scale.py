"""The job that `init` writes, on CSV tables of any length: the forecast of `check`, the run, and boosting too.

`python -m benchmarks.first_job_scale --rows 1000000` makes a bank's table of 7 columns and a telco's of 13, and calls
the command line as a user does, each verb in a process of its own. With `--rows 4000 --numbers 396` the telco has 400
columns besides its ids.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyarrow import csv

_BLOCK = 1_000_000
_BOOSTING = """
import sys, json
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
folder, share = sys.argv[1], float(sys.argv[2])
whole = pd.read_csv(f"{folder}/bank.csv").merge(pd.read_csv(f"{folder}/telco.csv"), on="id")
whole = whole.sample(frac=1, random_state=0)
label, columns = whole.pop("label"), whole.drop(columns="id")
columns = columns.apply(lambda column: column if column.dtype.kind in "if" else column.astype("category").cat.codes)
test = len(whole) // 10
end = test + round(share * (len(whole) - test))
model = HistGradientBoostingClassifier(random_state=0).fit(columns[test:end], label[test:end])
print(json.dumps({"auc": roc_auc_score(label[:test], model.decision_function(columns[:test]))}))
"""


def make_tables(folder: Path, rows: int, seed: int = 0, numbers: int = 8) -> None:
    """Write `bank.csv`, with the labels, and `telco.csv`, whose rows are in another order, a million rows at a time."""
    draw = np.random.default_rng(seed)
    ids = draw.permutation(rows) + 10 * rows
    for start in range(0, rows, _BLOCK):
        bank, telco = _drawn(draw, ids[start : start + _BLOCK], numbers)
        shuffled = telco.sample(frac=1, random_state=seed)
        for name, table in {"bank": bank, "telco": shuffled}.items():
            with (folder / f"{name}.csv").open("ab") as file:
                options = csv.WriteOptions(include_header=not start, quoting_style="none")
                csv.write_csv(pa.Table.from_pandas(table, preserve_index=False), file, options)


def _drawn(
    draw: np.random.Generator, ids: npt.NDArray[np.int64], numbers: int = 8
) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = len(ids)
    bank: dict[str, Any] = {
        "id": ids,
        "age": draw.integers(18, 90, rows),
        "income": np.round(np.exp(draw.normal(10, 0.5, rows)), 2),
        "job": draw.choice(list("abcdefgh"), rows),
        "balance": np.round(draw.normal(0, 1000, rows), 2),
        "tenure": draw.integers(0, 40, rows),
    }
    telco: dict[str, Any] = {"id": ids, **{f"n{n}": np.round(draw.normal(size=rows), 4) for n in range(numbers)}}
    telco |= {
        "plan": draw.choice(["S", "M", "L", "XL"], rows),
        "region": draw.choice([f"r{n}" for n in range(20)], rows),
        "calls": draw.poisson(20, rows),
        "minutes": draw.integers(0, 3000, rows),
    }
    score = 1.2 * (np.log(bank["income"]) - 10) + 0.02 * (bank["age"] - 50) + 0.5 * (bank["job"] == "a")
    score += 0.8 * telco["n0"] + 0.7 * telco["n1"] * telco["n2"] + 0.3 * np.sin(3 * telco["n3"])
    score += 0.5 * (telco["plan"] == "XL") + 0.03 * (telco["calls"] - 20)
    bank["label"] = (draw.random(rows) < 1 / (1 + np.exp(1 - 1.3 * score))).astype(int)
    return pd.DataFrame(bank), pd.DataFrame(telco)


def timed(folder: Path, *command: str) -> dict[str, Any]:
    """Run Python with arguments: wall and processor seconds, peak resident memory in MB, and the JSON it prints."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, *command], cwd=folder, stdout=subprocess.PIPE) as process:
        output = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)  # the usage of this process alone
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return {
        "wall": time.perf_counter() - began,
        "processor": usage.ru_utime + usage.ru_stime,
        "memory_mb": usage.ru_maxrss * 1024 / 1e6,
        "printed": json.loads(output),
    }


def measure(rows: int, *, numbers: int = 8, protect: str = "labels", boosting: bool = True) -> dict[str, Any]:
    """One line: the forecast, the run with its audit and baselines, and boosting of all columns in one place.

    Args:
        rows: Number of rows of both tables.
        numbers: Number of normal numbers among the telco's columns, 4 or more; the label depends on four.
        protect: What `init` protects: `labels` by a sketch, `both` by grades.
        boosting: Whether to fit boosting too.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_tables(folder, rows, numbers=numbers)
        cutlayer = ("-m", "cutlayer")
        timed(folder, *cutlayer, "init", ".", "--protect", protect, "--yes", "--json")
        forecast = timed(folder, *cutlayer, "check", "job.yaml", "--json")["printed"]
        run = timed(folder, *cutlayer, "run", "job.yaml", "--json")
        shares = (1.0, 0.4, 0.2) if boosting else ()
        pooled = {share: timed(folder, "-c", _BOOSTING, ".", str(share)) for share in shares}
    return {
        "rows": rows,
        "numbers": numbers,
        "protect": protect,
        "forecast_mb": forecast["memory_bytes"] / 1e6,
        "forecast_seconds": forecast["seconds_per_epoch"],
        **{name: run[name] for name in ("wall", "processor", "memory_mb")},
        "auc": run["printed"]["utility"]["rows"][0]["metrics"]["auc"],
        "boosting_by_share_of_rows": pooled,
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a line as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--numbers", type=int, default=8)
    parser.add_argument("--protect", choices=("labels", "both"), default="labels")
    parser.add_argument("--no-boosting", action="store_false", dest="boosting")
    print(json.dumps(measure(**vars(parser.parse_args(arguments))), indent=1))


if __name__ == "__main__":
    main()
