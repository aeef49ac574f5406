"""What the embeddings of all epochs reveal beyond those of the last, of labels and of features, on Adult.

Protections of features that act on the training of the bottom model have changed little in the first epoch. Settings
are those of `other_defences`; what is read are the embeddings of the followed rows, as sent in every epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.adult import ACTIVE, scratch_keys
from benchmarks.other_defences import SETTINGS, job_of
from benchmarks.party_leaks import Values, means, over_seeds
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack
from cutlayer.audit.leak import fold_auc
from cutlayer.channel.row_history import read_followed
from cutlayer.config import Job, validated
from cutlayer.data.store import Store
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.statistics.spectral import project_on_top
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.training.malicious_runs import auxiliary_indices
from cutlayer.training.trained import Run

NAMES = ("undefended", "compress int8", "cut a layer earlier", "nopeek 1", "dp_bottom, eps 4")
DIRECTIONS = 8


@dataclass(frozen=True)
class PartyHistory:
    """What is read of one party; each value is the mean over the seeds.

    Attributes:
        setting: Name of the setting.
        party: Name of the passive party.
        last_direction: Leak of labels along the best of the top directions of the last epoch's embeddings.
        moved_direction: Leak along the best of those in which the embeddings moved from the first epoch to the last.
        last: R² of `inversion` on the embeddings of the last epoch.
        first: R² on those of the first.
        all: R² on those of all epochs, side by side.
    """

    setting: str
    party: str
    last_direction: float
    moved_direction: float
    last: float
    first: float
    all: float


@dataclass(frozen=True)
class EmbeddingHistory:
    """All settings and parties."""

    name: str
    seeds: int
    parties: tuple[PartyHistory, ...]


def embedding_history(seeds: int) -> EmbeddingHistory:
    """Train every setting with the seeds 1, 2, ..., and read the embeddings."""
    parties = [PartyHistory(name, party, *means(columns)) for name, party, columns in over_seeds(NAMES, _read, seeds)]
    return EmbeddingHistory("embedding_history", seeds, tuple(parties))


def _read(name: str, seed: int) -> Values:
    """By passive party: the values of `PartyHistory` in their order."""
    setting = f"income, {name}"
    job = _job(setting, seed)
    with scratch_keys(f"{setting} {seed}") as (folder, keys):
        run = Run(job, execute(job, folder / "run", Options(keys), Progress()))
        epochs = list(read_followed(run.folder.transcript(job.active)))
        rows, read = epochs[0].rows, {}
        for party in job.passives:
            sent = [epoch.embeddings[party].flatten(1) for epoch in epochs]
            labels = run.leak_labels[rows]
            along = (_best_direction(matrix, labels) for matrix in (sent[-1], sent[-1] - sent[0]))
            rebuilt = _inverted(run.stores[party], party, rows, (sent[-1], sent[0], torch.cat(sent, dim=1)), seed)
            read[party] = (*along, *rebuilt)
    return read


def _job(setting: str, seed: int) -> Job:
    """The job of a setting, whose own audit is short."""
    raw = job_of(SETTINGS[setting], seed).model_dump()
    raw["parties"][ACTIVE]["audit"] |= {"attacks": ["spectral"]}
    return validated(Job, raw, "examples/adult.yaml")


def _best_direction(matrix: Tensor, labels: Tensor) -> float:
    """Largest leak along the top directions of rows (n, d)."""
    return max(fold_auc(roc_auc(scores, labels)) for scores in project_on_top(matrix.double(), DIRECTIONS).T)


def _inverted(store: Store, party: str, rows: Tensor, embeddings: Sequence[Tensor], seed: int) -> list[float]:
    """R² of `inversion`, the mean over the columns, with the features of 1,000 rows known, for each matrix."""
    indices = auxiliary_indices(len(rows), seed)
    known = Auxiliary(store.columns, indices, *store.gather(rows[indices]))
    truth, knowledge = store.gather(rows[known.unknown(len(rows))]), Knowledge(auxiliary_rows=known)
    about: Mapping[str, object] = {"run": "this run", "party": party, "attack": Inversion.name, "knowledge": []}
    values = []
    for matrix in embeddings:
        case = FeatureCase("", FeatureView(party, rows, matrix), knowledge, truth)
        (result,) = measure_feature_attack(Inversion()(case.view, knowledge, seed), case, about)
        values.append(result.value or 0.0)
    return values
