"""What a protected embedding is like before its noise, and what the returned gradients tell: one finished training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from cutlayer.channel.transcript import Step, read_epochs
from cutlayer.config import Job
from cutlayer.data.store import Store
from cutlayer.kernels.distance_statistics import distance_statistics, largest_distance
from cutlayer.kernels.row_norms import clip_rows, rows_to_norm
from cutlayer.protections.embedding_adjust import AdjustConfig, pseudo_labels
from cutlayer.protections.embedding_rescale import EstimateConfig
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.trained import load_bottom
from cutlayer.runs.watch import read_truth

BATCH = 512
"""Rows whose pairwise distances are looked at."""
HELD_OUT = 2000
STEPS = 50
"""Steps of an epoch whose gradients are clustered."""
_PURPOSE = 11
Figures = dict[str, float]


def embedding_figures(job: Job, folder: RunFolder, party: str, clip: float) -> Figures:
    """Distances between training rows, and how well two components tell the classes of held-out rows apart.

    All of the embedding by the model kept, bounded as the party's `dp_embedding` bounds it, without noise.

    Args:
        clip: C.

    Returns:
        See `distance_figures` and `class_share`.
    """
    labels, training = read_truth(folder.transcript(job.active))
    store = Store.open(folder.data(party))
    bottom = load_bottom(job, folder, party, store.columns.inputs)
    rescale = (job.parties[party].protections["dp_embedding"] or {}).get("rescale", "off")

    def embed(rows: Tensor) -> Tensor:
        with torch.no_grad():
            raw: Tensor = bottom(*store.gather(rows))
        return rows_to_norm(raw, clip) if rescale == "sphere" else clip_rows(raw, clip)

    draw = np.random.default_rng([job.train.seed, _PURPOSE])
    shuffled = draw.permutation(training.numpy())
    sample = EstimateConfig().rows
    batch, other = torch.from_numpy(shuffled[:BATCH]), torch.from_numpy(shuffled[-sample:])
    others = np.setdiff1d(np.arange(len(labels)), training.numpy())
    held_out = torch.from_numpy(draw.permutation(others)[:HELD_OUT])
    share = class_share(embed(held_out), labels[held_out])
    return {**distance_figures(embed(batch), embed(other), clip), "class_share": share}


def distance_figures(rows: Tensor, sampled: Tensor, clip: float) -> Figures:
    """How normal the distances between rows are, and how much of the sensitivity 2C they use.

    Args:
        rows: (n, width), none longer than the clip. sampled: (m, width), those that the scale is estimated from.
        clip: C.

    Returns:
        `ks`: the Kolmogorov-Smirnov distance to the normal of their mean and deviation, 1 where all are equal.
        `largest`: the largest one over 2C. `scaled_largest`: the same after the published rescaling. `beyond`: the
        share of the pairs that are then farther apart than 2C.
    """
    found = torch.pdist(rows.double())
    mean, deviation = float(found.mean()), float(found.std())
    ks = float(stats.kstest(found.numpy(), "norm", args=(mean, deviation)).statistic) if deviation > 0 else 1.0
    told = distance_statistics(sampled)
    estimate = largest_distance(told.mean, told.variance**0.5, 1, EstimateConfig().tail)
    scale = 2 * clip / estimate if estimate > 0 else 1.0
    return {
        "ks": ks,
        "largest": float(found.max()) / (2 * clip),
        "scaled_largest": float(found.max()) * scale / (2 * clip),
        "beyond": float((found * scale > 2 * clip).double().mean()),
    }


def class_share(rows: Tensor, labels: Tensor) -> float:
    """Share of the variance in the first two principal components that lies between the classes, 0 to 1.

    Args:
        rows: (n, width). labels: int64 (n,).

    >>> class_share(torch.tensor([[0.0, 0.0], [0.0, 1.0], [4.0, 0.0], [4.0, 1.0]]), torch.tensor([0, 0, 1, 1]))
    0.9411764705882353
    """
    centred = rows.double() - rows.double().mean(dim=0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    plane = centred @ vectors[:, -2:]
    total, between = float(plane.square().sum()), 0.0
    for code in set(labels.tolist()):
        own = plane[labels == code]
        between += len(own) * float(own.mean(dim=0).square().sum())
    return between / total if total > 0 else 0.0


def gradient_figures(job: Job, folder: RunFolder, party: str, classes: int) -> Figures:
    """How pure the clusters of returned gradients are, in the first and in the last recorded epoch.

    Returns:
        `first_` and `last_` before each key of `cluster_figures`; nothing where no gradient came back.
    """
    labels, _ = read_truth(folder.transcript(job.active))
    ends: dict[str, list[Step]] = {}
    for _, steps in read_epochs(folder.transcript(party)):
        ends = {"first": ends.get("first", steps), "last": steps}
    found: Figures = {}
    for name, steps in ends.items():
        gradients = [step for step in steps if party in step.gradients]
        if gradients:
            told = cluster_figures(gradients[:STEPS], party, labels, classes, job.train.seed)
            found |= {f"{name}_{key}": value for key, value in told.items()}
    return found


def cluster_figures(steps: Sequence[Step], party: str, labels: Tensor, classes: int, seed: int) -> Figures:
    """Cluster each step's gradients as adjusting does, and count how many rows are of their cluster's largest class.

    Args:
        labels: int64, of all rows.

    Returns:
        `purity`: of all rows. `kept_purity`: of those whose membership reaches the threshold. `kept`: their share.
        `chance`: as `purity`, of the same clusters with the labels shuffled among the rows of each step.
    """
    settings = AdjustConfig(classes=classes)
    draw = torch.Generator().manual_seed(seed)
    right = dict.fromkeys(("purity", "kept_purity", "chance"), 0)
    rows, kept_rows, centres = 0, 0, None
    for step in steps:
        clusters, kept, centres = pseudo_labels(step.gradients[party].flatten(1), settings, centres)
        truth = labels[step.rows]
        shuffled = truth[torch.randperm(len(truth), generator=draw)]
        right["purity"] += _of_the_largest(clusters, truth, classes)
        right["kept_purity"] += _of_the_largest(clusters[kept], truth[kept], classes)
        right["chance"] += _of_the_largest(clusters, shuffled, classes)
        rows, kept_rows = rows + len(truth), kept_rows + int(kept.sum())
    return {
        "purity": right["purity"] / rows,
        "kept_purity": right["kept_purity"] / max(kept_rows, 1),
        "chance": right["chance"] / rows,
        "kept": kept_rows / rows,
    }


def _of_the_largest(clusters: Tensor, truth: Tensor, classes: int) -> int:
    counts = torch.bincount(clusters * classes + truth, minlength=classes * classes)
    return int(counts.reshape(classes, classes).amax(dim=1).sum())
