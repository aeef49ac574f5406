"""Repeats the audit of a finished run from what it recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutlayer.attacks import REGISTRY, FeatureAttack, resolve
from cutlayer.audit import Auditor, GuaranteeTest
from cutlayer.audit.watch import replay
from cutlayer.config import Job
from cutlayer.config.load import load_job
from cutlayer.errors import ConfigError
from cutlayer.jobs import summary
from cutlayer.jobs.execute import THIS_RUN, compared_folder, completed_of, features_of, write_audit
from cutlayer.tasks import Task
from cutlayer.training.folder import RunFolder
from cutlayer.training.recorder import read_truth


def audit_again(
    folder: RunFolder,
    attacks: tuple[str, ...] = (),
    fail_above: float | None = None,
    tested: Sequence[GuaranteeTest] | None = None,
) -> None:
    """Attack the recorded transcript and the kept models of a run and of those beside it, and rewrite `audit.json`.

    Args:
        attacks: names; the job's own where empty. Those that look for features are run on every passive party, as the
            only ones; the others by the active party.
        fail_above: limit of the `label_auc` gate; the job's own where `None`.
        tested: guarantees that were played against; those of the last time where `None`.

    Raises:
        ConfigError: an unknown attack, or a limit outside (0.5, 1].
        RunFolderError, DataError: the run has not ended, or its transcript is damaged.
    """
    job = load_job(folder.path / "job.yaml")
    facts = folder.read_json("summary.json", "task.classes", "utility.rows", "utility.metric", "protections")
    before = folder.read_json("audit.json", f"runs.{THIS_RUN}.protections")
    job = _with_gate(_with_attacks(job, attacks), fail_above)
    if tested is None:
        tested = [GuaranteeTest(**one) for one in before.get("guarantees", ())]
    audits: dict[str, Any] = {}
    for name, audit in before["runs"].items():
        path = folder.path if name == THIS_RUN else compared_folder(folder, name)
        auditor = _auditor(job, RunFolder(path), tuple(facts["task"]["classes"]))
        audits[name] = {
            "protections": audit["protections"],
            "cells": summary.audit_cells(auditor),
            "skipped": dict(auditor.skipped),
        }
    completed = completed_of(job, folder, audits, facts)
    write_audit(job, folder, audits, facts, completed, features_of(job, folder, audits, facts), tested)


def _auditor(job: Job, folder: RunFolder, classes: tuple[str, ...]) -> Auditor:
    truth, training = read_truth(folder.transcript(job.active))
    chosen = resolve(job.parties[job.active].audit.attacks, job.task).labels
    auditor = Auditor(Task(job.task, classes), truth, training, chosen, job.active, job.train.seed)
    replay(folder, auditor, [job.active, *job.passives])
    return auditor


def _with_attacks(job: Job, names: tuple[str, ...]) -> Job:
    """The job with other attacks: each name at the party whose secret it looks for."""
    if not names:
        return job
    features = tuple(name for name in names if name in REGISTRY and issubclass(REGISTRY[name], FeatureAttack))
    labels = tuple(name for name in names if name not in features)
    parties = {}
    for name, party in job.parties.items():
        chosen = labels if party.role == "active" else features
        kept = party.audit.attribute if "attribute" in chosen else None
        audit = party.audit.model_copy(update={"attacks": chosen, "attribute": kept})
        parties[name] = party.model_copy(update={"audit": audit})
    return job.model_copy(update={"parties": parties})


def _with_gate(job: Job, limit: float | None) -> Job:
    if limit is None:
        return job
    if not 0.5 < limit <= 1:
        raise ConfigError.expected("--fail-above in (0.5, 1]", limit, "0.5 is chance")
    active = job.parties[job.active]
    gated = active.model_copy(update={"audit": active.audit.model_copy(update={"fail_above": {"label_auc": limit}})})
    return job.model_copy(update={"parties": {**job.parties, job.active: gated}})
