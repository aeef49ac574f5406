"""What the default audit reads of gradients whose noise averages out, or whose silence is the label, on Adult.

Each setting is a job on the demo's table, 20 epochs, seeds 1, 2, ... for the job. `before` is the strongest of the
attacks on gradients without `mean_gradient` and `mean_length`, and `averaged` the stronger of these two.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.adult import adult_job, audited
from benchmarks.party_leaks import Values, leaks_of, means, over_seeds
from cutlayer.config import Job

EPOCHS, BATCH = 20, 512
SETTINGS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "education (16 classes), iso_noise 5": ("education", "multiclass", {"iso_noise": {"ratio": 5.0, "form": "paper"}}),
    "age (regression), noisy_gradient 0.02": ("age", "regression", {"noisy_gradient": {"scale": 0.02}}),
    "income, gradient_compression 0.004": ("income", "binary", {"gradient_compression": {"keep": 0.004}}),
}
"""Label that the bank holds, kind of task, and protection."""
NEW = ("mean_gradient", "mean_length")


@dataclass(frozen=True)
class AveragedParty:
    """What is read of one party's gradients; each value is the mean over the seeds.

    Attributes:
        setting: Name of the setting.
        party: Name of the passive party.
        before: Leak to the strongest other attack on gradients.
        averaged: Leak to the stronger of the two.
        embedding: Leak to the strongest attack on embeddings.
        own_columns: Leak of the party's own columns.
        spread: Standard deviation of `averaged` over the seeds; 0 for one seed.
    """

    setting: str
    party: str
    before: float
    averaged: float
    embedding: float
    own_columns: float
    spread: float


@dataclass(frozen=True)
class AveragedNoise:
    """All settings and parties."""

    name: str
    seeds: int
    parties: tuple[AveragedParty, ...]


def averaged_noise(seeds: int) -> AveragedNoise:
    """Train and audit every setting with the seeds 1, 2, ..."""
    parties = []
    for setting, party, columns in over_seeds(SETTINGS, _read, seeds):
        spread = statistics.stdev(columns[1]) if seeds > 1 else 0.0
        before, averaged, embedding, own = means(columns)
        parties.append(AveragedParty(setting, party, before, averaged, embedding, own, round(spread, 4)))
    return AveragedNoise("averaged_noise", seeds, tuple(parties))


def _read(setting: str, seed: int) -> Values:
    """By passive party: before, averaged, embedding and own columns."""
    job = job_of(setting, seed)
    audit = audited(job, f"{setting} {seed}")
    read = {}
    for party in job.passives:
        leaks = leaks_of(audit, party)
        before, averaged = leaks.gradient(without=NEW), leaks.gradient(alone=NEW)
        read[party] = (before, averaged, leaks.embedding, leaks.own_columns)
    return read


def job_of(setting: str, seed: int) -> Job:
    """The job of a setting: the demo's parties, with the label at the bank and at nobody else."""
    label, task, privacy = SETTINGS[setting]
    added = {"employer": ("income",)} if label != "income" else {}
    train = {"seed": seed, "epochs": EPOCHS, "batch_size": BATCH, "keep": "last"}
    return adult_job(privacy, {"layers": False}, label=label, task=task, added=added, **train)
