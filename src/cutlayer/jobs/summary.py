"""The summary of a run, from what its parties report at its end."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import torch
from torch import Tensor

from cutlayer.accounting import Entry, RandomizedGrade
from cutlayer.alignment.disclosure import AlignmentRecord
from cutlayer.config import Job
from cutlayer.config.guard import Alarm
from cutlayer.config.phases import Phase
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.protections.contract.base import Evidence, Protection
from cutlayer.results.protection import ProtectionResult
from cutlayer.results.run import DataInfo, PartyInfo, RunId, RunInfo, RunKind, TaskInfo
from cutlayer.results.summary import Summary
from cutlayer.results.utility import ModelUtility, UtilityResult
from cutlayer.training.contributions import contributions, gain_over, utility_by_pattern
from cutlayer.training.departures import departure_result
from cutlayer.training.folder import RunFolder
from cutlayer.training.model_record import ModelRecord, record_path
from cutlayer.training.quality import operating_points, quality
from cutlayer.training.run_ledger import chain_of, ledger_after, ledger_of, released_event
from cutlayer.training.together import TrainedRun
from cutlayer.training.utility import interval
from cutlayer.version import __version__

SUBSET_TOPS = ("multi_head", "laser")
"""Kinds of top models, besides fitted ones, that are made to answer for every set of parties."""


def summary_of(
    job: Job, run: RunId, folder: RunFolder, trained: TrainedRun, threads: int, *, reproducible: bool
) -> Summary:
    """Summarise one run, without its references.

    Args:
        job: Job of the run.
        run: Identifier of the run among those of the job.
        folder: Folder of the run.
        trained: Results of the parties.
        threads: Number of threads of the tensor library.
        reproducible: Whether the noise key was supplied.
    """
    active = trained.active
    task, split = active.task, active.split
    sizes = {"train": len(split.train), "validation": len(split.validation), "test": len(split.test)}
    partners = _partners(job, active)
    answers_all = active.fit is not None or job.top.get("kind") in SUBSET_TOPS
    if active.present:  # metrics without some parties may not be shown: see `absences_to_show`
        answers_all &= len(active.logits_without) + (job.active not in active.widths) == 2 ** len(partners) - 1
    bounds = interval(task, active.logits, active.labels, job.train.seed)
    whole = Summary(
        run=_run(job, folder, trained, threads, reproducible=reproducible),
        task=TaskInfo(
            target=task.target,
            kind=task.kind,
            classes=task.classes,
            positive_share=active.positive_share,
            positive=task.positive,
        ),
        data=DataInfo(
            common=sum(sizes.values()),
            **sizes,
            held=active.held_rows,
            lacking=active.lacking_rows,
            alignment=_alignment(job, trained),
        ),
        parties=tuple(_party(job, name, trained) for name in job.parties),
        utility=UtilityResult(
            metric=task.metric,
            matters=job.parties[job.active].report.matters,
            rows=(ModelUtility.of(run, active.metrics, bounds),),
            choice=active.fit,
            contributions=contributions(active, partners, job.train.seed) if answers_all else (),
            columns=active.columns() if run.kind is RunKind.THIS_RUN else (),
            patterns=utility_by_pattern(active, partners, job.train.seed, None),
        ),
        quality=quality(task, active.logits, active.labels, active.positive_share),
        departures=departure_result(active, job.train.seed),
        protections=protection_results(job, active.evidence),
        ledger=ledger_after(job, active),
        alarms=_alarms(trained),
        pilot=active.pilot() if run.kind is RunKind.THIS_RUN else (),
    )
    if active.fit is None or partners not in active.logits_without:
        return whole
    # The model for predictions without any partner, which was chosen for itself.
    return with_own_columns_model(whole, job, active, active.logits_without[partners])


def with_own_columns_model(summary: Summary, job: Job, active: ActiveOutcome, logits: Tensor) -> Summary:
    """The summary with the model of the active party's own columns, and with what the others add to it.

    Args:
        summary: Summary of the job's own run.
        job: Job of the run.
        active: Results of the run at the active party.
        logits: Logits of the model of own columns for the held-out rows.
    """
    task, labels, seed = active.task, active.labels, job.train.seed
    metrics = task.evaluate(logits, labels) if len(labels) else {}
    partners = _partners(job, active)
    gain = gain_over(active, logits, partners, seed)
    alone = ModelUtility.of(RunId(RunKind.ALONE, (job.active,)), metrics, interval(task, logits, labels, seed), gain)
    patterns = utility_by_pattern(active, partners, seed, logits)
    rows = (*summary.utility.rows, alone)
    return summary.model_copy(
        update={
            "utility": summary.utility.model_copy(update={"rows": rows, "gain": gain, "patterns": patterns}),
            "quality": summary.quality.model_copy(update={"own_curve": operating_points(task, logits, labels)}),
        }
    )


def _alarms(trained: TrainedRun) -> tuple[Alarm, ...]:
    """Alarms of the guards of the parties in this process, in the order of the steps."""
    alarms = [*trained.active.alarms, *(alarm for passive in trained.passives.values() for alarm in passive.alarms)]
    return tuple(sorted(alarms, key=lambda alarm: (alarm.epoch, alarm.step, alarm.peer)))


def _alignment(job: Job, trained: TrainedRun) -> AlignmentRecord | None:
    """What the alignment made known; in one process, what it would make known between organisations."""
    record = trained.active.alignment
    if record is None or not trained.passives or record.method == "row numbers":
        return record
    return record.model_copy(update={"method": job.alignment, "crossed": False})


def _partners(job: Job, active: ActiveOutcome) -> tuple[str, ...]:
    """The passive parties that were there at the end."""
    return tuple(name for name in job.passives if name not in active.lost)


def _run(job: Job, folder: RunFolder, trained: TrainedRun, threads: int, *, reproducible: bool) -> RunInfo:
    active = trained.active
    seconds = sum(line["seconds"] for line in folder.history())
    path = record_path(folder, job.active)
    record = ModelRecord.read(path) if path.is_file() else None
    return RunInfo(
        id=job.digest()[:12],
        name=job.name,
        created=(datetime.now(UTC) - timedelta(seconds=trained.seconds)).isoformat(timespec="seconds"),
        cutlayer=__version__,
        torch=str(torch.__version__),
        python=platform.python_version(),
        threads=threads,
        devices=trained.devices,
        precision=job.train.precision,
        seed=job.train.seed,
        seconds=trained.seconds,
        rows_per_second=len(active.split.train) * active.epochs / seconds if seconds else math.nan,
        epochs_run=active.epochs,
        epochs_planned=job.train.max_epochs,
        stopped_early=active.stopped_early,
        selected="best" if job.keeps_best else "last",
        selected_epoch=active.selected_epoch + 1,
        reproducible_noise=reproducible,
        job_digest=job.digest(),
        folder=str(folder.path),
        training=record.training if record else "",
    )


def _party(job: Job, name: str, trained: TrainedRun) -> PartyInfo:
    role = job.parties[name].role
    outcome = trained.active if role == "active" else trained.passives.get(name)
    sent, received = trained.traffic[name]
    return PartyInfo(
        name=name,
        role=role,
        rows_own=trained.own_rows[name],
        columns=trained.columns.get(name),
        numeric=outcome.numeric if outcome else None,
        categorical=outcome.categorical if outcome else None,
        width=trained.active.widths.get(name),
        parameters=outcome.parameters if outcome else None,
        released_once=name in job.passives and Phase.RELEASE in job.phases_of(name),
        bytes_sent=sent,
        bytes_received=received,
        traffic=trained.kinds.get(name, {}),
        left_out=trained.left_out.get(name, {}),
        notes=trained.notes.get(name, ()),
    )


def protection_results(job: Job, evidence: Iterable[Evidence]) -> tuple[ProtectionResult, ...]:
    """Counts and guarantee of each protection.

    Args:
        job: Job of the run; it has no settings of a party that ran elsewhere.
        evidence: Evidence that the parties report.
    """
    evidence = tuple(evidence)
    owned = {(name, each.name): each for name in job.parties for each in chain_of(job, name).protections}
    planned = {(entry.party, entry.protection): entry for entry in ledger_of(job).entries if not entry.run}
    entries = {key: replace(entry, event=released_event(entry, evidence)) for key, entry in planned.items()}
    keyed = ((item, (item.party, item.protection)) for item in evidence)
    return tuple(_protection(item, owned.get(key), entries.get(key)) for item, key in keyed)


def _protection(item: Evidence, protection: Protection[Any] | None, entry: Entry | None) -> ProtectionResult:
    evidence = {key: getattr(item, key) for key in ("party", "unit", "covered", "sent", "changed", "kinds", "metrics")}
    if protection is None or entry is None:
        why = f"none that this party can check: {item.party} states its own evidence, and its ledger is its own"
        description = {"protects": "features", "reference": "", "formal": False, "statement": why}
    else:
        lowered = {"epsilon": entry.event.eps} if isinstance(entry.event, RandomizedGrade) else {}
        description = {
            "protects": entry.protects,
            "reference": protection.reference,
            "settings": protection.settings.model_dump(mode="json") | lowered,
            "formal": entry.formal,
            "statement": entry.statement,
        }
    return ProtectionResult(name=item.protection, **evidence, **description)
