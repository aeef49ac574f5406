"""One job from its tables to its run folder: the run, what it is compared with, the audit, the ledger."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from cutlayer.attacks import resolve
from cutlayer.audit import Auditor, GuaranteeTest, findings_of, gates_of
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.audit.completion import audit_completions
from cutlayer.audit.features import audit_features
from cutlayer.audit.watch import Watcher
from cutlayer.config import Job
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.errors import RunFolderError
from cutlayer.jobs import summary
from cutlayer.jobs.check import check_job
from cutlayer.parties.observer import Observer
from cutlayer.parties.outcome import ActiveOutcome
from cutlayer.protections.base import Evidence
from cutlayer.results.completion import CompletionResult
from cutlayer.results.features import FeatureResult
from cutlayer.tasks import Task
from cutlayer.training.comparisons import compared_jobs, malicious_run, protections_of, wraps_of
from cutlayer.training.departures import (
    FINETUNED,
    RETRAINED,
    alone_name,
    finetuned_name,
    finetuned_sets,
    quitting_facts,
    retrained_stores,
    with_references,
)
from cutlayer.training.finetuning import FineTuned, finetune_top
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import starting_keys
from cutlayer.training.process import run_threads
from cutlayer.training.recorder import read_truth
from cutlayer.training.references import Reference, train_reference
from cutlayer.training.run_ledger import ledger_after
from cutlayer.training.together import Keys, Trained, open_table, train_together
from cutlayer.training.utility import chance, interval

THIS_RUN = "this run"
UNDEFENDED = "undefended"


class Progress(Observer):
    """Told of the stages of a whole job as well as of its steps."""

    def stage(self, name: str) -> None:
        """Called before each training: `this run`, `undefended`, `centralised`, ..."""


@dataclass(frozen=True)
class Options:
    """How to run a job, beside what it says.

    Attributes:
        keys: where secrets come from.
        resume: continue an interrupted run.
        forget_peer_progress: on a resume, go on where another party has lost its progress, and count what is released
            again.
        tables: data in memory, by party, in place of the files the job names.
    """

    keys: Keys
    resume: bool = False
    tables: Mapping[str, Any] = field(default_factory=dict)
    forget_peer_progress: bool = False


def execute(job: Job, out: Path, options: Options, progress: Progress) -> RunFolder:
    """Run a job and everything it is compared with.

    Args:
        out: the run folder to make.

    Returns:
        The folder, with all files but the report in it.

    Raises:
        CutlayerError: bad input; a folder that was made for nothing is removed again.
    """
    check_job(job)
    tables = {name: open_table(job, name, options.tables) for name in job.parties}
    with (
        RunFolder.begun(out, job, resume=options.resume) as folder,
        run_threads(job.train.threads, job.train.batch_size) as threads,
    ):
        _run_all(job, folder, tables, options, threads, progress)
    return folder


def _run_all(
    job: Job,
    folder: RunFolder,
    tables: Mapping[str, PartyTable],
    options: Options,
    threads: int,
    progress: Progress,
) -> None:
    runs: dict[str, dict[str, Any]] = {}
    for name, other in compared_jobs(job):
        progress.stage(name)
        runs[name] = _compared(other, folder, name, tables, options, threads, progress)
    progress.stage(THIS_RUN)
    watcher = Watcher(job, folder, progress)
    trained = train_together(
        job,
        folder,
        tables,
        options.keys,
        watcher,
        resume=options.resume,
        forget_peer_progress=options.forget_peer_progress,
    )
    runs[THIS_RUN] = describe(job, folder, trained, watcher.auditor, threads, options)
    references = _references(job, folder, trained, progress)
    if resolve(job.parties[job.active].audit.attacks, job.task).completions:
        progress.stage("model completion")
    if any(resolve(job.parties[name].audit.attacks, job.task, "passive").features for name in job.passives):
        progress.stage("feature leakage")
    conclude(job, folder, runs, references)


def conclude(
    job: Job, folder: RunFolder, runs: Mapping[str, Mapping[str, Any]], references: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write summary, ledger and audit of a run and of those it is compared with.

    Args:
        runs: from `describe`, by name; `this run` among them.
        references: metrics of the references, by name.
    """
    facts = {**runs[THIS_RUN]["facts"], "utility": _utility(job, runs, references)}
    twin = runs[UNDEFENDED]["facts"]["departures"] if UNDEFENDED in runs else None
    metric = facts["utility"]["metric"]
    facts["departures"] = with_references(facts["departures"], twin, references, metric, job.active)
    folder.write_json("summary.json", facts)
    folder.write_json("ledger.json", facts["ledger"])
    audits = {name: run["audit"] for name, run in runs.items()}
    completed = completed_of(job, folder, audits, facts)
    write_audit(job, folder, audits, facts, completed, features_of(job, folder, audits, facts))


