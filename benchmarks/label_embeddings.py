"""Utility and leak of the forms of `dcor` on `examples/adult.yaml`, read from embeddings by affine-invariant attacks.

Each setting is trained as in `label_defences`. `best_direction` is the leak AUC of the best of the embedding's singular
directions in the last epoch, `probe_20` and `probe_200` are those of a logistic regression on so many known rows, and
`probe_half` on every other row, each the larger with standardised and with whitened columns. `untrained` is the job at
a learning rate of 1e-12: what a party's own columns reveal.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from benchmarks.label_defences import trained
from benchmarks.release_attacks import leak
from cutlayer.kernels.dependence.whitening import whitened

PARTIES = ("census_office", "employer")
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "undefended": {},
    "untrained": {},
    "dcor, alpha 0.03": {"dcor": {"alpha": 0.03}},
    "dcor, alpha 0.1": {"dcor": {"alpha": 0.1}},
    "dcor, whitened, alpha 0.05": {"dcor": {"alpha": 0.05, "form": "whitened"}},
    "dcor, whitened, alpha 0.1": {"dcor": {"alpha": 0.1, "form": "whitened"}},
    "dcor, whitened, alpha 0.2": {"dcor": {"alpha": 0.2, "form": "whitened"}},
}
DRAWS = 10
PROBES: Mapping[str, int | None] = {"probe_20": 20, "probe_200": 200, "probe_half": None}
"""Number of known rows; `None` is every other row."""


@dataclass(frozen=True)
class Hidden:
    """One setting; each value is the mean over the seeds.

    Attributes:
        test_auc: test AUC of the model.
        leaks: leak AUC by party and attack.
    """

    setting: str
    test_auc: float
    leaks: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class LabelEmbeddings:
    """All settings."""

    name: str
    seeds: int
    settings: tuple[Hidden, ...]


def label_embeddings(seeds: int) -> LabelEmbeddings:
    """Train and attack every setting with each seed."""
    settings = []
    for setting, privacy in SETTINGS.items():
        aucs, read = [], []
        for seed in range(1, seeds + 1):
            train = {"optimizer": {"kind": "adam", "lr": 1e-12}} if setting == "untrained" else {}
            auc, messages = trained(setting, privacy, seed, **train)
            aucs.append(auc)
            embeddings = {party: messages.releases(party).embeddings[-1].double() for party in PARTIES}
            read.append({party: embedding_leaks(e, messages.labels) for party, e in embeddings.items()})
        leaks = {
            party: {name: round(statistics.mean(item[party][name] for item in read), 3) for name in read[0][party]}
            for party in PARTIES
        }
        settings.append(Hidden(setting, round(statistics.mean(aucs), 4), leaks))
    return LabelEmbeddings("label_embeddings", seeds, tuple(settings))


def embedding_leaks(e: Tensor, labels: Tensor) -> dict[str, float]:
    """Leak AUCs of embeddings (n, width) for labels (n,), by attack."""
    centred = e - e.mean(0)
    values, directions = torch.linalg.eigh(centred.T @ centred)
    scores = centred @ directions[:, values > 1e-12 * values[-1]]
    best = max(leak(column, labels) for column in scores.T)
    return {"best_direction": best} | {
        name: max(_probes(e, labels, name), _probes(whitened(e, 1e-9), labels, name)) for name in PROBES
    }


def _probes(e: Tensor, labels: Tensor, name: str) -> float:
    """Mean leak AUC of the probes of one size, over draws of the known rows."""
    draw = torch.Generator().manual_seed(0)
    if PROBES[name] is None:
        return _probe(e, labels, torch.arange(0, len(e), 2))
    return statistics.mean(
        _probe(e, labels, torch.randperm(len(e), generator=draw)[: PROBES[name]]) for _ in range(DRAWS)
    )


def _probe(e: Tensor, labels: Tensor, known: Tensor) -> float:
    """Leak AUC on the other rows of a logistic regression fitted on the known ones."""
    if len(labels[known].unique()) < 2:  # type: ignore[no-untyped-call]
        return 0.5
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1 if len(known) < 100 else 1.0, max_iter=300))
    model.fit(e[known].numpy(), labels[known].numpy())
    others = torch.ones(len(e), dtype=torch.bool)
    others[known] = False
    return leak(torch.from_numpy(model.decision_function(e[others].numpy())), labels[others])
