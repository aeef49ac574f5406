"""The audit of a finished run, at its end or again from its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from cutlayer.attacks import REGISTRY, Resolved, resolve, skipped_attacks
from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.audit.auditor import Auditor
from cutlayer.audit.checks import FindingContext
from cutlayer.audit.completion import audit_completions
from cutlayer.audit.features import audit_features
from cutlayer.audit.findings import column_findings, findings_of
from cutlayer.audit.gates import gates_of
from cutlayer.audit.history import audit_history, own_columns
from cutlayer.audit.label_copies import label_copies
from cutlayer.audit.malicious import NEEDS_ONE_PROCESS, audit_malicious
from cutlayer.audit.own_columns import OwnColumns
from cutlayer.audit.sample import sample_of
from cutlayer.audit.watch import attack_recorded_steps
from cutlayer.config import Job
from cutlayer.config.aggregate import undated
from cutlayer.config.load import load_closed_job
from cutlayer.config.party import GatesConfig
from cutlayer.config.phases import grades_rows
from cutlayer.errors import ConfigError, RunFolderError
from cutlayer.problem.task import Task
from cutlayer.results.audit import Audit, PassiveAudit, RunAudit, SkippedAttack
from cutlayer.results.features import FeatureResult
from cutlayer.results.guarantee import GuaranteeTest
from cutlayer.results.passive import PassiveRun
from cutlayer.results.run import RunKind
from cutlayer.results.summary import Summary
from cutlayer.storage.row_arrays import give_back_memory
from cutlayer.storage.row_tensors import first_column
from cutlayer.training.comparisons import compared_job
from cutlayer.training.file_digests import note_audited
from cutlayer.training.folder import OUTCOME_FILE, RunFolder
from cutlayer.training.malicious_runs import attacked_labels
from cutlayer.training.process import run_threads
from cutlayer.training.recorder import read_truth
from cutlayer.training.trained import Run

T = TypeVar("T")
EarlyAudit = tuple[AttackAudit[FeatureResult], Mapping[str, OwnColumns]]
"""Attacks on features, and what of the labels each attacker's own columns reveal, by its `party`."""
TARGETS_WITHOUT_LABELS = ("features", "predictions")
"""Targets of malicious attacks whose messages no attack on labels reads: those of a hijack depend on no label."""


def conclude_audit(
    job: Job,
    folder: RunFolder,
    summary: Summary,
    runs: Mapping[str, RunAudit],
    guarantees: Sequence[GuaranteeTest] = (),
    early_audit: Callable[[], EarlyAudit] | None = None,
) -> Audit:
    """Attack models and features after the runs, then derive findings and gates from all results.

    Args:
        job: The job as run.
        folder: The run folder.
        summary: Summary of this run with its references.
        runs: Attacks on labels, by label of the run.
        guarantees: Guarantees that were tested with canaries.
        early_audit: What `begin_early_audit` returned, if it was begun before.
    """
    task = Task.of(job, summary.task.classes)
    attacks = _attacks(job)
    rows = _audited_rows(job, folder, summary)
    every, unread = (attacked_labels(job, *of) for of in ((), TARGETS_WITHOUT_LABELS))
    # No party completes a model that was trained by an attack.
    attacked = {label: run for label, run in runs.items() if label in unread}
    give_back_memory()
    of_features, own = (early_audit or begin_early_audit(job, folder, [*runs], task.classes))()
    give_back_memory()
    read = _with_history(job, folder, _runs_without(runs, *unread), task, own if rows else None)
    runs = read | attacked
    unattacked = {label: folder.of_run(label) for label in _runs_without(runs, *every)}
    completed = audit_completions(job, unattacked, folder, attacks.completions if rows else (), task)
    this_run = runs[RunKind.THIS_RUN]
    malicious = audit_malicious(job, runs, of_features.results, folder, task.classes)
    parts = (completed.skipped, of_features.skipped, malicious.skipped)
    skipped = (*this_run.skipped, *(attack for part in parts for attack in part.values()))
    this_run = this_run.model_copy(update={"skipped": skipped})
    audit = Audit(
        runs={**runs, RunKind.THIS_RUN: this_run},
        completions=tuple(completed.results),
        features=tuple(of_features.results),
        malicious=tuple(malicious.results),
        guarantees=tuple(guarantees),
        left_out=skipped_attacks(job.parties[job.active].audit.catalogue, job.attacked_kind),
        sample=sample_of(job, rows, summary.data.common),
    )
    run = Run(job, folder, classes=task.classes)
    context = FindingContext(
        job.active,
        summary.utility,
        summary.protections,
        audit,
        label_free=frozenset(name for name in job.passives if job.is_label_free(name) and not job.train.split.is_sent),
        no_common_row=not rows,
        alarms=summary.alarms,
        notes={party.name: party.notes for party in summary.parties},
        copies=label_copies(run.stores, run.held, first_column(run.truth), len(task.classes)),
        undated=undated(job),
        graded=frozenset(name for name in job.passives if grades_rows(job, name)),
        idle_epochs=tuple(line["epoch"] + 1 for line in folder.history() if not line.get("learned", True)),
    )
    findings = findings_of(context)
    gates = gates_of(job.parties[job.active].audit.fail_above.limits, this_run, audit.left_out)
    return audit.model_copy(update={"findings": findings, "gates": gates})


