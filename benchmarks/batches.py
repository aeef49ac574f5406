"""Rows that are released by Ray on two workers, against one process: time, and whether the bytes are equal.

`python -m benchmarks.batches --rows 1000000` writes the rows in parts, releases them twice, and compares the releases,
by a digest of each block of them. It needs the extra `ray`; nothing of the size of the table is in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

import cutlayer_batches as batches
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys

PART = 500_000
"""Rows of a Parquet file."""
BATCH = 100_000
BLOCK_BYTES = 16 << 20
"""Bytes of a task of Ray: some 700,000 rows."""
TRAINED = 20_000
ACTIVE, PARTNER = "bank", "telco"


@dataclass(frozen=True)
class BatchReleases:
    """Result of the benchmark.

    Attributes:
        rows: Number of rows.
        seconds: Seconds of one process, without the reading back of `release`.
        ray_seconds: Seconds of Ray with two workers, its start left out.
        commit_seconds: Seconds in which `release` reads the files back, checks ids and counts.
        equal: Whether all released values are equal.
        rows_per_second: Rows a second of one process.
        ray_rows_per_second: Rows a second of Ray.
    """

    rows: int
    seconds: float
    ray_seconds: float
    commit_seconds: float
    equal: bool
    rows_per_second: int
    ray_rows_per_second: int


def people(first: int, rows: int) -> pa.Table:
    """Rows of the partner: ids from `first` on, three numbers and a category."""
    draw = np.random.default_rng(first)
    numbers = draw.normal(size=(rows, 3)).astype(np.float32)
    plan = pa.DictionaryArray.from_arrays(pa.array(draw.integers(0, 4, rows, np.int8)), pa.array(list("abcd")))
    named = {f"calls_{at}": numbers[:, at] for at in range(3)}
    return pa.table({"id": np.arange(first, first + rows), **named, "plan": plan.dictionary_decode()})


def train(folder: Path, candidates: tuple[str, ...]) -> Path:
    """A run whose partner releases a grade at epsilon 8 of `TRAINED` rows."""
    telco = people(0, TRAINED)
    draw = np.random.default_rng(1)
    income = draw.normal(size=TRAINED)
    score = income + telco.column("calls_0").to_numpy() + (telco.column("plan").to_numpy(zero_copy_only=False) == "a")
    bank = pa.table({"id": telco.column("id"), "income": income, "default": (score > 0).astype(int)})
    raw: Mapping[str, Any] = {
        "parties": {
            ACTIVE: {
                "role": "active",
                "id": "id",
                "label": "default",
                "privacy": {"label_dp": {"eps": 3.0}},
                "audit": {"every": "never", "attacks": []},
            },
            PARTNER: {
                "role": "passive",
                "id": "id",
                "fit": {"kind": "grade", "candidates": [*candidates]},
                "privacy": {"grade_dp": {"epsilon": 8.0}},
                "audit": {"every": "never"},
            },
        },
        "model": {
            "bottom": {ACTIVE: {"kind": "auto"}, PARTNER: {"kind": "grade"}},
            "top": {"kind": "linear", "folds": 1},
        },
        "train": {"release": "once", "seed": 1, "threads": 1, "split": {"test": 0.2, "validation": 0.0}},
    }
    options = Options(Keys(folder / "keys"), tables={ACTIVE: bank, PARTNER: telco})
    execute(validated(Job, raw, "job"), folder / "run", options, Progress())
    (folder / "telco.yaml").write_text(f"secret: {folder / 'keys' / PARTNER}.key\n")
    return folder / "run"


def write_rows(folder: Path, rows: int) -> None:
    """The table, in files of `PART` rows."""
    folder.mkdir()
    for number, first in enumerate(range(0, rows, PART)):
        parquet.write_table(people(first, min(PART, rows - first)), folder / f"{number:05}.parquet")


def release_alone(run: Path, given: Path, out: Path) -> float:
    """Seconds in which this process releases all rows."""
    function = batches.releaser(run, PARTNER)
    out.mkdir()
    began = time.perf_counter()
    for path in sorted(given.glob("*.parquet")):
        with parquet.ParquetFile(path) as read, parquet.ParquetWriter(out / path.name, function.schema) as writer:
            for batch in read.iter_batches(BATCH):
                writer.write_batch(function(batch))
    return time.perf_counter() - began


def release_by_ray(run: Path, given: Path, out: Path, workers: int) -> tuple[float, float]:
    """Seconds in which Ray releases all rows, and seconds in which they are checked and counted."""
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # as the process that it is compared with, on a shared machine
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 30)
    ray.data.DataContext.get_current().target_max_block_size = BLOCK_BYTES
    try:
        with batches.release(run, PARTNER, out, local=run.parent / "telco.yaml", rows="all", plaintext=True) as opened:
            began = time.perf_counter()
            rows = ray.data.read_parquet(str(given), override_num_blocks=max(2, len([*given.iterdir()])))
            rows.map_batches(opened.function, batch_format="pyarrow", batch_size=BATCH).write_parquet(str(out))
            took = time.perf_counter() - began
            began = time.perf_counter()
        return took, time.perf_counter() - began
    finally:
        ray.shutdown()


def content(folder: Path) -> list[tuple[int, int, int]]:
    """Number of rows and digest of the released values of each block of `PART` ids; the order of rows does not matter.

    Ray does not keep that order. The digest is the exclusive or of the MD5 of each row: ids are distinct, which
    `release` checks, so that equal digests mean equal rows. The files are read once, and no table is in memory.
    """
    grade, files = f'"grade of {PARTNER}"', [str(path) for path in sorted(folder.glob("*.parquet"))]
    of_row = f"md5_number(concat(id, ':', {grade}))"
    with duckdb.connect() as database:
        database.execute("SET threads = 2")
        query = (
            f"SELECT id::BIGINT // {PART} AS b, count(*), bit_xor({of_row}) FROM read_parquet(?) GROUP BY b ORDER BY b"
        )
        return [
            (int(block), int(rows), int(digest)) for block, rows, digest in database.execute(query, [files]).fetchall()
        ]


def batch_releases(rows: int, scratch: Path, candidates: tuple[str, ...] = ("linear",)) -> BatchReleases:
    """Measure; both sides read and write Parquet on one disk, one after the other."""
    run = train(scratch, candidates)
    write_rows(scratch / "given", rows)
    took, committed = release_by_ray(run, scratch / "given", scratch / "ray", 2)
    alone = release_alone(run, scratch / "given", scratch / "alone")
    same = content(scratch / "alone") == content(scratch / "ray")
    return BatchReleases(
        rows, round(alone, 2), round(took, 2), round(committed, 2), same, round(rows / alone), round(rows / took)
    )


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--scratch", type=Path, default=None, help="folder for the rows; a temporary one by default")
    parser.add_argument("--candidates", nargs="+", default=["linear"], help="models of the grades")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cutlayer-batches-", dir=given.scratch) as scratch:
        print(json.dumps(asdict(batch_releases(given.rows, Path(scratch), tuple(given.candidates)))))


if __name__ == "__main__":
    main()