def completed_of(
    job: Job,
    folder: RunFolder,
    runs: Iterable[str],
    facts: Mapping[str, Any],
) -> AttackAudit[CompletionResult]:
    """What the passive parties' models are worth to them, of this run and of those it is compared with.

    Args:
        runs: their names.
        facts: of this run, with its classes.
    """
    folders = {name: folder if name == THIS_RUN else RunFolder(compared_folder(folder, name)) for name in runs}
    attacks = resolve(job.parties[job.active].audit.attacks, job.task).completions
    return audit_completions(job, folders, folder, attacks, Task(job.task, tuple(facts["task"]["classes"])))


def features_of(
    job: Job, folder: RunFolder, runs: Iterable[str], facts: Mapping[str, Any]
) -> AttackAudit[FeatureResult]:
    """Feature leakage of the passive parties' embeddings, in this run and in its undefended baseline.

    Args:
        runs: names of this run and of those it is compared with.
        facts: of this run, with its classes.
    """
    read = {
        name: folder if name == THIS_RUN else RunFolder(compared_folder(folder, name))
        for name in runs
        if name in (THIS_RUN, UNDEFENDED)
    }
    return audit_features(job, read, folder, tuple(facts["task"]["classes"]))


def _compared(
    job: Job,
    parent: RunFolder,
    name: str,
    tables: Mapping[str, PartyTable],
    options: Options,
    threads: int,
    progress: Progress,
) -> dict[str, Any]:
    """Train one of the runs this one is compared with, unless a resumed job has it already."""
    path = compared_folder(parent, name)
    if options.resume and (path / "summary.json").exists():
        stored: dict[str, Any] = RunFolder(path).read_json("summary.json")
        return stored
    begun = options.resume and (path / "job.yaml").exists()
    folder = RunFolder.create(path, resume=begun)
    folder.write_job(job)
    data = parent.path / "data"
    wraps = wraps_of(job, name)
    keys = replace(options.keys, simulated=True)
    watcher = Watcher(job, folder, progress)
    trained = train_together(job, folder, tables, keys, watcher, data=data, origin=parent, wraps=wraps, resume=begun)
    described = describe(job, folder, trained, watcher.auditor, threads, options)
    folder.write_json("summary.json", described)
    return described


def compared_folder(parent: RunFolder, name: str) -> Path:
    """Where a compared run lies.

    Args:
        parent: folder of the run.
        name: of the compared one; it may stand in a folder that somebody else has made.

    Raises:
        RunFolderError: the name would lead out of the folder.
    """
    place = name.replace(" ", "-")
    if not re.fullmatch(r"\w[\w.-]*", place):
        wanted = f"names of compared runs in {parent.path}"
        raise RunFolderError.expected(wanted, ascii(name[:80]), "run the job again")
    return parent.path / "compare" / place


def describe(
    job: Job, folder: RunFolder, trained: Trained, auditor: Auditor | None, threads: int, options: Options
) -> dict[str, Any]:
    """Facts, utility and audit of one run."""
    active = trained.active
    seconds = sum(line["seconds"] for line in folder.history())
    rate = len(active.split.train) * active.epochs / seconds if seconds else math.nan
    run = summary.run_facts(job, trained, threads, str(folder.path), reproducible=options.keys.supplied is not None)
    low, high = interval(active.task, active.logits, active.labels, job.train.seed)
    return {
        "facts": {
            "run": {**run, "rows_per_second": rate},
            **summary.data_facts(trained),
            "parties": summary.party_facts(job, trained),
            "protections": summary.protection_facts(job, active.evidence),
            "ledger": ledger_after(job, active).to_json(),
            "departures": quitting_facts(active, job.train.seed),
        },
        "utility": {"metrics": dict(active.metrics), "low": low, "high": high},
        "audit": {
            "protections": protections_of(job),
            "cells": summary.audit_cells(auditor) if auditor else [],
            "skipped": dict(auditor.skipped) if auditor else {},
        },
    }


