"""What the sizes of whole messages reveal on Adult where few rows are positive, or batches are small.

Each setting is a job on the demo's table, of whose positives a part is left out, seeds 1, 2, ... for the job. Noise or
levels that follow a batch hide the gradients of its rows, and not how many of them are positive.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.adult import adult_job, audited
from cutlayer.config import Job
from studies.datasets import ADULT_TABLE

EPOCHS = 20
LABEL, POSITIVE = "income", ">50K"
NEW_ATTACK = "message_size"
ISO_NOISE, MARVELL = {"iso_noise": {"ratio": 25.0}}, {"marvell": {"sum_kl": 0.16}}


@dataclass(frozen=True)
class Setting:
    """A job.

    Attributes:
        privacy: Protections.
        batch: Rows of a batch.
        share: Share of the positives, up to that of the table.
    """

    privacy: Mapping[str, Any]
    batch: int
    share: float


SETTINGS: Mapping[str, Setting] = {
    "iso_noise 25, 2 %, batch 64": Setting(ISO_NOISE, 64, 0.02),
    "marvell 0.16, 2 %, batch 64": Setting(MARVELL, 64, 0.02),
    "max_norm, 2 %, batch 64": Setting({"max_norm": {}}, 64, 0.02),
    "iso_noise 25, 2 %, batch 512": Setting(ISO_NOISE, 512, 0.02),
    "marvell 0.16, 2 %, batch 512": Setting(MARVELL, 512, 0.02),
    "iso_noise 25, 24 %, batch 64": Setting(ISO_NOISE, 64, 0.24),
}


@dataclass(frozen=True)
class RareParty:
    """What is read of one party's gradients; each value is the mean over the seeds.

    Attributes:
        setting: Name of the setting.
        party: Name of the passive party.
        before: Leak to the strongest other attack on gradients.
        sizes: Leak to `message_size`.
        embedding: Leak to the strongest attack on embeddings.
        own_columns: Leak of the party's own columns.
        chance: What the whole catalogue reads of permuted labels.
    """

    setting: str
    party: str
    before: float
    sizes: float
    embedding: float
    own_columns: float
    chance: float


@dataclass(frozen=True)
class RarePositives:
    """All settings and parties."""

    name: str
    seeds: int
    parties: tuple[RareParty, ...]


def rare_positives(seeds: int) -> RarePositives:
    """Train and audit every setting with the seeds 1, 2, ..."""
    parties = []
    for name, setting in SETTINGS.items():
        runs = [_audited(name, setting, seed) for seed in range(1, seeds + 1)]
        for party in runs[0]:
            columns = zip(*(run[party] for run in runs), strict=True)
            parties.append(RareParty(name, party, *(round(statistics.mean(values), 3) for values in columns)))
    return RarePositives("rare_positives", seeds, tuple(parties))


def _audited(name: str, setting: Setting, seed: int) -> dict[str, tuple[float, ...]]:
    """By passive party: the values of `RareParty` in their order."""
    job = job_of(setting, seed)
    audit = audited(job, f"{name} {seed}", dict.fromkeys(job.parties, thinned(setting.share)))
    read: dict[str, tuple[float, ...]] = {}
    for party in job.passives:
        own = [leak for leak in audit.leaks if leak.party == party]
        gradients = {leak.attack: leak.leak for leak in own if leak.message == "gradient"}
        baseline = audit.baseline(party)
        read[party] = (
            max(value for attack, value in gradients.items() if attack != NEW_ATTACK),
            gradients.get(NEW_ATTACK, 0.5),
            max(leak.leak for leak in own if leak.message == "embedding"),
            (baseline and baseline.own_columns) or 0.5,
            (baseline and baseline.chance) or 0.5,
        )
    return read


def job_of(setting: Setting, seed: int) -> Job:
    """The job of a setting."""
    return adult_job(
        setting.privacy, {"layers": False}, seed=seed, epochs=EPOCHS, batch_size=setting.batch, keep="last"
    )


def thinned(share: float) -> pa.Table:
    """The demo's table with so many of its positives, drawn at random, that they are this share of the rows."""
    table = parquet.read_table(ADULT_TABLE)
    positive = np.array(table.column(LABEL).to_pylist()) == POSITIVE
    wanted = min(round((~positive).sum() * share / (1 - share)), positive.sum())
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(positive))[:wanted]
    return table.take(pa.array(np.sort(np.concatenate([np.flatnonzero(~positive), chosen]))))
