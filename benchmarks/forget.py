"""What `cutlayer forget` costs, and whether its rows can be found afterwards: `python -m benchmarks.forget`.

- `time`: seconds of processor to train by generated tables, to delete all that was made of them, and to train without
  some rows.
- `members`: how well the loss of a row tells rows that were trained on from rows that never were, for the rows that are
  forgotten, before and after, and for those that stay. The model is boosting, which remembers some of its rows.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from ruamel.yaml import YAML

from cutlayer.cli.app import _run
from cutlayer.jobs.forget import JobDeletion
from cutlayer.problem.metrics.roc import roc_auc

COLUMNS = 3


def write_job(folder: Path, rows: int, seed: int, top: str) -> np.ndarray[Any, Any]:
    """A job of two parties on generated rows with ids from 0; returns the labels."""
    draw = np.random.default_rng(seed)
    hidden, ids = draw.normal(size=rows), np.arange(rows)
    labels = (hidden + draw.normal(size=rows) > 0).astype(int)
    for name, more in (("bank", {"label": labels}), ("telco", {})):
        numbers = {f"{name}_{at}": hidden + 2 * draw.normal(size=rows) for at in range(COLUMNS)}
        parquet.write_table(pa.table({"id": ids, **numbers, **more}), folder / f"{name}.parquet")
    bank = {"role": "active", "table": "bank.parquet", "label": "label"}
    telco = {"role": "passive", "table": "telco.parquet", "fit": {"kind": "sketch"}}
    job = {
        "parties": {
            name: {**each, "id": "id", "audit": {"attacks": []}} for name, each in (("bank", bank), ("telco", telco))
        },
        "model": {
            "bottom": {"bank": {"kind": "auto"}, "telco": {"kind": "linear", "width": COLUMNS}},
            "top": {"kind": "auto", "candidates": [top]},
        },
        "train": {"release": "once", "seed": seed, "split": {"test": 0.5, "validation": 0, "by_id": True}},
    }
    YAML(typ="safe").dump(job, folder / "job.yaml")
    return labels


def timed(*arguments: object) -> float:
    """Seconds of processor of a command, which must succeed."""
    began = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = _run([str(argument) for argument in (*arguments, "--json")])
    if code:
        raise RuntimeError(out.getvalue())
    return time.process_time() - began


def forgetting(rows: int) -> Iterator[str]:
    """Seconds for a number of rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_job(folder, rows, 0, "linear")
        trained = timed("run", folder / "job.yaml")
        csv.write_csv(pa.table({"id": np.arange(0, rows, 100)}), folder / "rows.csv")
        deleting, seconds = JobDeletion.forget, []

        def measured(*given: Any, **options: Any) -> Any:
            began = time.process_time()
            mark = deleting(*given, **options)
            seconds.append(time.process_time() - began)
            return mark

        with patch.object(JobDeletion, "forget", measured):
            whole = timed("forget", folder / "job.yaml", "--rows", folder / "rows.csv")
        yield f"{rows:,} rows: trained in {trained:.1f} s; forgot {rows // 100:,} in {whole:.1f} s"
        yield f"of which {seconds[0]:.1f} s to delete, the rest to read the rows, train again and report"


def members(rows: int, seed: int) -> dict[str, float]:
    """AUC of the loss of rows against those that never were in a training."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labels = write_job(folder, rows, seed, "boosting")
        timed("run", folder / "job.yaml")
        held_out = parquet.read_table(folder / "runs/job/predictions.parquet")["id"].to_pylist()
        trained = np.setdiff1d(np.arange(rows), [int(each) for each in held_out])
        test = np.setdiff1d(np.arange(rows), trained)
        gone, stay = trained[::10], np.setdiff1d(trained, trained[::10])
        found = {}

        def attack(when: str) -> None:
            data = []
            for party in ("bank", "telco"):  # the same rows by other ids: forgotten ids get no prediction
                renamed = parquet.read_table(folder / f"{party}.parquet").to_pandas()
                renamed.assign(id=renamed["id"] + rows).to_parquet(folder / f"{party}-renamed.parquet", index=False)
                data += ["--data", f"{party}={folder / party}-renamed.parquet"]
            timed("predict", folder / "runs/job", *data, "--out", folder / "scores.parquet", "--overwrite")
            scores = parquet.read_table(folder / "scores.parquet").to_pandas().astype({"id": int}).set_index("id")
            chances = scores.sort_index().select_dtypes("number").iloc[:, -1].to_numpy()
            right = np.where(labels == 1, chances, 1 - chances)
            for what, inside in (("forgotten", gone), ("staying", stay)):
                both = np.concatenate([inside, test])
                found[f"{what} rows, {when}"] = roc_auc(right[both], np.isin(both, inside))

        attack("before")
        csv.write_csv(pa.table({"id": gone}), folder / "rows.csv")
        timed("forget", folder / "job.yaml", "--rows", folder / "rows.csv")
        attack("after")
        return found


def main() -> None:
    """Measure, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--members", type=int, default=4_000)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    runs = [members(given.members, seed) for seed in range(given.seeds)]
    for what in runs[0] if runs else ():
        values = [run[what] for run in runs]
        print(f"{what}: AUC {np.mean(values):.3f} (from {min(values):.3f} to {max(values):.3f})", flush=True)
    for line in forgetting(given.rows) if given.rows else ():
        print(line, flush=True)


if __name__ == "__main__":
    main()
