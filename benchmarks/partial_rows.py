"""All rows of the label owner against the common ones, on Adult with partners that each have a part of its rows.

The bank has the labels and one share of the columns; two partners have the others, for a random part of the bank's rows
each. Measured on all test rows of the bank: a run with `rows: all`; a run with `rows: common`, whose rows that some
partner lacks are answered by the best model of the bank's own columns; and that model alone. With `--top` both
runs are trained end to end, with a top model of that kind.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from ruamel.yaml import YAML

from benchmarks.utility.sides import table_in
from cutlayer.cli.init import init
from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.keys import Keys
from studies.datasets import ADULT_TABLE

ID, LABEL = "person", "income"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "bank": ("capital_gain", "capital_loss", "hours_per_week", "age"),
    "census": ("education", "education_num", "marital_status", "relationship", "race", "sex", "native_country"),
    "employer": ("workclass", "occupation"),
}
PARTNERS = ("census", "employer")
SHARE = 0.3


@dataclass(frozen=True)
class Overlap:
    """AUC on the bank's test rows.

    Attributes:
        seed: Seed of the partners' rows and of the jobs.
        rows: Number of test rows.
        common_rows: Number of test rows that all parties have.
        all: AUC of the run on all rows.
        fallback: The same of the run on common rows, with own columns for the rest.
        alone: The same of the best model of own columns.
        all_on_common: AUC of the run on all rows, on the common test rows.
        common_on_common: The same of the run on common rows.
    """

    seed: int
    rows: int
    common_rows: int
    all: float
    fallback: float
    alone: float
    all_on_common: float
    common_on_common: float


def measured(table: pd.DataFrame, seed: int, share: float = SHARE, *, by_steps: bool = False) -> Overlap:
    """Train both runs of one draw of the partners' rows, by a single release or end to end."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-rows-") as scratch:
        folder, generator = Path(scratch), np.random.default_rng(seed)
        for party, columns in COLUMNS.items():
            rows = table if party == "bank" else table[generator.random(len(table)) < share]
            labelled = [LABEL] if party == "bank" else []
            rows[[ID, *columns, *labelled]].to_csv(folder / f"{party}.csv", index=False)
        runs = {rows: _run(folder, rows, seed, by_steps=by_steps) for rows in ("all", "common")}
        scores = {rows: _scores(predictions_path(run)) for rows, run in runs.items()}
        # The best model of own columns is that of a run which fits the top model to all of the bank's rows at once.
        fitted = _run(folder, "all", seed, by_steps=False) if by_steps else runs["all"]
        predict(
            _job(folder, "all", seed, by_steps=False),
            fitted,
            folder / "alone.parquet",
            PredictionRequest(absent=PARTNERS),
        )
        scores["alone"] = _scores(folder / "alone.parquet")
    truth = table.set_index(ID)[LABEL].loc[scores["all"].index]
    positive = (truth == sorted(truth.unique())[-1]).to_numpy()
    is_common = scores["all"].index.isin(scores["common"].index)
    fallback = scores["common"].reindex(scores["all"].index).fillna(scores["alone"])
    whole = {
        name: _auc(positive, values) for name, values in {**scores, "fallback": fallback}.items() if name != "common"
    }
    return Overlap(
        seed=seed,
        rows=len(positive),
        common_rows=int(is_common.sum()),
        all=whole["all"],
        fallback=whole["fallback"],
        alone=whole["alone"],
        all_on_common=_auc(positive[is_common], scores["all"][is_common]),
        common_on_common=_auc(positive[is_common], fallback[is_common]),
    )


def _auc(positive: npt.NDArray[np.bool_], scores: pd.Series[float]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(positive, scores.to_numpy()))


def _scores(path: Path) -> pd.Series[float]:
    table = pd.read_parquet(path)
    return table.astype({"id": str}).set_index("id")["probability"]


def _job(folder: Path, rows: str, seed: int, *, by_steps: bool) -> Job:
    """The job that `cutlayer init` writes for all rows; for the common ones it differs in that alone."""
    with redirect_stdout(io.StringIO()):
        init(folder, label=LABEL, id=[ID], protect="nothing" if by_steps else "labels", rows="all", yes=True)
    raw = YAML(typ="safe").load(folder / "job.yaml")
    (folder / "job.yaml").unlink()
    for party in raw["parties"].values():
        party["table"] = table_in(folder, party["table"])
        party["audit"] = {"every": "never"}
    # The same rows test in both runs.
    split = {"by_id": True, "test": 0.2, "validation": 0.1}
    raw["train"] = {**raw.get("train", {}), "seed": seed, "threads": 1, "split": split}
    return validated(Job, raw | {"rows": rows, "compare": []}, "job")


def _run(folder: Path, rows: str, seed: int, *, by_steps: bool) -> RunFolder:
    out = folder / f"{rows}-{by_steps}"
    job = _job(folder, rows, seed, by_steps=by_steps)
    return execute(job, out, Options(Keys(folder / "keys", seed.to_bytes(32, "big"))), Progress())


def partial_rows(rows: int | None = None, seeds: int = 5, *, by_steps: bool = False) -> Iterator[Overlap]:
    """All seeds, on the first rows of Adult.

    Args:
        rows: Number of rows; `None` for all.
        seeds: Number of seeds.
        by_steps: Whether the runs are trained end to end; else partners release once.
    """
    table = pd.read_parquet(ADULT_TABLE)[:rows].astype({ID: str})
    return (measured(table, seed, by_steps=by_steps) for seed in range(seeds))


def main() -> None:
    """Print a line of JSON for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--by-steps", action="store_true")
    arguments = parser.parse_args()
    for result in partial_rows(arguments.rows, arguments.seeds, by_steps=arguments.by_steps):
        print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    main()
