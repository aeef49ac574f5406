"""The attacks of a training's audit, on a sample of what was served since (`cutlayer audit --served`).

The active party attacks the labels: it has the labels of those served rows that its table names. A passive party
attacks its own features, which it recorded with what it sent. Neither needs anything of the other.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.attacks import resolve
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge, Need
from cutlayer.attacks.label.history import HistoryView
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.audit.auditor import Auditor
from cutlayer.audit.features import case_of_all, is_run_by_default
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack
from cutlayer.audit.history import audit_messages
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.channel.transcript import Step
from cutlayer.config import FeaturesConfig, Job
from cutlayer.config.phases import Phase
from cutlayer.data.encoding import Encoder
from cutlayer.data.id_index import ABSENT, IdIndex
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import DataError, RunFolderError
from cutlayer.problem.task import Task
from cutlayer.results.audit import RunAudit, SkippedAttack
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import Baseline
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.malicious_runs import auxiliary_indices
from cutlayer.training.trained import Run
from cutlayer_serve.sample import ServedRows, read_sample, sample_path
from cutlayer_serve.served_result import ServedAudit
from cutlayer_serve.trained_party import TrainedParty

RESULTS_LABEL = "served"
"""Label of the results, as that of a run."""
MIN_ROWS, MIN_OF_CLASS = 20, 5
"""Rows below which an attack's ranking of the labels is by chance."""
_NO_TABLE = "the labels of served rows are those of the active party's table, which cannot be read: {}"


def audit_served(folder: RunFolder, job: Job) -> ServedAudit:
    """Attack the samples that the parties of this run folder recorded while serving.

    Args:
        folder: The run folder, of one party or of all.
        job: The job with the attacks to run.

    Raises:
        RunFolderError: Nothing that was served is recorded here.
        DataError: A sample is damaged.
    """
    features = AttackAudit[FeatureResult]()
    labels = list[RunAudit]()
    rows = dict[str, int]()
    for party in job.passives:
        if (path := sample_path(folder.path, party, party)).exists():
            sample = read_sample(path)
            rows[f"{party}, recorded by itself"] = len(sample.ids)
            _audit_features(job, folder, party, sample, features)
    for party in job.passives:
        if (path := sample_path(folder.path, job.active, party)).exists():
            sample = read_sample(path)
            rows[f"{party}, recorded by {job.active}"] = len(sample.ids)
            labels.append(_audit_labels(job, folder, party, sample))
    if not rows:
        wanted = f"samples of served rows below {folder.path / 'serving'}"
        raise RunFolderError.expected(wanted, "none", "serve the run first, with serve.sample_rows above 0")
    return ServedAudit(
        rows=rows,
        leaks=tuple(leak for audit in labels for leak in audit.leaks),
        undefined=tuple(attempt for audit in labels for attempt in audit.undefined),
        baselines=tuple(baseline for audit in labels for baseline in audit.baselines),
        features=tuple(features.results),
        skipped=(*(attack for audit in labels for attack in audit.skipped), *features.skipped.values()),
    )


def _audit_features(
    job: Job, folder: RunFolder, party: str, sample: ServedRows, audit: AttackAudit[FeatureResult]
) -> None:
    """Attack a passive party's features, with the rows of the sample that each attack knows."""
    trained = TrainedParty.open(folder.path, party)
    encoder, bottom = trained.model.encoder, trained.model.bottom
    if encoder is None or bottom is None:
        return
    seed, once = job.train.seed, Phase.RELEASE in job.phases_of(party)
    for attack in resolve(job.parties[party].audit.catalogue, job.task, "passive").features:
        if not is_run_by_default(attack, job, party, once=once):
            continue
        if attack.needs not in _CASES:
            audit.skip(party, [attack], "it reads a training, and not served embeddings")
            continue
        about = {"run": RESULTS_LABEL, "party": party, "attack": attack.name, "knowledge": sorted(attack.needs)}
        with audit.skipping(party, [attack]):
            case = _CASES[attack.needs](party, sample, encoder, job)
            audit.results.extend(measure_feature_attack(attack(case.view, case.knowledge, seed), case, about))


def _known_rows(party: str, sample: ServedRows, encoder: Encoder, job: Job) -> FeatureCase:
    """Some of the rows are known to the attacker, all others are attacked."""
    rows = torch.arange(len(sample.ids))
    known = auxiliary_indices(len(rows), job.train.seed)
    auxiliary = Auxiliary(encoder.columns, known, sample.codes[known], sample.numbers[known])
    unknown = auxiliary.unknown(len(rows))
    view = FeatureView(party, rows, sample.embeddings)
    knowledge = Knowledge(auxiliary_rows=auxiliary)
    return FeatureCase(
        RESULTS_LABEL,
        view,
        knowledge,
        (sample.codes[unknown], sample.numbers[unknown]),
        job.parties[party].audit.attribute,
    )


def _no_row(party: str, sample: ServedRows, encoder: Encoder, job: Job) -> FeatureCase:
    """No row is known, and all are attacked."""
    del job
    view = FeatureView(party, torch.arange(len(sample.ids)), sample.embeddings)
    return case_of_all(RESULTS_LABEL, view, Knowledge(), (sample.codes, sample.numbers), encoder)


