"""`python -m benchmarks grade_excluded`: what grades tell of a column that their partner leaves out of its features.

On rows of Adult a partner leaves `sex` out, which its column `relationship` tells in part. The label owner has other
columns, without the marital status, true incomes, the grades, and the sex of 512 rows. Its forest guesses the sex of
all other rows. A label owner that lies sends the sex of these 512 in place of the income, and of all others its guess
without grades.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from safetensors.torch import load_file
from sklearn.ensemble import RandomForestClassifier

from benchmarks.utility.datasets import DataSet, load
from cutlayer.config import Job, validated
from cutlayer.data.carried import Carried
from cutlayer.data.id_index import IdIndex
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError
from cutlayer.jobs.options import Progress
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together
from studies.provenance import provenance

Codes = npt.NDArray[np.int64]
ROWS, KNOWN = 8_000, 512
"""Rows of the data set, and those whose sex the label owner knows."""
LIMITS = (None, 0.3, 0.1)
"""Limits of the column; without one nothing is computed of it."""


def job_of(limit: float | None, seed: int) -> Job:
    """The job of `init` at a label epsilon of 2, with a partner that leaves `sex` out, and all other limits open."""
    limits = {"other": 1.0} | ({} if limit is None else {"sex": limit})
    raw = {
        "name": "excluded",
        "parties": {
            "bank": {"role": "active", "id": "id", "label": "label", "privacy": {"label_dp": {"eps": 2.0}}},
            "telco": {
                "role": "passive",
                "id": "id",
                "features": {"exclude": ["sex"]},
                "fit": {"kind": "grade", "limits": limits},
                "privacy": {"grade_dp": {"epsilon": 8.0}},
            },
        },
        "model": {"bottom": {"bank": {"kind": "auto"}, "telco": {"kind": "grade", "label_epsilon": 2.0}}},
        "train": {"release": "once", "seed": seed},
    }
    return validated(Job, raw, "")


def sent_grades(job: Job, tables: dict[str, pa.Table], folder: Path, seed: int) -> tuple[Codes, Carried]:
    """Grades that the partner sends of all rows, int64 (n,), and what it computes before."""
    keys = Keys(folder / "keys")
    keys.folder.mkdir()
    for name in job.parties:
        (keys.folder / f"{name}.key").touch(mode=0o600)
        (keys.folder / f"{name}.key").write_bytes(bytes([seed] * 32))
    opened = {name: open_table(job, name, tables) for name in job.parties}
    (folder / "run").mkdir()
    train_together(job, RunFolder(folder / "run"), opened, keys, Progress())
    kept = folder / "run" / "checkpoint" / "telco"
    released = load_file(kept / "released.safetensors")
    rows = IdIndex(PartyTable("telco", tables["telco"], "id").digests).find(released["ids"].numpy())
    grades = np.full(ROWS, -1)
    grades[rows] = grades_of_columns(released["released"]).numpy()
    return grades, Carried.model_validate_json((kept / "carried.json").read_bytes())


def guess(data: DataSet, truth: Codes, known: Codes, further: Sequence[Codes]) -> tuple[float, Codes]:
    """AUC at which the rest of the rows is guessed, from columns, labels and what else there is; and a guess of all."""
    columns = pd.get_dummies(data.bank).to_numpy(float)
    every = np.column_stack([columns, data.labels == np.unique(data.labels)[1], *further])
    rest = np.setdiff1d(np.arange(ROWS), known)
    forest = RandomForestClassifier(300, min_samples_leaf=3, random_state=0, n_jobs=1).fit(every[known], truth[known])
    return float(roc_auc(forest.predict_proba(every[rest])[:, 1], truth[rest] == 1)), forest.predict(every)


def measured(seed: int) -> Iterator[str]:
    """Lines of one seed: what is sent, the limit, the epsilon, what is carried, and the guess."""
    whole = load("adult", Path()).drawn(ROWS)
    data = replace(whole, bank=whole.bank.drop(columns="marital_status"))
    truth = (data.partner["sex"] == "Male").to_numpy().astype(int)
    order = np.random.default_rng(seed).permutation(ROWS)
    honest = np.unique(data.labels, return_inverse=True)[1]
    known, ids = order[:KNOWN], {"id": np.arange(ROWS)}
    alone, chosen = guess(data, truth, known, [])
    chosen[known] = truth[known]
    yield f"| {seed} | no grades | – | – | – | {alone:.3f} |"
    for sent, labels in {"honest": honest, "sex": chosen}.items():
        own = pa.Table.from_pandas(data.bank.assign(label=labels, **ids), preserve_index=False)
        tables: dict[str, Any] = {
            "bank": own,
            "telco": pa.Table.from_pandas(data.partner.assign(**ids), preserve_index=False),
        }
        for limit in LIMITS:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    grades, found = sent_grades(job_of(limit, seed), tables, Path(folder), seed)
                except ConfigError as refusal:
                    yield f"| {seed} | {sent} | {limit} | refused: {str(refusal)[:150]} | – | {alone:.3f} |"
                    continue
            carried = next((f"{each.share:.2f}" for each in found.attributes if each.column == "sex"), "–")
            onehot = [(grades == at).astype(int) for at in range(found.grades)]
            auc, _ = guess(data, truth, known, [grades, *onehot])
            yield f"| {seed} | {sent} | {limit} | {found.epsilon:g} | {carried} | {auc:.3f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the lines of all seeds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks grade_excluded", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args(arguments)
    print(provenance()["commit"])
    for seed in range(given.seeds):
        for line in measured(seed):
            print(line, flush=True)
