"""Further labels of the label owner: a model for each, on the releases that the first one was trained on.

Each has a run folder of its own below that of the first label, `labels/NAME`, which is that of an ordinary run of the
label owner. No message crosses for it: the partners have left before, and nothing that they do, or see, depends on it.
Where partners release grades of drawn labels, each label has a run of all parties there: with draws, grades and a cost
of its own, and limits that hold over all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cutlayer.accounting import Entry, Ledger
from cutlayer.alignment.held_rows import HELD_FILE
from cutlayer.config import Job
from cutlayer.config.party import PrivatePart
from cutlayer.config.phases import Phase
from cutlayer.jobs.options import Options
from cutlayer.parties.agreement.split import SPLIT_FILE
from cutlayer.parties.session.checkpoint import PARTNERS_FILE, RELEASED_FILE
from cutlayer.problem.task import Task
from cutlayer.storage.durable import make_folder
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import ledger_of
from cutlayer.training.tables import open_table
from cutlayer.training.training_folder import training_folder

if TYPE_CHECKING:
    from cutlayer.channel.security import Security

_SHARED_FILES = (RELEASED_FILE, PARTNERS_FILE, HELD_FILE, SPLIT_FILE)
"""Files of the label owner's checkpoints that are of no label: what the partners released, and of which rows."""
_EMPTY_PART = {key: field.get_default(call_default_factory=True) for key, field in PrivatePart.model_fields.items()}
"""The private part of a partner, of which the label owner has nothing."""


def draws_labels(job: Job) -> bool:
    """Whether each label is drawn and sent, and has grades of its own."""
    return Phase.LABELS in job.phases


def further_jobs(job: Job, folder: RunFolder) -> Iterator[tuple[Job, RunFolder]]:
    """The job of each further label, with its run folder: as the label owner alone has it, but where it has grades."""
    alone = job.uncompared({} if draws_labels(job) else dict.fromkeys(job.passives, _EMPTY_PART))
    for label in job.parties[job.active].further_labels:
        yield _label_job(alone, label), folder.of_label(label)


def first_label_job(job: Job) -> Job:
    """A job of the first of several labels alone, with its name; the others are no features."""
    owner = job.parties[job.active]
    return job if not owner.further_labels else _label_job(job, owner.label or "")


def _label_job(job: Job, label: str) -> Job:
    owner = job.parties[job.active]
    others = (other for other in (owner.label, *owner.further_labels) if other != label)
    features = owner.features.model_copy(update={"exclude": (*owner.features.exclude, *others)})
    own = {"label": label, "further_labels": (), "features": features}
    return job.with_parties({job.active: own}, name=f"{job.name}, {label}")


def check_further_labels(job: Job, tables: Mapping[str, Any], keys: Keys) -> None:
    """Refuse further labels that cannot be trained, before anything is sent.

    Raises:
        ConfigError: One lacks the class that is called positive.
        DataError: A row has none, or they do not fit the task.
    """
    for other, _ in further_jobs(job, RunFolder(Path())):
        table = open_table(other, job.active, tables, keys)
        labels = table.labels(np.arange(table.rows))
        if labels is not None:  # the positive class is that of all labels
            Task.of(other, labels.classes).with_positive(other.parties[job.active].positive, job.active)


def restate_ledger(job: Job, folder: RunFolder) -> None:
    """State in the ledger of the first label what each further one with grades cost, as the run of that label has it.

    Its grades may have been drawn at a lower epsilon than the settings state.

    Args:
        job: Job of all labels, with the private parts of all parties.
        folder: Run folder of the first label, whose run has ended.
    """
    runs = [place.summary.ledger.entries if place.has_ended else () for _, place in further_jobs(job, folder)]

    def stated(planned: Entry) -> Entry:
        which = planned.party, planned.protection
        drawn = next((each for each in runs[planned.run - 1] if (each.party, each.protection) == which), planned)
        return replace(drawn, run=planned.run)

    first = [entry for entry in folder.summary.ledger.entries if not entry.run]
    ledger = Ledger((*first, *(stated(entry) for entry in ledger_of(job).entries if entry.run)))
    folder.write_json("ledger.json", ledger.to_json())
    folder.write_results(folder.summary.model_copy(update={"ledger": ledger}), folder.audit)


def open_further_runs(
    job: Job, folder: RunFolder, options: Options, security: Security | None
) -> Iterator[tuple[Job, RunFolder, Options]]:
    """Each further label that has no results, with its folder, which has what the partners released.

    Args:
        job: The job of the first label.
        folder: Its run folder, whose run has ended.
        options: How it was run.
        security: Whose certificate signs the files of each, if there is one.
    """
    for other, place in further_jobs(job, folder):
        if place.has_ended:
            continue
        resume = (place.path / "job.yaml").exists()
        with training_folder(place.path, other, resume=resume, security=security):
            there = place.path / "checkpoint" / job.active
            make_folder(there)
            for name in _SHARED_FILES:
                source = folder.path / "checkpoint" / job.active / name
                if source.exists() and not (there / name).exists():
                    os.link(source, there / name)
            yield other, place, replace(options, resume=True, forget_peer_progress=False)
