"""Diagnostics of one finished training: its embeddings before the noise, and the gradients that came back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from cutlayer.channel.transcript import Step, read_epochs
from cutlayer.config import Job
from cutlayer.data.streams import RandomStream
from cutlayer.kernels.rows.row_norms import clip_rows, rows_to_norm
from cutlayer.training.folder import RunFolder
from cutlayer.training.recorder import read_truth
from cutlayer.training.trained import Run
from cutlayer_published.embedding.adjust import AdjustConfig, pseudo_labels
from cutlayer_published.embedding.distance_statistics import distance_statistics, largest_distance
from cutlayer_published.embedding.rescale import EstimateConfig
from studies.embedding_noise import noise_of

BATCH = 512
"""Number of rows whose pairwise distances are measured."""
HELD_OUT = 2000
"""Maximum number of held-out rows whose classes are separated."""
STEPS = 50
"""Maximum number of steps of an epoch whose gradients are clustered."""
"""Number of this stream of random draws."""
Diagnostics = dict[str, float]


def embedding_values(job: Job, folder: RunFolder, party: str, clip: float) -> Diagnostics:
    """Distances between training rows, and the separation of the classes of held-out rows.

    Both are of the embedding by the model of the run, bounded as by the party's `dp_embedding`, without noise.

    Args:
        job: Job of the run.
        folder: Run folder.
        party: Passive party.
        clip: Norm bound C.

    Returns:
        See `distance_values` and `class_share`.
    """
    run = Run(job, folder)
    labels, training, store, bottom = run.truth, run.training, run.stores[party], run.bottom(party)
    rescale = (noise_of(job.parties[party].protections) or {}).get("rescale", "off")

    def embed(rows: Tensor) -> Tensor:
        with torch.no_grad():
            raw: Tensor = bottom(*store.gather(rows))
        return rows_to_norm(raw, clip) if rescale == "sphere" else clip_rows(raw, clip)

    draw = np.random.default_rng([job.train.seed, RandomStream.DIAGNOSTICS])
    shuffled = draw.permutation(training.numpy())
    sample = EstimateConfig().rows
    batch, estimation = torch.from_numpy(shuffled[:BATCH]), torch.from_numpy(shuffled[-sample:])
    rest = np.setdiff1d(np.arange(len(labels)), training.numpy())
    held_out = torch.from_numpy(draw.permutation(rest)[:HELD_OUT])
    share = class_share(embed(held_out), labels[held_out])
    return {**distance_values(embed(batch), embed(estimation), clip), "class_share": share}


def distance_values(rows: Tensor, sampled: Tensor, clip: float) -> Diagnostics:
    """How close to normal the distances between rows are, and how much of the sensitivity 2C they use.

    Args:
        rows: Embeddings, (n, width), of norm C at most.
        sampled: Embeddings that the scale is estimated from, (m, width).
        clip: Norm bound C.

    Returns:
        `ks`: the Kolmogorov-Smirnov distance to the normal of their mean and deviation, 1 where all are equal.
        `largest`: the largest one over 2C. `scaled_largest`: the same after the published rescaling. `beyond`: the
        share of the pairs that are then farther apart than 2C.
    """
    distances = torch.pdist(rows.double())
    mean, deviation = float(distances.mean()), float(distances.std())
    ks = float(stats.kstest(distances.numpy(), "norm", args=(mean, deviation)).statistic) if deviation > 0 else 1.0
    sample = distance_statistics(sampled)
    estimate = largest_distance(sample.mean, sample.variance**0.5, 1, EstimateConfig().tail)
    scale = 2 * clip / estimate if estimate > 0 else 1.0
    return {
        "ks": ks,
        "largest": float(distances.max()) / (2 * clip),
        "scaled_largest": float(distances.max()) * scale / (2 * clip),
        "beyond": float((distances * scale > 2 * clip).double().mean()),
    }


def class_share(rows: Tensor, labels: Tensor) -> float:
    """Share of the variance in the first two principal components that lies between the classes, 0 to 1.

    Args:
        rows: Embeddings, (n, width).
        labels: Classes, int64 (n,).

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


def gradient_values(job: Job, folder: RunFolder, party: str, settings: AdjustConfig) -> Diagnostics:
    """Purity of the clusters of returned gradients, in the first and in the last recorded epoch.

    Args:
        job: Job of the run.
        folder: Run folder.
        party: Passive party.
        settings: Clustering, threshold and number of classes.

    Returns:
        The keys of `cluster_values` with the prefixes `first_` and `last_`; empty where no gradient came back.
    """
    labels, _ = read_truth(folder.transcript(job.active))
    ends: dict[str, list[Step]] = {}
    for _, steps in read_epochs(folder.transcript(party)):
        ends = {"first": ends.get("first", steps), "last": steps}
    values: Diagnostics = {}
    for name, steps in ends.items():
        gradients = [step for step in steps if party in step.gradients]
        if gradients:
            own = cluster_values(gradients[:STEPS], party, labels, settings, job.train.seed)
            values |= {f"{name}_{key}": value for key, value in own.items()}
    return values


def cluster_values(steps: Sequence[Step], party: str, labels: Tensor, settings: AdjustConfig, seed: int) -> Diagnostics:
    """Cluster each step's gradients as `adjust` does, and count the rows of their cluster's largest class.

    Args:
        steps: Recorded steps with gradients of the party.
        party: Passive party.
        labels: Classes of all rows, int64.
        settings: Clustering, threshold and number of classes.
        seed: Seed of the shuffled labels.

    Returns:
        `purity`, the share of such rows among all rows; `kept_purity`, that among the rows whose membership reaches the
        threshold; `kept`, the share of the latter; and `chance`, as `purity` with the labels shuffled among the rows of
        each step.
    """
    classes = settings.classes
    draw = torch.Generator().manual_seed(seed)
    right = dict.fromkeys(("purity", "kept_purity", "chance"), 0)
    rows, confident_rows, centres = 0, 0, None
    for step in steps:
        clusters, confident, centres = pseudo_labels(step.gradients[party].flatten(1), settings, centres)
        truth = labels[step.rows]
        shuffled = truth[torch.randperm(len(truth), generator=draw)]
        right["purity"] += _of_the_largest(clusters, truth, classes)
        right["kept_purity"] += _of_the_largest(clusters[confident], truth[confident], classes)
        right["chance"] += _of_the_largest(clusters, shuffled, classes)
        rows, confident_rows = rows + len(truth), confident_rows + int(confident.sum())
    return {
        "purity": right["purity"] / rows,
        "kept_purity": right["kept_purity"] / max(confident_rows, 1),
        "chance": right["chance"] / rows,
        "kept": confident_rows / rows,
    }


def _of_the_largest(clusters: Tensor, truth: Tensor, classes: int) -> int:
    counts = torch.bincount(clusters * classes + truth, minlength=classes * classes)
    return int(counts.reshape(classes, classes).amax(dim=1).sum())
