"""Tests the guarantees in a run's ledger on canaries: made-up rows that the real parties train on by the run's job."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cutlayer.accounting import DPSGD, Entry, GaussianRelease, Ledger, RandomizedGrade, RandomizedResponse
from cutlayer.audit.empirical import gaussian_game, label_game
from cutlayer.audit.guarantees.embeddings import embedding_scores
from cutlayer.audit.guarantees.grades import grade_votes
from cutlayer.audit.guarantees.labels import label_votes
from cutlayer.audit.guarantees.updates import update_scores
from cutlayer.config import Job
from cutlayer.config.load import load_closed_job
from cutlayer.config.phases import grades_rows
from cutlayer.errors import ConfigError, NotApplicable
from cutlayer.results.guarantee import GuaranteeTest
from cutlayer.training.folder import RunFolder
from cutlayer.training.trained import Run

CANARIES = 50_000
MIN_CANARIES = 400
MAX_UPDATE_CANARIES = 8192
"""Maximum number of canaries against DP-SGD, whose cost grows with the square of their number."""
REPEATS = 3
"""Number of rows of a canary whose label owner has several rows of an id."""

_EASY_LABEL_EPSILON = 4.0
"""Label epsilon of the canaries whose grades are read: a model of them has to tell two values apart."""


def check_guarantees(folder: RunFolder, canaries: int = CANARIES) -> list[GuaranteeTest]:
    """Test every mechanism with a guarantee that `ledger.json` lists and this folder has the settings of.

    Nothing of the run's rows, models or keys is used: the rows are made up and the key is derived from the job, so that
    a test repeats. In a run between organisations only the protections of the folder's own party are tested.

    Args:
        folder: Folder of a finished run.
        canaries: Number of made-up rows, 400 or more.

    Raises:
        ConfigError: Too few canaries.
        RunFolderError: The run has not ended.
        NotApplicable: There is no such guarantee.
    """
    if canaries < MIN_CANARIES:
        raise ConfigError.expected(f"{MIN_CANARIES} canaries or more", canaries, f"{CANARIES:,} is the default")
    job = load_closed_job(folder.path / "job.yaml")
    ledger = Ledger.from_json(folder.read_json("ledger.json"))
    tests = [test for entry in ledger.entries for test in _tests(job, folder, entry, canaries)]
    if not tests:
        wanted = f"a guarantee by random draws in the ledger of {folder.path}"
        raise NotApplicable.expected(wanted, "none", "label_dp, grade_dp, dp_embedding and dp_bottom have one")
    return tests


def _tests(job: Job, folder: RunFolder, entry: Entry, canaries: int) -> list[GuaranteeTest]:
    key = hashlib.blake2b(f"{job.digest()} {entry.party} {entry.protection}".encode(), digest_size=32).digest()
    names: Mapping[str, Any] = {"protection": entry.protection, "party": entry.party, "protects": entry.protects}
    event = entry.event
    if isinstance(event, RandomizedResponse):
        privacy = {entry.protection: job.parties[entry.party].privacy[entry.protection]}
        if any(grades_rows(job, name) for name in job.passives):
            ids, referring = job.parties[entry.party].id, bool(job.parties[entry.party].partner_ids)
            repeats = REPEATS if referring or (ids is not None and ids.duplicates == "keep") else 1
            votes = grade_votes("labels", privacy, {}, event.classes, canaries, key, repeats, referring=referring)
        else:
            votes = label_votes(privacy, event.classes, job.train.max_epochs, canaries, key)
        outcome = label_game(*votes)
    elif isinstance(event, RandomizedGrade):
        event = replace(event, fit=None)  # the draw alone is tested
        privacy = {entry.protection: {"epsilon": event.eps}}  # which the run may have lowered
        outcome = label_game(
            *grade_votes("grades", {"label_dp": {"eps": _EASY_LABEL_EPSILON}}, privacy, 2, canaries, key)
        )
    elif isinstance(event, GaussianRelease):
        width = Run(job, folder).bottom(entry.party).width
        scores = embedding_scores(job, entry.party, entry.protection, event, width, canaries, key)
        outcome = gaussian_game(scores, entry.delta, event.releases.max_releases)
    elif isinstance(event, DPSGD):
        scores = update_scores(job, entry.party, entry.protection, min(canaries, MAX_UPDATE_CANARIES), key)
        outcome = gaussian_game(scores, entry.delta, event.steps)
    else:
        return []
    return [outcome.against(event, entry.delta, **names)]
