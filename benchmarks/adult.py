"""Trains `examples/adult.yaml` with another protection, another label or other settings of training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.results.audit import RunAudit
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun, train_together
from studies.datasets import example_job

ACTIVE = "bank"


def adult_job(
    privacy: Mapping[str, Any],
    audit: Mapping[str, Any],
    *,
    label: str = "income",
    task: str = "binary",
    added: Mapping[str, tuple[str, ...]] | None = None,
    **train: Any,
) -> Job:
    """The job of `examples/adult.yaml` without runs to compare with.

    Args:
        privacy: Protections of the bank, the active party.
        audit: Its settings of the audit.
        label: Column that the bank holds as its label, and no other party has.
        task: Kind of the label.
        added: Further columns of some parties.
        train: Changed settings of `train`.
    """
    raw: dict[str, Any] = example_job().model_dump()
    raw["parties"][ACTIVE] |= {"label": label, "privacy": dict(privacy), "audit": dict(audit)}
    for party in raw["parties"].values():
        # The number of years is education itself.
        include = [name for name in party["features"]["include"] if name not in (label, f"{label}_num")]
        party["features"]["include"] = include
    for name, columns in (added or {}).items():
        raw["parties"][name]["features"]["include"] += columns
    raw["train"] |= {"threads": 1, **train}
    return validated(Job, raw | {"task": task, "compare": []}, "examples/adult.yaml")


@contextmanager
def scratch_keys(name: str) -> Iterator[tuple[Path, Keys]]:
    """A temporary folder, and a supplied key of this name in it: results repeat."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        yield Path(scratch), Keys(Path(scratch), sha256(name.encode()).digest())


def trained(job: Job, key_name: str, observer: Progress) -> TrainedRun:
    """Train a job of all parties here, of which nothing stays on disk.

    Args:
        job: The job.
        key_name: Name of the noise key.
        observer: What is called during training.
    """
    with scratch_keys(key_name) as (folder, keys):
        tables = {name: open_table(job, name, {}) for name in job.parties}
        return train_together(job, RunFolder.create(folder / "run", resume=False), tables, keys, observer)


def audited(job: Job, key_name: str, tables: Mapping[str, Any] | None = None) -> RunAudit:
    """Train and audit a job of all parties here, of which nothing stays on disk.

    Args:
        job: The job.
        key_name: Name of the noise key.
        tables: Data in memory, by party, in place of the files that the job names.
    """
    return measured(job, key_name, tables)[0]


def measured(job: Job, key_name: str, tables: Mapping[str, Any] | None = None) -> tuple[RunAudit, float]:
    """The same, with the headline metric of the model on held-out rows."""
    with scratch_keys(key_name) as (folder, keys):
        run = execute(job, folder / "run", Options(keys, tables=tables or {}), Progress())
        utility = run.summary.utility
        return run.audit.runs[RunKind.THIS_RUN], utility.rows[0].metrics[utility.metric] or 0.0
