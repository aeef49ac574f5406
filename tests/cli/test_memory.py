"""The forecast of memory against the peak of a real run in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

ROWS = 100_000
WATCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
JOB = """
parties:
  bank: {role: active, table: bank.parquet, id: id, label: y, audit: {attacks: [norm], layers: false}}
  telco: {role: passive, table: telco.parquet, id: id}
model: {bottom: {kind: mlp, hidden: [16, 8]}, top: {kind: mlp, hidden: [8]}}
train: {epochs: 1, batch_size: 4096, seed: 1, threads: 1}
"""


def table(columns: int, seed: int, label: bool) -> pa.Table:
    draw = np.random.default_rng(seed)
    values = {"id": draw.permutation(ROWS), **{f"x{place}": draw.normal(size=ROWS) for place in range(columns)}}
    values["kind"] = np.array(["first", "second", "third"])[draw.integers(0, 3, ROWS)]
    return pa.table({**values, "y": draw.integers(0, 2, ROWS)} if label else values)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of a child is in kilobytes on Linux alone")
def test_the_forecast_is_within_thirty_percent_of_the_peak(tmp_path: Path) -> None:
    """The libraries alone are half of the peak, and the encoded data alone a fortieth."""
    for party, columns in (("bank", 30), ("telco", 40)):
        pa.parquet.write_table(table(columns, columns, party == "bank"), tmp_path / f"{party}.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    command = [sys.executable, "-m", "cutlayer", "check", "job.yaml", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    command[3:4] = ["run"]
    # The peak of a process counts that of the one it was forked from, and this one may be larger than the run.
    watched = [sys.executable, "-c", WATCH, *command]
    ran = subprocess.run(watched, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    peak, forecast = int(ran.stdout) * 1024, json.loads(checked.stdout)["memory_bytes"]
    assert 0.7 * peak < forecast < 1.3 * peak
