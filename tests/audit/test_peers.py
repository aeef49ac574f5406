"""On the same stored messages the audit reads no less than the attacks of other projects, by their formulas.

The formulas are those of label-protection (Li, Sun et al.), fedlearner and VFLAIR: the gradient's norm, its cosine with
the gradient of one known positive, and the first singular direction of the embeddings, each scored per batch; their
figure is the mean AUC of an epoch's batches, here at the epoch that is best for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from cutlayer.channel.followed import NO_STEP, FollowedEpoch, read_followed
from cutlayer.config import Job, validated
from cutlayer.config.load import load_job
from cutlayer.jobs.execute import Options, Progress, execute
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.together import Keys
from cutlayer.training.trained import Run

ADULT = Path(__file__).parents[2] / "examples" / "adult.yaml"
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
    return torch.nn.functional.cosine_similarity(gradients, known[None])


def spectral(embeddings: Tensor, _labels: Tensor) -> Tensor:
    moved = embeddings - embeddings.mean(dim=0)
    return moved @ torch.linalg.svd(moved, full_matrices=False).Vh[0]


PEERS: dict[str, dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "gradient": {"norm": norm, "cosine": cosine},
    "embedding": {"spectral": spectral},
}


def batch_aucs(matrix: Tensor, epoch: FollowedEpoch, labels: Tensor, formula: Callable[..., Tensor]) -> Iterator[float]:
    for step in epoch.steps[epoch.steps != NO_STEP].unique():
        rows = epoch.steps == step
        own = labels[rows]
        auc = roc_auc_score(own.numpy(), formula(matrix[rows].double(), own).numpy())
        yield max(auc, 1 - auc)


def peers_figure(run: Run, message: str, formula: Callable[..., Tensor]) -> float:
    means = []
    for epoch in read_followed(run.folder.transcript(run.job.active)):
        matrix = (epoch.gradients if message == "gradient" else epoch.embeddings)[PARTY]
        aucs = list(batch_aucs(matrix, epoch, run.truth[epoch.rows] == 1, formula))
        means.append(sum(aucs) / len(aucs))
    return max(means)


@pytest.mark.parametrize("defence", DEFENCES)
def test_the_audit_reads_no_less_than_other_projects(defence: str, tmp_path: Path) -> None:
    raw = load_job(ADULT).model_dump()
    raw["parties"]["bank"] |= {"privacy": DEFENCES[defence], "audit": {}}
    raw["train"] |= {"epochs": 2, "threads": 1, "split": {"test": 0.1, "validation": 0.86}}
    job = validated(Job, raw | {"compare": []}, "a short job")
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path, bytes(32))), Progress())
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