def _run_in_turn(works: Sequence[Callable[[], Any]]) -> Callable[[], Sequence[Any]]:
    return lambda: [work() for work in works]


def begin_early_audit(
    job: Job,
    folder: RunFolder,
    labels: Sequence[str],
    classes: tuple[str, ...],
    share: Callable[[Sequence[Callable[[], Any]]], Callable[[], Sequence[Any]]] = _run_in_turn,
    done: Mapping[str, AttackAudit[FeatureResult]] = MappingProxyType({}),
) -> Callable[[], EarlyAudit]:
    """Begin what of an audit follows from run folders alone: attacks on features, and labels by own columns.

    Args:
        job: The job as run.
        folder: The run folder.
        labels: Labels of the runs.
        classes: Classes of the task.
        share: Begins some works, the longest first, and returns what returns their results.
        done: Attacks on the features of runs that have been done, by label.

    Returns:
        What waits for both, and returns them.
    """
    works = feature_attacks(job, folder, labels, classes)
    left = [name for name in works if name not in done]
    shared = share([*(works[name] for name in left), partial(_own_columns, job, folder, classes)])

    def both() -> EarlyAudit:
        *of_features, own = shared()
        every = {**done, **dict(zip(left, of_features, strict=True))}
        return _joined_audits([every[name] for name in works], job.passives), own

    return both


def feature_attacks(
    job: Job, folder: RunFolder, labels: Sequence[str], classes: tuple[str, ...]
) -> Mapping[str, Callable[[], AttackAudit[FeatureResult]]]:
    """Attacks on the features of each run by its label, which read its folder, and the encoded rows of this run."""
    shown = {RunKind.THIS_RUN, RunKind.UNDEFENDED, *job.alternatives, *attacked_labels(job, "features")}
    attacked = {name: folder.of_run(name) for name in labels if name in shown}
    return {name: partial(audit_features, job, {name: run}, folder, classes) for name, run in attacked.items()}


def _joined_audits(audits: Sequence[AttackAudit[FeatureResult]], parties: Sequence[str]) -> AttackAudit[FeatureResult]:
    """Audits of one run each as one, by party and then by run."""
    joined = AttackAudit[FeatureResult]()
    for party in parties:
        for audit in audits:
            joined.results.extend(result for result in audit.results if result.party == party)
            joined.skipped.update((label, each) for label, each in audit.skipped.items() if each.party == party)
    return joined


def _own_columns(job: Job, folder: RunFolder, classes: tuple[str, ...]) -> Mapping[str, OwnColumns]:
    """What of the labels each attacker's own columns reveal; nothing where no row's messages are attacked."""
    recorded = job.parties[job.active].audit.every != "never" and _attacks(job).histories
    is_attacked = recorded and len(read_truth(folder.transcript(job.active))[1])
    return own_columns(Run(job, folder, classes=classes)) if is_attacked else {}


