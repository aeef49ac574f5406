"""Attacks on labels that read all gradients of a row in a run: what defences of a single message do not expect.

They know the messages, and no label but in `known_half`. Sources: O. Li, J. Sun et al. (arXiv 2102.08504) for the
singular direction, S. Kariyappa and M. K. Qureshi (arXiv 2112.01299) for gradients as (p - y) w(e). `off_norm` is ours,
written against Marvell's published noise, which is isotropic for one class only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDS = 6
_COMPONENTS = 6


@dataclass(frozen=True)
class Releases:
    """All messages of a run to one party.

    Attributes:
        gradients: cut gradients as sent, by epoch and row, floating (epochs, n, width).
        embeddings: embeddings as they crossed, floating (epochs, n, k).
        batches: row numbers of each batch, by epoch.
    """

    gradients: Tensor
    embeddings: Tensor
    batches: list[list[Tensor]]

    def centred(self) -> Tensor:
        """Gradients less the mean of their batch, each batch at a root mean square length of 1, float64."""
        out = self.gradients.double()
        for epoch, batches in enumerate(self.batches):
            for rows in batches:
                g = out[epoch, rows] - out[epoch, rows].mean(0)
                out[epoch, rows] = g / g.square().sum(1).mean().sqrt().clamp(min=1e-300)
        return out


def leak(scores: Tensor, labels: Tensor) -> float:
    """max(AUC, 1 - AUC) of scores (n,), without ties, for labels (n,) of 0 and 1."""
    ranks = torch.empty_like(scores, dtype=torch.float64)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    positives = int(labels.sum())
    above = float(ranks[labels == 1].sum()) - positives * (positives + 1) / 2
    auc = above / (positives * (len(labels) - positives))
    return max(auc, 1.0 - auc)


def off_norm(of: Releases) -> Tensor:
    """Log length off the first singular direction of the batch, mean over the epochs (n,)."""
    total = torch.zeros(of.gradients.shape[1], dtype=torch.float64)
    g = of.centred()
    for epoch, rows in _each(of):
        first = _first_direction(g[epoch, rows])
        off = g[epoch, rows] - (g[epoch, rows] @ first)[:, None] * first
        total[rows] += off.norm(dim=1).clamp(min=1e-300).log()
    return total


def joint_spectral(of: Releases) -> Tensor:
    """Scores (n, epochs) along the direction that agrees best with the rows' scores in all other epochs."""
    g = of.centred()
    start = torch.stack([epoch @ _first_direction(epoch) for epoch in g], 1)
    # The rarer class has the longer gradients, so the third moment gives the sign.
    start *= start.pow(3).sum(0).sign()
    return _refined(start / start.std(0), lambda epoch: g[epoch], ridge=0.0)


def bilinear(of: Releases) -> Tensor:
    """As `joint_spectral` on the products of gradient and embedding: the sign of (p - y) w(e), scores (n, epochs)."""
    g = of.centred()

    def products(epoch: int) -> Tensor:
        e = of.embeddings[epoch].double()
        e = e - e.mean(0)
        components = torch.linalg.eigh(e.T @ e).eigenvectors[:, -_COMPONENTS:]
        e = e @ components
        e = torch.cat([torch.ones(len(e), 1, dtype=e.dtype), (e / e.std(0).clamp(min=1e-12)).clamp(-5, 5)], 1)
        x = g[epoch] / g[epoch].std(0).clamp(min=1e-12)
        return (x[:, :, None] * e[:, None, :]).flatten(1)

    return _refined(joint_spectral(of), products, ridge=50.0)


def known_half(of: Releases, labels: Tensor) -> Tensor:
    """A reading that knows every other row's label: ridge on gradients, their squares and lengths, summed over epochs.

    What the messages say at most to a linear reader, and no attack: returns the scores of the rows that it does not
    know, (n // 2,).
    """
    known = torch.arange(len(labels)) % 2 == 0
    target = labels[known].double() - labels[known].double().mean()
    total = torch.zeros(int((~known).sum()), dtype=torch.float64)
    for g in of.centred():
        x = torch.cat([g, g.square(), g.norm(dim=1, keepdim=True)], 1)
        x = (x - x[known].mean(0)) / x[known].std(0).clamp(min=1e-12)
        a = x[known]
        gram = a.T @ a + 30.0 * torch.eye(a.shape[1], dtype=a.dtype)
        total += x[~known] @ torch.linalg.solve(gram, a.T @ target)
    return total


def without_labels(of: Releases, labels: Tensor) -> dict[str, float]:
    """Leak AUC of each attack that knows no label."""
    scores = {"off_norm": off_norm(of), "joint": joint_spectral(of).sum(1), "bilinear": bilinear(of).sum(1)}
    return {name: leak(values, labels) for name, values in scores.items()}


def _refined(scores: Tensor, features: Callable[[int], Tensor], ridge: float) -> Tensor:
    projections = [_crossed(features(epoch), ridge) for epoch in range(scores.shape[1])]
    for _ in range(_ROUNDS):
        total = scores.sum(1)
        targets = [total - scores[:, epoch] if len(projections) > 1 else total for epoch in range(len(projections))]
        new = torch.stack([project(target) for project, target in zip(projections, targets, strict=True)], 1)
        scores = new / new.std(0).clamp(min=1e-300)
    return scores


def _crossed(x: Tensor, ridge: float) -> Callable[[Tensor], Tensor]:
    """Projects each half of the rows by weights of the other half: no row's own target is in its score."""
    halves = []
    for half in (0, 1):
        others = x[1 - half :: 2]
        a = others - others.mean(0)
        gram = a.T @ a + ridge * torch.eye(a.shape[1], dtype=a.dtype) if ridge else None
        halves.append((x[half::2] - others.mean(0), a, gram))

    def project(target: Tensor) -> Tensor:
        out = torch.zeros_like(target)
        for half, (own, a, gram) in enumerate(halves):
            b = target[1 - half :: 2]
            weights = a.T @ (b - b.mean())
            out[half::2] = own @ (weights if gram is None else torch.linalg.solve(gram, weights))
        return out

    return project


def _first_direction(g: Tensor) -> Tensor:
    """First singular direction of centred rows, a unit vector (width,)."""
    direction: Tensor = torch.linalg.eigh(g.T @ g).eigenvectors[:, -1]
    return direction


def _each(of: Releases) -> Iterator[tuple[int, Tensor]]:
    for epoch, batches in enumerate(of.batches):
        for rows in batches:
            yield epoch, rows
