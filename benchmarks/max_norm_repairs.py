"""Repairs of `max_norm` that were tried against `sign_changes` and not taken: what they cost, and what reads them.

Each changes the default form, `past`, of the running process alone:

- `margin 4`, `margin 8`, ...: rows are sent at that many times the length of the longest past row, not at twice that
  length. Signs then depend less on a row's length, and the noise grows with the square of the factor.
- `fixed`: the sign of a row is positive with a probability of 0.731 (the rate of `label_dp` 1) whatever its length, and
  never changes.

On Adult, and on Criteo where `data/criteo/criteo_train_137k.tsv.gz` is in the current folder; seeds 1, 2, ... for the
job. The audit is that of `depth: quick`, without `bilinear` and `aligned_match`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import torch
from torch import Tensor

from benchmarks.adult import adult_job, measured
from benchmarks.party_leaks import Values, leaks_of, means, over_seeds
from benchmarks.rare_positives import thinned
from cutlayer.config import Job, validated
from cutlayer.kernels.rows.row_norms import row_norms
from cutlayer.protections import max_norm
from studies.datasets import criteo

AUDIT: Mapping[str, Any] = {"layers": False, "collusion": False, "depth": "quick"}
POSITIVE_SIGNS = 0.731
REPAIRS: Mapping[str, float | None] = {"past": 2.0, "margin4": 4.0, "margin8": 8.0, "margin16": 16.0, "fixed": None}
"""Length of all rows over that of the longest past row; `None` for a sign that no length decides."""
TABLES: Mapping[str, Mapping[str, Any]] = {
    "adult2": {"share": 0.02, "epochs": 20, "batch_size": 64},
    "adult24": {"share": 1.0, "epochs": 6, "batch_size": 512},
}
"""Share of positives, up to that of the table, and settings of training."""
SETTINGS = tuple(f"{repair} {table}" for table in TABLES for repair in REPAIRS)
CRITEO, DATA = "criteo", Path("data")
CRITEO_SETTINGS = tuple(f"{repair} {CRITEO}" for repair in REPAIRS)


@dataclass(frozen=True)
class RepairedParty:
    """What is read of one party; each value is the mean over the seeds.

    Attributes:
        setting: Repair, and table: Adult with 2 % of positives in batches of 64, or with 24 % in batches of 512, or
            Criteo.
        party: Name of the passive party.
        sign_changes: Leak of its gradients to `sign_changes`.
        gradient: Leak of its gradients to the strongest attack.
        embedding: Leak to the strongest attack on embeddings.
        own_columns: Leak of the party's own columns to a linear model.
        test_auc: AUC of the model on test rows.
    """

    setting: str
    party: str
    sign_changes: float
    gradient: float
    embedding: float
    own_columns: float
    test_auc: float


@dataclass(frozen=True)
class MaxNormRepairs:
    """All settings and parties."""

    name: str
    seeds: int
    parties: tuple[RepairedParty, ...]


def max_norm_repairs(seeds: int) -> MaxNormRepairs:
    """Train and audit every setting with the seeds 1, 2, ..."""
    there = (DATA / "criteo" / "criteo_train_137k.tsv.gz").exists()
    read = over_seeds((*SETTINGS, *(CRITEO_SETTINGS if there else ())), _read, seeds)
    parties = [RepairedParty(name, party, *means(columns)) for name, party, columns in read]
    return MaxNormRepairs("max_norm_repairs", seeds, tuple(parties))


def _read(name: str, seed: int) -> Values:
    """By passive party: the values of `RepairedParty` in their order."""
    repair, table = name.split(" ")
    job, tables = _job(table, seed)
    with repaired(REPAIRS[repair]):
        audit, auc = measured(job, f"{name} {seed}", tables)
    read = {}
    for party in job.passives:
        leaks = leaks_of(audit, party)
        signs = leaks.gradient(alone=("sign_changes",))
        read[party] = (signs, leaks.gradient(), leaks.embedding, leaks.own_columns, auc)
    return read


def _job(table: str, seed: int) -> tuple[Job, Mapping[str, pa.Table] | None]:
    """The job, and the table of each party; `None` for those that it names."""
    privacy = {"max_norm": {"form": "past"}}
    if table == CRITEO:
        job = criteo(DATA, seed, privacy, ())
        raw = job.model_dump()
        raw["parties"][job.active]["audit"] = dict(AUDIT)
        return validated(Job, raw | {"compare": []}, table), None
    train = dict(TABLES[table])
    share = train.pop("share")
    job = adult_job(privacy, AUDIT, seed=seed, keep="last", **train)
    return job, dict.fromkeys(job.parties, thinned(share)) if share < 1 else None


@contextmanager
def repaired(margin: float | None) -> Iterator[None]:
    """Replace the factor of `form: past`, or for `None` the signs that follow lengths."""
    change: dict[str, Any] = {"aligned_rows": _with_fixed_signs} if margin is None else {"_LENGTH_FACTOR": margin}
    with mock.patch.multiple(max_norm, **change):
        yield


def _with_fixed_signs(g: Tensor, norms: Tensor, uniform: Tensor, others: Tensor, length: float) -> Tensor:
    """As `aligned_rows` at half of the length, with signs that depend on the row's number alone."""
    zero = norms == 0
    factor = torch.where(uniform < POSITIVE_SIGNS, length / 2, -length / 2) / norms.masked_fill(zero, 1.0)
    out = (g.double() * factor.unsqueeze(1)).to(g.dtype)
    if len(others):
        out[zero] = (others * (length / 2 / row_norms(others)).unsqueeze(1)).to(g.dtype)
    return out
