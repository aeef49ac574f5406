"""Tests the guarantees in a run's ledger against the mechanisms that the run's job sets up."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from cutlayer.accounting import Entry, GaussianRelease, Ledger, RandomizedResponse, ReleasePlan
from cutlayer.accounting.events import singles
from cutlayer.audit.empirical import GuaranteeTest, embedding_game, label_game
from cutlayer.config import Job
from cutlayer.config.load import load_job
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, NotApplicable
from cutlayer.models import build_bottom
from cutlayer.protections.base import Context, Noise
from cutlayer.runs.canaries import votes_of
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.ledger import chain_of

CANARIES = 50_000
FEWEST = 100


def check_guarantees(folder: RunFolder, canaries: int = CANARIES) -> list[GuaranteeTest]:
    """Play against every mechanism with a guarantee that `ledger.json` lists and this folder has the settings of.

    Nothing of the run's rows, models or keys is used: the rows are made up and the key is derived from the job, so that
    a test repeats. Of a run between organisations these are the protections of the folder's own party.

    Args:
        folder: of a finished run.
        canaries: rows to play with.

    Raises:
        ConfigError: fewer than 100 canaries.
        RunFolderError: the run has not ended.
        NotApplicable: there is no such guarantee.
    """
    if canaries < FEWEST:
        raise ConfigError.expected(f"{FEWEST} canaries or more", canaries, f"{CANARIES:,} is the default")
    job = load_job(folder.path / "job.yaml")
    ledger = Ledger.from_json(folder.read_json("ledger.json"))
    found = [one for entry in ledger.entries for one in _test(job, folder, entry, canaries)]
    if not found:
        wanted = f"a guarantee in the ledger of {folder.path}"
        raise NotApplicable.expected(wanted, "none", "label_dp and dp_embedding have one")
    return found


def _test(job: Job, folder: RunFolder, entry: Entry, canaries: int) -> list[GuaranteeTest]:
    key = hashlib.blake2b(f"{job.digest()} {entry.party} {entry.protection}".encode(), digest_size=32).digest()
    names: Mapping[str, Any] = {"protection": entry.protection, "party": entry.party, "protects": entry.protects}
    found = []
    for event in singles([entry.event]):
        if isinstance(event, RandomizedResponse):
            privacy = {entry.protection: job.parties[entry.party].privacy[entry.protection]}
            outcome = label_game(*votes_of(privacy, event.classes, job.train.epochs, canaries, key))
        elif isinstance(event, GaussianRelease):
            chain = chain_of(job, entry.party)
            outcome = embedding_game(chain, _context(job, folder, entry, key), event, entry.delta, canaries)
        else:
            continue
        found.append(outcome.against(event, entry.delta, **names))
    return found


def _context(job: Job, folder: RunFolder, entry: Entry, key: bytes) -> Context:
    inputs = Store.open(folder.data(entry.party)).columns.inputs
    bottom = build_bottom(job.model.bottom_of(entry.party), inputs)
    return Context(
        party=entry.party,
        peers=entry.towards,
        widths={entry.party: bottom.width},
        task=None,
        labels=None,
        training=torch.arange(0),
        secret=key,
        noise=Noise(key),
        epochs=job.train.epochs,
        batch_size=job.train.batch_size,
        plan=ReleasePlan.of(job.train),
    )
