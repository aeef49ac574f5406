"""The forecast of memory against the peak of a real run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.cli.jobs import Place

ROWS = 70_000
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
    values = {"id": draw.permutation(ROWS), **{f"x{index}": draw.normal(size=ROWS) for index in range(columns)}}
    values["kind"] = np.array(["first", "second", "third"])[draw.integers(0, 3, ROWS)]
    return pa.table({**values, "y": draw.integers(0, 2, ROWS)} if label else values)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of a child is in kilobytes on Linux alone")
def test_the_forecast_is_within_thirty_percent_of_the_peak(place: Place) -> None:
    """The libraries alone are half of the peak, and the encoded data alone a fiftieth."""
    for party, columns in (("bank", 30), ("telco", 40)):
        drawn, path = table(columns, columns, party == "bank"), place.folder / f"{party}.parquet"
        pa.parquet.write_table(drawn, path, use_dictionary=["kind"], compression="none")  # seconds sooner
    place.write(JOB)
    forecast = place.call("check", place.file, "--json").document()["memory_bytes"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    # The peak of a process counts that of the one it was forked from, and this one may be larger than the run.
    watched = [sys.executable, "-c", WATCH, sys.executable, "-m", "cutlayer", "run", "job.yaml", "--json"]
    ran = subprocess.run(watched, cwd=place.folder, env=environment, capture_output=True, text=True, check=True)
    peak = int(ran.stdout) * 1024
    assert 0.7 * peak < forecast < 1.3 * peak
