"""The runs of one job: its own, those that it is compared with, and what they are concluded to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from torch import Tensor

from cutlayer.attacks import resolve
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.audit.auditor import Auditor
from cutlayer.audit.watch import Watcher
from cutlayer.config import Job
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.jobs.audit import EarlyAudit, begin_early_audit, conclude_audit, feature_attacks
from cutlayer.jobs.forked_work import ForkedWork, can_fork
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.summary import summary_of, with_own_columns_model
from cutlayer.parties.guards.guard import AlarmWarning
from cutlayer.parties.session.observer import Relay, WatchedParty
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.problem.task import Task
from cutlayer.results.audit import Audit, RunAudit
from cutlayer.results.features import FeatureResult
from cutlayer.results.run import RunId, RunKind
from cutlayer.results.summary import Summary
from cutlayer.results.utility import ModelUtility
from cutlayer.storage.row_arrays import give_back_memory
from cutlayer.storage.row_tensors import rows_of
from cutlayer.storage.tensor_file import stored_tensors, write_tensors
from cutlayer.training.comparisons import compared_jobs, optimizer_hooks_of, protections_of
from cutlayer.training.contributions import difference_to
from cutlayer.training.departures import finetuned_sets, retrained_stores, with_references
from cutlayer.training.finetuning import FineTuned, finetune_top
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import write_test_predictions
from cutlayer.training.keys import starting_keys
from cutlayer.training.malicious_runs import tampering_of
from cutlayer.training.references import BOOSTING, Reference, fit_reference, train_reference
from cutlayer.training.together import TrainedRun, train_together
from cutlayer.training.trained import Run
from cutlayer.training.utility import chance_metrics, interval

_LOGITS = "logits.safetensors"
"""File of the predictions of a compared run, which this run's are compared with when it has ended."""


MANY_ROWS, MANY_VALUES = 50_000, 2**20
"""Rows of a table, and its rows times columns, from which on compared runs are trained, and their attacks run, beside
this one: seconds, and the memory of some copies."""