def _runs_without(runs: Mapping[str, T], *labels: str) -> dict[str, T]:
    return {label: run for label, run in runs.items() if label not in labels}


def _audited_rows(job: Job, folder: RunFolder, summary: Summary) -> int:
    """Number of training rows that messages were recorded of: on all rows, or in a pilot, those of all parties."""
    if not summary.data.held:
        return summary.data.train
    return len(read_truth(folder.transcript(job.active))[1])


def _with_history(
    job: Job, folder: RunFolder, runs: Mapping[str, RunAudit], task: Task, own: Mapping[str, OwnColumns] | None
) -> dict[str, RunAudit]:
    """The audits with the attacks on the whole runs; with none where `own` is `None`, since there is no common row."""
    opened = {label: Run(job, folder.of_run(label), origin=folder, classes=task.classes) for label in runs}
    attacks = {label: _attacks(compared_job(job, label)).histories if own is not None else () for label in runs}
    return {name: audit_history(opened[name], name, audit, attacks[name], own or {}) for name, audit in runs.items()}


def _attacks(job: Job) -> Resolved:
    """The attacks of the active party's audit."""
    return resolve(job.parties[job.active].audit.catalogue, job.attacked_kind)


def audit_again(
    folder: RunFolder,
    attacks: tuple[str, ...] = (),
    fail_above: float | None = None,
    guarantees: Sequence[GuaranteeTest] | None = None,
) -> None:
    """Attack the transcripts and models of a run and of those it is compared with, and rewrite `audit.json`.

    Args:
        folder: The run folder.
        attacks: Names; the job's own where empty. Attacks on features are run on every passive party, the others by
            the active party.
        fail_above: Limit of the `label_auc` gate; the job's own where `None`.
        guarantees: Guarantees that were tested; those of the last audit where `None`.

    Raises:
        ConfigError: An unknown attack, none that can be run on this folder, or a limit outside (0.5, 1].
        RunFolderError, DataError: The run has not ended, or its transcript is damaged.
    """
    job = _with_gate(with_attacks(load_closed_job(folder.path / "job.yaml"), attacks), fail_above)
    summary, before = folder.summary, folder.audit
    folder.history()  # which the report needs: damage shows before the attacks have taken their time
    runs = {}
    # The threads of the run: another number changes the last bits of a figure.
    with run_threads(job.train.threads, job.train.batch_size), _unfit_files(folder):
        for label, audit in before.runs.items():
            if label in attacked_labels(job, *TARGETS_WITHOUT_LABELS):
                runs[label] = audit
                continue
            auditor = _replayed_auditor(compared_job(job, label), folder.of_run(label), summary.task.classes)
            runs[label] = auditor.results(label, audit.protections)
        again = conclude_audit(job, folder, summary, runs, before.guarantees if guarantees is None else guarantees)
    if attacks:
        _check_some_ran(again, attacks)
    again.write(folder.path / "audit.json")
    note_audited(folder.path)


def _check_some_ran(audit: Audit, attacks: Sequence[str]) -> None:
    """Refuse an audit in which none of the attacks that were asked for could be run; the one before it is not replaced.

    Raises:
        ConfigError: None could.
    """
    ran = [part for run in audit.runs.values() for part in (*run.leaks, *run.layers, *run.undefined)]
    if not (ran or audit.features or audit.completions or audit.malicious):
        got = (
            "; ".join(sorted({each.reason for run in audit.runs.values() for each in run.skipped}))
            or "none: what they read is not in this folder"
        )
        wanted = f"an attack that can be run here, of {', '.join(attacks)}"
        raise ConfigError.expected(wanted, got, "the last audit stays as it is")


