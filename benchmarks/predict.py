"""Predictions of many rows from Parquet files: time, and peak memory by the number of rows, against a plain forward.

The tables are synthetic: the active party has eight numbers, the passive one eight numbers and two categories, in
another order of the same ids. The forward is the same models on encoded columns that lie in memory: without files, ids
and alignment.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from benchmarks import processes
from cutlayer.config import Job, TableConfig, validated
from cutlayer.config.load import load_closed_job
from cutlayer.data.batches import evaluation_batches
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.serving.models import TrainedModels
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys

TRAINED_ROWS = 20_000
NUMBERS = 8
PIECE = 1 << 17
STRIDE = 7919
"""A prime: ids times this, modulo the number of rows, are every id once, in another order."""
FORWARD_ROWS = 200_000


@dataclass(frozen=True)
class PredictSpeeds:
    """Results, each as the median of the repeats.

    Attributes:
        rows: Number of rows of each table.
        repeats: Number of predictions of each size.
        rows_per_second: Rows per second of `predict`, files read and written.
        lowest: Lowest of it.
        highest: Highest of it.
        forward_rows_per_second: Rows per second of a forward of the same models on columns in memory, one thread.
        ratio: The first over the second.
        peak_mb: Peak resident memory of the process that predicts all rows.
        quarter_peak_mb: The same for a quarter of the rows.
        idle_mb: Resident memory of that process after it has predicted a few rows.
        grown_mb: How much higher the peak is for four times the rows.
    """

    rows: int
    repeats: int
    rows_per_second: float
    lowest: float
    highest: float
    forward_rows_per_second: float
    ratio: float
    peak_mb: float
    quarter_peak_mb: float
    idle_mb: float
    grown_mb: float


Cost = tuple[float, float, float]
"""Seconds, peak and idle memory in megabytes."""


def predict_speeds(rows: int, repeats: int) -> PredictSpeeds:
    """Train a small model, then predict a quarter of the rows and all of them, each time in a new process."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-predict-") as scratch:
        folder = Path(scratch)
        train(folder)
        few = _tables(folder / "few", EVALUATION_ROWS)
        quarter, whole = _tables(folder / "quarter", rows // 4), _tables(folder / "whole", rows)
        smaller = [_apart(folder, few, quarter, rows // 4) for _ in range(repeats)]
        larger = [_apart(folder, few, whole, rows) for _ in range(repeats)]
        forward = statistics.median(forward_speed(folder, min(rows, FORWARD_ROWS)) for _ in range(repeats))
    speeds = [rows / seconds for seconds, _, _ in larger]
    peaks = [statistics.median(peak for _, peak, _ in costs) for costs in (smaller, larger)]
    return PredictSpeeds(
        rows=rows,
        repeats=repeats,
        rows_per_second=round(statistics.median(speeds)),
        lowest=round(min(speeds)),
        highest=round(max(speeds)),
        forward_rows_per_second=round(forward),
        ratio=round(statistics.median(speeds) / forward, 3),
        peak_mb=round(peaks[1], 1),
        quarter_peak_mb=round(peaks[0], 1),
        idle_mb=round(statistics.median(idle for _, _, idle in larger), 1),
        grown_mb=round(peaks[1] - peaks[0], 1),
    )


def train(folder: Path) -> None:
    """Train a small model without an audit on rows of the same kind."""
    given = _tables(folder / "trained", TRAINED_ROWS)
    parties: dict[str, dict[str, object]] = {
        "bank": {"role": "active", "label": "label", "audit": {"attacks": [], "every": "never"}},
        "telco": {"role": "passive"},
    }
    raw = {
        "parties": {name: {**party, "id": "id", "table": str(given[name])} for name, party in parties.items()},
        "train": {"epochs": 1, "batch_size": 512, "threads": 1},
    }
    execute(validated(Job, raw, "benchmark"), folder / "run", Options(Keys(folder / "keys")), Progress())


def forward_speed(folder: Path, rows: int) -> float:
    """Rows per second of the models alone, batch by batch, on encoded columns in memory."""
    models = _models(folder)
    given = _tables(folder / f"forward-{rows}", rows)
    stores = {}
    for name, encoder in models.encoders.items():
        table = parquet.read_table(given[name])
        encoded = encoder.transform(table, name)
        stores[name] = torch.from_numpy(encoded.codes), torch.from_numpy(encoded.numbers)
    began = time.perf_counter()
    with torch.no_grad():
        for batch in evaluation_batches(torch.arange(rows), EVALUATION_ROWS):
            made = {name: models.bottoms[name](codes[batch], n[batch]) for name, (codes, n) in stores.items()}
            torch.sigmoid(models.answer(made, ()))
    return rows / (time.perf_counter() - began)


def _models(folder: Path) -> TrainedModels:
    return TrainedModels.load(load_closed_job(folder / "run" / "job.yaml"), RunFolder(folder / "run"))


def _tables(folder: Path, rows: int) -> dict[str, Path]:
    """Tables of both parties, written piece by piece; the same ids in two orders."""
    paths = {name: folder / f"{name}.parquet" for name in ("bank", "telco")}
    if folder.exists():
        return paths
    folder.mkdir()
    for name, path in paths.items():
        draw, writer = np.random.default_rng(len(name)), None
        for start in range(0, rows, PIECE):
            count = min(PIECE, rows - start)
            ids = np.arange(start, start + count) * (1 if name == "bank" else STRIDE) % rows
            columns = {"id": ids} | {f"{name}{i}": draw.normal(size=count) for i in range(NUMBERS)}
            if name == "bank":
                columns["label"] = (columns["bank0"] > 0).astype(np.int64)
            else:
                columns |= {f"kind{i}": np.array(list("abcdefgh"))[draw.integers(0, 8, count)] for i in range(2)}
            table = pa.table(columns)
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return paths


def _apart(folder: Path, few: dict[str, Path], given: dict[str, Path], rows: int) -> Cost:
    pipe, other = processes.context.Pipe()
    process = processes.context.Process(target=_measured, args=(other, folder, few, given, rows))
    process.start()
    other.close()
    cost: Cost = pipe.recv()
    process.join()
    return cost


def _measured(pipe: Connection, folder: Path, few: dict[str, Path], given: dict[str, Path], rows: int) -> None:
    torch.set_num_threads(1)
    _predict(folder, few)  # loads the libraries
    idle = peak_megabytes()
    began = time.perf_counter()
    predicted = _predict(folder, given)
    seconds = time.perf_counter() - began
    if predicted != rows:
        raise ValueError(f"expected {rows} rows, got {predicted}")
    pipe.send((seconds, peak_megabytes(), idle))


def peak_megabytes() -> float:
    """Largest resident size of this process so far; not that of the process that started it, as `getrusage` has it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _predict(folder: Path, given: dict[str, Path]) -> int:
    run = RunFolder(folder / "run")
    tables = {name: TableConfig(path=path) for name, path in given.items()}
    return predict(
        load_closed_job(run.path / "job.yaml"),
        run,
        folder / "scores.parquet",
        PredictionRequest(tables, overwrite=True),
    ).rows