class _WorkStarter(Relay, Progress):
    """Begins other work once the rows of a run are aligned and encoded, its labels drawn and its keys made.

    Args:
        progress: Receives every call too.
        start_work: Begins the work at its first call, and returns what returns the result.
    """

    def __init__(self, progress: Progress, start_work: Callable[[], Callable[[], ComparedRuns]]) -> None:
        super().__init__(progress)
        self._progress, self.start_work = progress, start_work

    def stage(self, name: str) -> None:
        """Forward the call."""
        self._progress.stage(name)

    def connected(self, parties: Mapping[str, WatchedParty]) -> None:
        """Begin when a partner has fitted its grades: what it checks and draws then takes one core."""
        super().connected(parties)
        for party in parties.values():
            party.when_fitted = self.start_work

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Begin, and forward the call."""
        self.start_work()
        super().started(task, truth, training, epochs, start)


@dataclass(frozen=True)
class DescribedRun:
    """One run of a job, as far as it is known without its references.

    Attributes:
        summary: Settings of the run and utility of its model.
        audit: Results of the attacks on the labels.
    """

    summary: Summary
    audit: RunAudit


ComparedRuns = tuple[dict[str, DescribedRun], dict[str, AttackAudit[FeatureResult]]]
"""Compared runs, and the attacks on their features, by label."""


@dataclass(frozen=True)
class Execution:
    """A job on its way: where it is run, and how.

    Attributes:
        job: The job.
        folder: The run folder.
        options: Keys, and whether to resume.
        threads: Number of threads of the tensor library.
        progress: Called as the runs go on.
    """

    job: Job
    folder: RunFolder
    options: Options
    threads: int
    progress: Progress

    def run_all(self, tables: Mapping[str, PartyTable]) -> None:
        """Train the runs of the job with all parties here, audit them, and write what came out.

        Args:
            tables: Tables of the parties.
        """
        job, folder, options, progress = self.job, self.folder, self.options, self.progress
        runs: dict[str, DescribedRun] = {}
        done: dict[str, AttackAudit[FeatureResult]] = {}
        compared = [*compared_jobs(job)]
        this_run = RunId(RunKind.THIS_RUN)
        with ForkedWork(forks=self._may_fork(tables)) as beside:
            if beside.forks:
                # A fork that failed left some of its files.
                quiet = replace(self, progress=Progress(), options=replace(options, resume=True))
                later = partial(quiet._train_and_attack_compared, compared, tables)
                progress = _WorkStarter(progress, cache(partial(beside.start, later)))
            else:
                runs = self._train_all_compared(compared, tables)
            progress.stage(this_run.label)
            watcher = Watcher(job, folder, progress)
            trained = train_together(
                job,
                folder,
                tables,
                options.keys,
                watcher,
                resume=options.resume,
                forget_peer_progress=options.forget_peer_progress,
                pilot=options.pilot,
            )
            if isinstance(progress, _WorkStarter):
                runs, done = progress.start_work()()
            labels = [*runs, this_run.label]
            beforehand = begin_early_audit(job, folder, labels, trained.active.task.classes, beside.share, done)
            runs = {label: self._with_difference(run, label, trained.active) for label, run in runs.items()}
            runs[this_run.label] = self.describe(job, this_run, folder, trained, watcher.auditor)
            self._conclude(runs, trained, beforehand)

    def _conclude(
        self, runs: dict[str, DescribedRun], trained: TrainedRun, early_audit: Callable[[], EarlyAudit]
    ) -> None:
        """Train the references, audit all, and write the results."""
        job, folder, progress = self.job, self.folder, self.progress
        this_run = RunId(RunKind.THIS_RUN)
        references = []
        for run, reference in self._references(trained):
            if run.kind is RunKind.ALONE:
                summary = with_own_columns_model(runs[this_run.label].summary, job, trained.active, reference.logits)
                runs[this_run.label] = replace(runs[this_run.label], summary=summary)
            else:
                references.append(_reference_utility(run, reference, trained.active, job))
        references.append(chance_reference(trained, Run(job, folder, classes=trained.active.task.classes).truth))
        if resolve(job.parties[job.active].audit.catalogue, job.attacked_kind).completions:
            progress.stage("model completion")
        if any(resolve(job.parties[name].audit.catalogue, job.task, "passive").features for name in job.passives):
            progress.stage("feature leakage")
        write_conclusions(job, folder, runs, references, early_audit)

    def _may_fork(self, tables: Mapping[str, PartyTable]) -> bool:
        """Whether compared runs are trained beside this one, where that gains more than it costs."""
        is_large = any(
            table.rows >= MANY_ROWS or table.rows * table.candidate_columns >= MANY_VALUES for table in tables.values()
        )
        return self.options.forks and is_large and can_fork(self.threads)

    def _train_all_compared(
        self, compared: Sequence[tuple[RunId, Job]], tables: Mapping[str, PartyTable]
    ) -> dict[str, DescribedRun]:
        runs = {}
        for run, other in compared:
            self.progress.stage(run.label)
            runs[run.label] = self._train_compared(other, run, tables)
        return runs

    def _train_and_attack_compared(
        self, compared: Sequence[tuple[RunId, Job]], tables: Mapping[str, PartyTable]
    ) -> ComparedRuns:
        """Train the compared runs, and attack their features while this run goes on: none of it reads this run's."""
        runs = self._train_all_compared(compared, tables)
        classes = next((run.summary.task.classes for run in runs.values()), ())
        give_back_memory()
        return runs, {
            label: attack() for label, attack in feature_attacks(self.job, self.folder, [*runs], classes).items()
        }

    def _train_compared(self, job: Job, run: RunId, tables: Mapping[str, PartyTable]) -> DescribedRun:
        """Train one of the runs this one is compared with, unless a resumed job has it already."""
        options, parent = self.options, self.folder
        folder = parent.of_run(run.label)
        if options.resume and folder.has_ended:
            return DescribedRun(folder.summary, folder.audit_of(run.label).runs[run.label])
        begun = options.resume and (folder.path / "job.yaml").exists()
        tampering = tampering_of(job, run, parent)
        if begun and tampering:  # what an attacker has learned is in no checkpoint
            folder.clear()
            begun = False
        folder = RunFolder.create(folder.path, resume=begun)
        folder.write_job(job)
        watcher = Watcher(job, folder, self.progress)
        with warnings.catch_warnings():
            if tampering:  # its alarms are those of a simulation, and in the report
                warnings.simplefilter("ignore", AlarmWarning)
            # Its releases stay in this process, so they cost nothing; it starts from the weights of this run.
            trained = train_together(
                job,
                folder,
                tables,
                replace(options.keys, simulated=True),
                watcher,
                data=parent.path / "data",
                origin=parent,
                fits={name: party.fit for name, party in self.job.parties.items()},
                wraps=optimizer_hooks_of(job, run),
                tampering=tampering,
                resume=begun,
            )
        described = self.describe(job, run, folder, trained, watcher.auditor)
        write_tensors(folder.path / _LOGITS, {"logits": trained.active.logits}, {})
        folder.write_results(described.summary, Audit(runs={run.label: described.audit}))
        return described

    def _with_difference(self, run: DescribedRun, label: str, active: ActiveOutcome) -> DescribedRun:
        """A compared run with what this run's model is ahead of its own, on the same rows."""
        path = self.folder.of_run(label).path / _LOGITS
        logits = stored_tensors(path, "predictions", "logits")["logits"]
        utility = run.summary.utility
        row = utility.rows[0].model_copy(update={"ahead": difference_to(active, logits, self.job.train.seed)})
        compared = run.summary.model_copy(update={"utility": utility.model_copy(update={"rows": (row,)})})
        return replace(run, summary=compared)

    def describe(
        self, job: Job, run: RunId, folder: RunFolder, trained: TrainedRun, auditor: Auditor | None
    ) -> DescribedRun:
        """Summary and audit of one run; of the job's own run, its test predictions are written too.

        Args:
            job: Job of the run.
            run: Identifier of the run among those of the job.
            folder: Folder of the run.
            trained: Results of the parties.
            auditor: Auditor with the leaks; `None` if nothing was audited.
        """
        supplied = self.options.keys.supplied is not None
        summary = summary_of(job, run, folder, trained, self.threads, reproducible=supplied)
        if run.kind is RunKind.THIS_RUN:
            write_test_predictions(folder, trained.active)
        protections = protections_of(job)
        audit = auditor.results(run.label, protections) if auditor else RunAudit(protections=tuple(protections))
        return DescribedRun(summary, audit)

    def _references(self, trained: TrainedRun) -> Iterator[tuple[RunId, Reference | FineTuned]]:
        """Train what this run is compared with besides other runs of the protocol."""
        job, folder, progress, active = self.job, self.folder, self.progress, trained.active
        trained_run = Run(job, folder, classes=active.task.classes)
        wanted: dict[RunId, dict[str, Store]] = {}
        if "centralised" in job.compare:
            wanted[RunId(RunKind.CENTRALISED)] = trained_run.stores
        alone = RunId(RunKind.ALONE, (job.active,))
        if "alone" in job.compare and active.fit is None and job.active in trained_run.stores:
            wanted[alone] = {job.active: trained_run.stores[job.active]}
        if "retrained" in job.compare:
            wanted |= dict(retrained_stores(job, trained_run.stores))
        if active.fit is not None:
            wanted.pop(alone, None)  # a fitted model has one of its own, which was chosen for itself
        keys = starting_keys(folder.path, job.parties) if wanted else {}
        for run, chosen in wanted.items():
            progress.stage(run.label)
            yield run, train_reference(job, chosen, active, trained_run.truth, keys)
        if "boosting" in job.compare:
            run = RunId(RunKind.BOOSTING)
            progress.stage(run.label)
            stores, truth, seed = trained_run.stores, trained_run.truth, job.train.seed
            yield run, fit_reference(BOOSTING, stores, active.task, truth, active.split, active.part, seed)
        for absent in finetuned_sets(job, trained_run.stores) if "finetuned" in job.compare else ():
            run = RunId(RunKind.FINETUNED, absent)
            progress.stage(run.label)
            yield run, finetune_top(trained_run, absent)