def _references(job: Job, folder: RunFolder, trained: Trained, progress: Progress) -> dict[str, dict[str, Any]]:
    active = trained.active
    stores = _stores(folder, [name for name in job.parties if name in active.widths])
    wanted: dict[str, dict[str, Store]] = {}
    if "centralised" in job.compare:
        wanted["all columns in one place"] = stores
    if "alone" in job.compare and job.active in stores:
        wanted[alone_name(job.active)] = {job.active: stores[job.active]}
    if "retrained" in job.compare:
        wanted |= dict(retrained_stores(job, stores))
    found: dict[str, dict[str, Any]] = {}
    truth, _ = read_truth(folder.transcript(job.active))
    keys = starting_keys(folder.path, job.parties) if wanted else {}
    for name, chosen in wanted.items():
        progress.stage(name)
        reference = train_reference(job, chosen, active.task, keys, truth, active.split, active.part)
        found[name] = _measured(reference, active, job)
    for absent in finetuned_sets(job, stores) if "finetuned" in job.compare else ():
        progress.stage(finetuned_name(absent))
        tuned = finetune_top(job, folder, absent, task=active.task)
        found[finetuned_name(absent)] = _measured(tuned, active, job)
    return {**found, **chance_reference(trained, truth)}


def _measured(reference: Reference | FineTuned, active: ActiveOutcome, job: Job) -> dict[str, Any]:
    low, high = interval(active.task, reference.logits, active.labels, job.train.seed)
    return {"metrics": dict(reference.metrics), "low": low, "high": high}


def chance_reference(trained: Trained, truth: Tensor) -> dict[str, dict[str, Any]]:
    """The reference that knows nothing but the training labels."""
    active = trained.active
    constant = chance(active.task, truth[active.split.part("train")], active.labels)
    return {"chance": {"metrics": dict(constant), "low": None, "high": None}}


def _stores(folder: RunFolder, parties: list[str]) -> dict[str, Store]:
    return {name: Store.open(folder.data(name)) for name in parties}


NOTES = {
    THIS_RUN: "the job as configured",
    UNDEFENDED: "the same job without any protection",
    "all columns in one place": "the same network without a cut, trained where all columns lie together",
    "chance": "the best constant prediction",
}


def _utility(
    job: Job, runs: Mapping[str, Mapping[str, Any]], references: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    rows = {THIS_RUN: runs[THIS_RUN]["utility"]}
    rows |= {name: run["utility"] for name, run in runs.items() if name != THIS_RUN}
    rows |= references
    return {
        "metric": Task(job.task).metric,
        "higher_is_better": True,
        "rows": [{"name": name, "note": NOTES.get(name, _note(name)), **values} for name, values in rows.items()],
    }


def _note(name: str) -> str:
    if name.endswith(" alone"):
        return "only the active party's own columns"
    if name.startswith("malicious "):
        return "the same job with the optimiser of active_model_completion at the passive parties"
    if name.startswith(f"{RETRAINED} "):
        return "the same network without a cut, trained from the start without that party"
    if name.startswith(f"{FINETUNED} "):
        return "the top model of this run trained on after the quit, all bottom models as they were"
    return f"only {name} on"


def write_audit(
    job: Job,
    folder: RunFolder,
    audits: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Any],
    completed: AttackAudit[CompletionResult],
    features: AttackAudit[FeatureResult],
    tested: Sequence[GuaranteeTest] = (),
) -> None:
    """Findings and gates over all cells, and `audit.json`."""
    skipped = {**audits[THIS_RUN]["skipped"], **completed.skipped, **features.skipped}
    audits = {**audits, THIS_RUN: {**audits[THIS_RUN], "skipped": skipped}}
    mine = summary.leak_figures(audits[THIS_RUN]["cells"])
    twin = audits.get(UNDEFENDED)
    own = next(row for row in facts["utility"]["rows"] if row["name"] == THIS_RUN)
    base = next((row for row in facts["utility"]["rows"] if row["name"] == "chance"), None)
    metric = facts["utility"]["metric"]
    keys = ("party", "unit", "covered", "sent", "changed", "metrics")
    evidence = [Evidence(fact["name"], **{key: fact[key] for key in keys}) for fact in facts["protections"]]
    value, low = own["metrics"][metric], own["low"]
    floor = base["metrics"][metric] if base else 0.5
    findings = findings_of(
        mine,
        summary.leak_figures(twin["cells"]) if twin else None,
        evidence,
        metric,
        (value, math.nan if low is None else low, 0.5 if metric == "auc" else floor),
        skipped,
        [one for one in completed.results if one.run in (THIS_RUN, malicious_run(job))],
        tested,
        [one for one in features.results if one.run == THIS_RUN],
    )
    gates = gates_of(job.parties[job.active].audit.fail_above, mine)
    folder.write_json(
        "audit.json",
        {
            "runs": dict(audits),
            "completions": completed.to_json(),
            "features": features.to_json(),
            "guarantees": [vars(one) for one in tested],
            "findings": [vars(finding) for finding in findings],
            "gates": [{**vars(gate), "passed": gate.passed} for gate in gates],
        },
    )