def audit_passive(job: Job, folder: RunFolder) -> PassiveAudit:
    """Attack what a passive party sent, by the attacks that its own audit names.

    Args:
        job: Job with the party's private part; the other parties name no attack on features in it.
        folder: The party's run folder.
    """
    features = audit_features(job, {RunKind.THIS_RUN: folder}, folder, None)
    malicious = (
        SkippedAttack(party=name, message="gradient", attack=attack, reason=NEEDS_ONE_PROCESS)
        for name in job.passives
        for attack in job.parties[name].audit.malicious
    )
    run = PassiveRun.read(folder.path / OUTCOME_FILE)
    found = column_findings({run.party: run.notes})
    skipped = (*features.skipped.values(), *malicious)
    return PassiveAudit(features=tuple(features.results), skipped=skipped, findings=found)


def audit_passive_again(
    folder: RunFolder, attacks: tuple[str, ...] = (), guarantees: Sequence[GuaranteeTest] | None = None
) -> None:
    """Attack what a passive party sent again, from its run folder, and rewrite `audit.json`.

    Args:
        folder: The party's run folder.
        attacks: Names of attacks on features; the job's own where empty.
        guarantees: Guarantees that were tested; those of the last audit where `None`.

    Raises:
        ConfigError: An unknown attack, or one that is not on features.
        RunFolderError, DataError: The run has not ended, or a file of it is damaged.
    """
    unfit = [name for name in attacks if name in REGISTRY and not issubclass(REGISTRY[name], FeatureAttack)]
    if unfit:
        wanted = "attacks on features in the folder of a passive party, which has no labels"
        raise ConfigError.expected(wanted, ", ".join(unfit), "the active party audits what leaks of labels")
    job = load_closed_job(folder.path / "job.yaml")
    before = PassiveAudit.read(folder.path / "audit.json")
    with run_threads(job.train.threads, job.train.batch_size), _unfit_files(folder):
        again = audit_passive(with_attacks(job, attacks), folder)
    tested = before.guarantees if guarantees is None else tuple(guarantees)
    again.model_copy(update={"guarantees": tested}).write(folder.path / "audit.json")
    note_audited(folder.path)


@contextmanager
def _unfit_files(folder: RunFolder) -> Iterator[None]:
    """Turn the failure of a computation into an error of the folder, whose tensors somebody else may have written.

    Raises:
        RunFolderError: Tensors of the files have other shapes, types or values than those of a run.
    """
    try:
        yield
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as failure:
        got = f"others ({type(failure).__name__}: {str(failure)[:200]})"
        remedy = "run the job again; if nobody has changed a file, please report it"
        raise RunFolderError.expected(f"files of one run in {folder.path}", got, remedy) from failure


def _replayed_auditor(job: Job, folder: RunFolder, classes: tuple[str, ...]) -> Auditor:
    """An auditor that has attacked the transcripts of one run."""
    run = Run(job, folder, classes=classes)
    attacks = _attacks(job).labels
    auditor = Auditor(run.task, first_column(run.truth), run.training, attacks, job.active, job.train.seed)
    attack_recorded_steps(job, folder, auditor, [job.active, *job.passives])
    return auditor


def with_attacks(job: Job, names: tuple[str, ...]) -> Job:
    """The job with other attacks: each name at the party whose secret it looks for."""
    if not names:
        return job
    features = tuple(name for name in names if name in REGISTRY and issubclass(REGISTRY[name], FeatureAttack))
    labels = tuple(name for name in names if name not in features)
    changes = {}
    for name, party in job.parties.items():
        chosen = labels if party.role == "active" else features
        attribute = party.audit.attribute if "attribute" in chosen else None
        changes[name] = {"audit": party.audit.model_copy(update={"attacks": chosen, "attribute": attribute})}
    return job.with_parties(changes)


def _with_gate(job: Job, limit: float | None) -> Job:
    if limit is None:
        return job
    if not 0.5 < limit <= 1:
        raise ConfigError.expected("--fail-above in (0.5, 1]", limit, "0.5 is chance")
    audit = job.parties[job.active].audit.model_copy(update={"fail_above": GatesConfig(label_auc=limit)})
    return job.with_parties({job.active: {"audit": audit}})