def write_conclusions(
    job: Job,
    folder: RunFolder,
    runs: Mapping[str, DescribedRun],
    references: Sequence[ModelUtility],
    early_audit: Callable[[], EarlyAudit] | None = None,
) -> None:
    """Write summary, ledger and audit of a run and of those it is compared with.

    Args:
        job: The job as run.
        folder: The run folder.
        runs: This run and those it is compared with, by label.
        references: Held-out metrics of the references.
        early_audit: Returns what of the audit follows from the folders, if that was begun before.
    """
    this_run = runs[RunKind.THIS_RUN].summary
    compared = [run.summary.utility.rows[0] for label, run in runs.items() if label != RunKind.THIS_RUN]
    own, *alone = this_run.utility.rows
    rows = (own, *compared, *alone, *references)
    retrained = references if this_run.utility.choice else rows  # a fitted model alone is a row of departures itself
    undefended = runs[RunKind.UNDEFENDED].summary.departures if RunKind.UNDEFENDED in runs else None
    summary = this_run.model_copy(
        update={
            "utility": this_run.utility.model_copy(update={"rows": rows}),
            "alternatives": {
                name: tuple(total.statement for total in runs[name].summary.ledger.totals)
                for name in job.alternatives
                if name in runs
            },
            "departures": with_references(this_run.departures, undefended, retrained, this_run.utility.metric),
        }
    )
    folder.write_json("ledger.json", summary.ledger.to_json())
    audits = {label: run.audit for label, run in runs.items()}
    folder.write_results(summary, conclude_audit(job, folder, summary, audits, early_audit=early_audit))


def _reference_utility(run: RunId, reference: Reference | FineTuned, active: ActiveOutcome, job: Job) -> ModelUtility:
    seed = job.train.seed
    bounds = interval(active.task, reference.logits, active.labels, seed)
    return ModelUtility.of(run, reference.metrics, bounds, difference_to(active, reference.logits, seed))


def chance_reference(trained: TrainedRun, truth: Tensor) -> ModelUtility:
    """The reference that knows nothing but the training labels."""
    active = trained.active
    constant = chance_metrics(active.task, rows_of(truth, active.split.part("train")), active.labels)
    return ModelUtility.of(RunId(RunKind.CHANCE), constant)