def _other_rows(party: str, sample: ServedRows, encoder: Encoder, job: Job) -> FeatureCase:
    """Some rows are left out of what is attacked: the attacker knows them as other rows of the population."""
    left_out = auxiliary_indices(len(sample.ids), job.train.seed)
    none = torch.zeros(0, dtype=torch.int64)
    known = Auxiliary(encoder.columns, none, sample.codes[left_out], sample.numbers[left_out])
    rows = torch.ones(len(sample.ids), dtype=torch.bool)
    rows[left_out] = False
    rest = rows.nonzero().flatten()
    view = FeatureView(party, rest, sample.embeddings[rest])
    return case_of_all(
        RESULTS_LABEL, view, Knowledge(other_rows=known), (sample.codes[rest], sample.numbers[rest]), encoder
    )


_CASES = {
    frozenset(): _no_row,
    frozenset({Need.OTHER_ROWS}): _other_rows,
    frozenset({Need.AUXILIARY_FEATURES}): _known_rows,
}
"""The case of a sample by what an attack must know."""


def _audit_labels(job: Job, folder: RunFolder, party: str, sample: ServedRows) -> RunAudit:
    """Attack the labels of those rows whose labels the active party has."""
    trained = TrainedParty.open(folder.path, job.active)
    attacks = resolve(job.parties[job.active].audit.catalogue, job.attacked_kind)
    protections = tuple(job.parties[party].protections)
    try:
        known, truth = _labels(trained, sample)
    except DataError as reason:
        return _skipped(party, _NO_TABLE.format(reason))
    rows = torch.arange(len(truth))
    embeddings = sample.embeddings[torch.from_numpy(known)]
    if too_few_rows := reason_too_few(truth):
        return _skipped(party, too_few_rows)
    run = _ServedRun(job, folder, trained.model.task, truth)
    auditor = Auditor(run.task, truth, rows, attacks.labels, job.active, job.train.seed)
    auditor.take(0, {job.active: [Step(0, 0, rows, embeddings={party: embeddings})]})
    single = auditor.results(RESULTS_LABEL, protections)
    epoch = FollowedEpoch(0, rows, torch.zeros_like(rows), {party: embeddings})
    whole = audit_messages(run, RESULTS_LABEL, HistoryView(party, run.task, [epoch]), protections, attacks.histories)
    return RunAudit(
        leaks=(*single.leaks, *whole.leaks),
        undefined=(*single.undefined, *whole.undefined),
        skipped=(*single.skipped, *whole.skipped),
        baselines=tuple(_with_columns(folder, baseline) for baseline in whole.baselines),
    )


def reason_too_few(truth: Tensor) -> str:
    """Why these labels are too few to measure a leak, which chance alone could make 1; empty if they are enough."""
    wanted = f"expected {MIN_ROWS} served rows or more with a known label"
    if truth.is_floating_point():
        return "" if len(truth) >= MIN_ROWS else f"{wanted}, got {len(truth)}; serve more rows first"
    counts = torch.bincount(truth, minlength=2).sort(descending=True).values.tolist()
    if len(truth) >= MIN_ROWS and counts[1] >= MIN_OF_CLASS:
        return ""
    classes = f"{MIN_OF_CLASS} or more of each of two classes"
    return f"{wanted}, {classes}, got {len(truth)}, {counts[1]} of the second class; serve more rows first"


def _skipped(party: str, reason: str) -> RunAudit:
    """The audit of embeddings that no attack on labels could read."""
    return RunAudit(skipped=(SkippedAttack(party=party, message="embedding", reason=reason),))


def _labels(trained: TrainedParty, sample: ServedRows) -> tuple[npt.NDArray[np.int64], Tensor]:
    """Indices of the rows whose labels are known, and these labels.

    Raises:
        DataError: The table cannot be read, or has other classes than the training.
    """
    job, active = trained.job, trained.job.active
    party = job.parties[active]
    task = trained.model.task
    none = FeaturesConfig(include="none")
    dropped = party.unlabelled == "drop"
    table = PartyTable(
        active, party.table, id=party.id, label=party.label, features=none, task=task.kind, drop_unlabelled=dropped
    )
    everything = np.arange(table.rows)
    labels = table.prepare(everything, everything).labels
    if labels is None or labels.classes != task.classes:
        raise DataError.expected(f"the classes of the training ({', '.join(task.classes)})", "others")
    rows = IdIndex(table.digests).find(sample.ids)
    known = np.flatnonzero(rows != ABSENT)
    return known, labels.values[torch.from_numpy(rows[known])]


def _with_columns(folder: RunFolder, baseline: Baseline) -> Baseline:
    """The baseline with what the training's audit measured of the party's own columns."""
    trained = folder.audit.runs[RunKind.THIS_RUN].baseline(baseline.party)
    if trained is None:
        return baseline
    return baseline.model_copy(update={"own_columns": trained.own_columns, "model": trained.model})


class _ServedRun(Run):
    """Served rows in place of the rows of a training."""

    def __init__(self, job: Job, folder: RunFolder, task: Task, truth: Tensor) -> None:
        super().__init__(job, folder)
        self._task = task
        self._truth = truth

    @property
    def truth(self) -> Tensor:
        """True labels of the served rows."""
        return self._truth

    @property
    def training(self) -> Tensor:
        """All of them: an attacker knows the shares of the classes."""
        return torch.arange(len(self._truth))

    @cached_property
    def task(self) -> Task:
        """The task of the training."""
        return self._task
