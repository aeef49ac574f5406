"""On the same stored messages the audit reads no less than the attacks of other projects, by their formulas.

The formulas are those of label-protection (Li, Sun et al.), fedlearner, VFLAIR and label-inference-attacks (Fu et al.):
the gradient's norm; its cosine with, distance from and projection on the gradients of known positives; its cosine with
a known row of each class; the first singular direction of gradients and of embeddings; a head on the embeddings of 20
known rows of each class; the sign of a logit's gradient. Each is scored per batch; their figure is the mean AUC of an
epoch's batches, here at the epoch that is best for them; the head is of the last epoch, the model that a party is left
with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pyarrow import parquet
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.catalogue import Direct
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import LabelView, Target
from cutlayer.channel.row_history import NO_STEP, FollowedEpoch, read_followed
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.problem.task import Task
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.trained import Run
from studies.datasets import ADULT_TABLE, example_job
from tests.cli.jobs import audit_briefly

from .steps import PASSIVE, step

PARTY = "census_office"
DEFENCES = {
    "undefended": {},
    "max_norm": {"max_norm": {"form": "paper"}},
    "marvell": {"marvell": {"sum_kl": 0.16, "form": "paper"}},
    "dcor": {"dcor": {"alpha": 0.03}},
}


def norm(gradients: Tensor, _labels: Tensor) -> Tensor:
    return gradients.norm(dim=1)


def cosine(gradients: Tensor, labels: Tensor) -> Tensor:
    """Cosine with the gradient of the first positive of the batch, whose own score gives nothing away."""
    known = gradients[labels][0]
    return functional.cosine_similarity(gradients, known[None])


def distance(gradients: Tensor, labels: Tensor) -> Tensor:
    """Nearness to the nearest of ten positives of the batch, which are not scored."""
    hints = labels.nonzero()[:10, 0]
    return (-torch.cdist(gradients, gradients[hints]).amin(dim=1)).index_fill(0, hints, float("nan"))


def projection(gradients: Tensor, labels: Tensor) -> Tensor:
    """Along the longest of ten positives of the batch."""
    hints = gradients[labels][:10]
    return gradients @ hints[hints.norm(dim=1).argmax()]


def by_class(gradients: Tensor, labels: Tensor) -> Tensor:
    """Cosine with a known positive minus that with a known negative."""
    known = torch.stack([gradients[labels][0], gradients[~labels][0]])
    cosines = functional.cosine_similarity(gradients[:, None], known[None], dim=2)
    return cosines[:, 0] - cosines[:, 1]


def head(embeddings: Tensor, labels: Tensor) -> Tensor:
    """A linear head on 20 rows of each class, which are not scored."""
    known = torch.cat([labels.nonzero()[:20, 0], (~labels).nonzero()[:20, 0]])
    scaled = (embeddings - embeddings.mean(dim=0)) / embeddings.std(dim=0).clamp_min(1e-9)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Linear(scaled.shape[1], 1).double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(50):
            optimizer.zero_grad()
            functional.binary_cross_entropy_with_logits(model(scaled[known])[:, 0], labels[known].double()).backward()
            optimizer.step()
        return model(scaled)[:, 0].detach().index_fill(0, known, float("nan"))


def spectral(embeddings: Tensor, _labels: Tensor) -> Tensor:
    moved = embeddings - embeddings.mean(dim=0)
    return moved @ torch.linalg.svd(moved, full_matrices=False).Vh[0]


PEERS: dict[str, dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "gradient": {
        "norm": norm,
        "cosine": cosine,
        "distance": distance,
        "projection": projection,
        "by class": by_class,
        "spectral": spectral,
    },
    "embedding": {"spectral": spectral, "head": head},
}


def batch_aucs(matrix: Tensor, epoch: FollowedEpoch, labels: Tensor, formula: Callable[..., Tensor]) -> Iterator[float]:
    for number in epoch.steps[epoch.steps != NO_STEP].unique():
        rows = epoch.steps == number
        own = labels[rows]
        values = formula(matrix[rows].double(), own)
        scored = ~values.isnan()
        ranks, positive = rankdata(values[scored].numpy()), own[scored].numpy()
        wins = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
        auc = float(wins / (positive.sum() * (~positive).sum()))
        yield max(auc, 1 - auc)


def peers_figure(run: Run, message: str, formula: Callable[..., Tensor]) -> float:
    means = []
    epochs = read_followed(run.folder.transcript(run.job.active))
    for epoch in [*epochs][-1:] if formula is head else epochs:  # the head is of the finished model
        matrix = (epoch.gradients if message == "gradient" else epoch.embeddings)[PARTY]
        aucs = list(batch_aucs(matrix, epoch, run.truth[epoch.rows] == 1, formula))
        means.append(sum(aucs) / len(aucs))
    return max(means)


@pytest.mark.parametrize("defence", DEFENCES)
def test_the_audit_reads_no_less_than_other_projects(
    defence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its quick attacks alone do, with few known labels; the full audit has all of them and more."""
    audit_briefly(monkeypatch)
    raw = example_job().model_dump()
    raw["parties"] = {name: raw["parties"][name] for name in ("bank", PARTY)}
    audit = {"depth": "quick", "collusion": False, "layers": False}
    raw["parties"]["bank"] |= {"privacy": DEFENCES[defence], "audit": audit}
    raw["parties"][PARTY]["audit"] = {"attacks": []}  # what embeddings reveal of columns is not compared
    raw["train"] |= {"epochs": 2, "threads": 1, "split": {"test": 0.1, "validation": 0.1}}
    job = validated(Job, raw | {"compare": []}, "a short job")
    few = dict.fromkeys(job.parties, parquet.read_table(ADULT_TABLE).slice(0, 1800))
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path, bytes(32)), tables=few), Progress())
    run = Run(job, RunFolder.open(folder.path))
    leaks = [leak for leak in folder.audit.runs[RunKind.THIS_RUN].leaks if leak.party == PARTY]
    for message, formulas in PEERS.items():
        ours = max(leak.leak for leak in leaks if leak.message == message)
        for name, formula in formulas.items():
            theirs = peers_figure(run, message, formula)
            assert 0.5 <= theirs <= 1
            assert ours > theirs - 0.01, f"{name} on {message}s: {theirs:.3f}, the audit {ours:.3f}"
    if defence == "undefended":
        assert peers_figure(run, "gradient", cosine) > 0.9  # the formulas are not broken here


def test_the_direct_attack_reads_no_less_than_the_published_sign() -> None:
    """label-inference-attacks and VFLAIR take a row with a negative logit gradient for a positive."""
    draw = torch.Generator().manual_seed(0)
    rows, truth = torch.arange(400), torch.rand(400, generator=draw) < 0.3
    gradient = (torch.rand(400, 1, generator=draw) - truth[:, None].float()) / 400
    sent = step(0, 0, rows)
    sent = replace(sent, gradients={PASSIVE: gradient})
    view = LabelView(PASSIVE, Task("binary", ("no", "yes")), [sent], Target.GRADIENT)
    ours = Direct()(view, Knowledge())
    assert roc_auc_score(truth.numpy(), ours.values.numpy()) >= roc_auc_score(
        truth.numpy(), (gradient[:, 0] < 0).numpy()
    )
