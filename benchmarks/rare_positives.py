"""What the sizes of whole messages reveal on Adult where few rows are positive, or batches are small.

Each setting is a job on the demo's table, of whose positives a part is left out, seeds 1, 2, ... for the job. Noise
that follows the batch itself hides the gradients of its rows, and not how many of them are positive; that of past
batches (`form: past`) does not follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.adult import adult_job, measured
from benchmarks.party_leaks import Values, leaks_of, means, over_seeds
from cutlayer.config import Job
from studies.datasets import ADULT_TABLE

EPOCHS = 20
LABEL, POSITIVE = "income", ">50K"
NEW_ATTACK = "message_size"


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


ISO_NOISE: Mapping[str, Any] = {"ratio": 25.0}
MARVELL: Mapping[str, Any] = {"sum_kl": 0.16}


def _own(name: str, form: str, options: Mapping[str, Any], batch: int, share: float) -> Setting:
    """A protection whose scale is the batch's own."""
    return Setting({name: {**options, "form": form}}, batch, share)


def _past(name: str, options: Mapping[str, Any], batch: int, share: float) -> Setting:
    """A protection whose scale is that of past batches."""
    return _own(name, "past", options, batch, share)


# The names are part of the noise keys, and so of the figures.
SETTINGS: Mapping[str, Setting] = {
    "iso_noise 25, 2 %, batch 64": _own("iso_noise", "paper", ISO_NOISE, 64, 0.02),
    "marvell 0.16, 2 %, batch 64": _own("marvell", "shared", MARVELL, 64, 0.02),
    "max_norm, 2 %, batch 64": _own("max_norm", "once", {}, 64, 0.02),
    "iso_noise 25, 2 %, batch 512": _own("iso_noise", "paper", ISO_NOISE, 512, 0.02),
    "marvell 0.16, 2 %, batch 512": _own("marvell", "shared", MARVELL, 512, 0.02),
    "iso_noise 25, 24 %, batch 64": _own("iso_noise", "paper", ISO_NOISE, 64, 0.24),
    "iso_noise 25, past, 2%, batch 64": _past("iso_noise", ISO_NOISE, 64, 0.02),
    "max_norm, past, 2%, batch 64": _past("max_norm", {}, 64, 0.02),
    "marvell 0.16, past, 2%, batch 64": _past("marvell", MARVELL, 64, 0.02),
    "marvell 0.16, past, 2%, batch 512": _past("marvell", MARVELL, 512, 0.02),
    "iso_noise 25, past, 2%, batch 512": _past("iso_noise", ISO_NOISE, 512, 0.02),
    "marvell 0.16, past, 24%, batch 512": _past("marvell", MARVELL, 512, 0.24),
    "iso_noise 25, past, 24%, batch 512": _past("iso_noise", ISO_NOISE, 512, 0.24),
}


@dataclass(frozen=True)
class RareParty:
    """What is read of one party's gradients; each value is the mean over the seeds.

    Attributes:
        setting: Name of the setting.
        party: Name of the passive party.
        others: Leak to the strongest other attack on gradients.
        sizes: Leak to `message_size`.
        embedding: Leak to the strongest attack on embeddings.
        own_columns: Leak of the party's own columns.
        chance: What the whole catalogue reads of permuted labels.
        test_auc: AUC of the model on test rows.
    """

    setting: str
    party: str
    others: float
    sizes: float
    embedding: float
    own_columns: float
    chance: float
    test_auc: float


@dataclass(frozen=True)
class RarePositives:
    """All settings and parties."""

    name: str
    seeds: int
    parties: tuple[RareParty, ...]


def rare_positives(seeds: int) -> RarePositives:
    """Train and audit every setting with the seeds 1, 2, ..."""
    parties = [RareParty(name, party, *means(columns)) for name, party, columns in over_seeds(SETTINGS, _read, seeds)]
    return RarePositives("rare_positives", seeds, tuple(parties))


def _read(name: str, seed: int) -> Values:
    """By passive party: the values of `RareParty` in their order."""
    setting = SETTINGS[name]
    job = job_of(setting, seed)
    audit, auc = measured(job, f"{name} {seed}", dict.fromkeys(job.parties, thinned(setting.share)))
    read = {}
    for party in job.passives:
        leaks = leaks_of(audit, party)
        others, sizes = leaks.gradient(without=(NEW_ATTACK,)), leaks.gradient(alone=(NEW_ATTACK,))
        read[party] = (others, sizes, leaks.embedding, leaks.own_columns, leaks.chance, auc)
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
