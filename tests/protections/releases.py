"""Several epochs of a toy's protected cut gradients, whose labels nothing else reveals."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.release_attacks import Releases, leak, without_labels
from tests.protections.setup import protection, view

ROWS, BATCH, EPOCHS, SHARE = 1500, 500, 8, 0.25


@dataclass(frozen=True)
class Toy:
    """What the party got, w(e_i) of the top model (n, width), and the labels (n,)."""

    releases: Releases
    directions: Tensor
    labels: Tensor


def trained(name, options, seed=0, spread=0.25, planned=EPOCHS):
    """Gradients (p_i - y_i) w(e_i) of a model that fits its training rows better in each epoch, protected.

    `spread` is how much w varies with the embedding, `planned` the number of epochs that the protection is set up for.
    """
    draw = torch.Generator().manual_seed(seed)
    labels = (torch.rand(ROWS, generator=draw) < SHARE).long()
    e = torch.randn(ROWS, 3, generator=draw)
    w = torch.tensor([1.0, -0.6, 0.3, 0.1, 0.0, 0.0]) + spread * e @ torch.randn(3, 6, generator=draw)
    easy = torch.rand(ROWS, generator=draw)
    built = protection(name, options, epochs=planned, training=torch.arange(ROWS))
    sent, batches = torch.zeros(EPOCHS, ROWS, 6), []
    for epoch in range(EPOCHS):
        progress = 0.6 * easy * epoch / EPOCHS
        g = ((1 - progress) * (SHARE - labels))[:, None] * w / BATCH
        batches.append(list(torch.randperm(ROWS, generator=draw).split(BATCH)))
        for number, rows in enumerate(batches[-1]):
            step = replace(view(labels[rows], epoch * (ROWS // BATCH) + number), rows=rows)
            sent[epoch, rows] = built.gradient_out(g[rows], "telco", step)
    return Toy(Releases(sent, e.expand(EPOCHS, ROWS, 3), batches), w.double(), labels)


def known_model(toy):
    """Likelihood ratio of the signs of w(e_i), which a party that knows the top model computes; sum over epochs."""
    total = torch.zeros(ROWS, dtype=torch.float64)
    for epoch, batches in enumerate(toy.releases.batches):
        for rows in batches:
            g = toy.releases.gradients[epoch, rows].double()
            if not bool(g.any()):
                continue  # withheld
            covariance = g.T @ g / len(g)
            covariance += 1e-9 * covariance.trace() * torch.eye(len(covariance), dtype=g.dtype)
            total[rows] += (torch.linalg.solve(covariance, g.T).T * toy.directions[rows]).sum(1)
    return total


def worst_leak(toy):
    """Leak AUC of the strongest attack."""
    read = without_labels(toy.releases, toy.labels)
    return max(*read.values(), leak(known_model(toy), toy.labels))
