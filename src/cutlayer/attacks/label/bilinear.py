"""The bilinear attack: a gradient is a class residual times a function of the embedding that was sent."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.history import (
    Gradients,
    HistoryAttack,
    HistoryView,
    agreement,
    oriented,
    run_scores,
    unit_variance,
)
from cutlayer.attacks.label.joint_spectral import joint_scores
from cutlayer.attacks.label.mixture import log_odds
from cutlayer.errors import NotApplicable

ROUNDS = 3
RIDGE = 20.0
_FEW_ROWS = 2000  # blocks below this size get fewer products
_CLIP_GRADIENT, _CLIP_EMBEDDING = 6.0, 5.0


class Bilinear(HistoryAttack):
    """Score a row by a ridge regression on the products of its gradient and its embedding.

    With a top model that is smooth in the embedding e, the gradient is g = (p - y) w(e): the sign of the residual is in
    every direction in which w(e) varies, and noise in one direction leaves it in all others. The regression explains
    the score of the row's other epochs by the whitened top directions of g and their products with those of e. It is
    fitted in two folds of each batch, so that no row's own target is in its fit. `mixture` has the log-odds of a
    two-component mixture over the epochs.

    Reference: the residual form of the gradient is that of Liu, Zou et al. 2021 (arXiv 2112.05409) and of Kariyappa and
    Qureshi 2021 (arXiv 2112.01299); the regression is this project's.
    """

    name = "bilinear"
    reference = "Kariyappa and Qureshi 2021 (arXiv 2112.01299), by regression over epochs"
    reads = (Target.GRADIENT,)
    needs = frozenset({Need.POSITIVE_SHARE})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No epoch has both gradients and embeddings.
        """
        share, seen = knowledge.share, view.gradients.seen
        variants = [
            _regressed(view, blocks, share) for blocks in (view.gradients.blocks, view.gradients.whole_epochs())
        ]
        best, other = sorted(variants, key=agreement, reverse=True)
        mean, other_mean = (oriented(scores.sum(dim=1), share) for scores in (best, other))
        mixture = log_odds(best, seen, share)
        return run_scores(view, mean, seen, mixture=mixture, other_blocks=other_mean)


def _regressed(view: HistoryView, blocks: Sequence[Sequence[Tensor]], share: float) -> Tensor:
    """Scores by epoch, float64 (n, epochs), with a regression for each block."""
    gradients = view.gradients
    products = _products(view, gradients, blocks)
    scores = joint_scores(view, share)[0]
    for _ in range(ROUNDS):
        total = scores.sum(dim=1)
        updated = torch.zeros_like(scores)
        for epoch, parts in enumerate(blocks):
            rest = total - scores[:, epoch] if scores.shape[1] > 1 else total
            rest = unit_variance(rest - rest.mean())
            for part in parts:
                target = rest[part] - rest[part].mean()
                fitted = _two_folds(products[epoch][part].double(), target)
                correlation = float(torch.corrcoef(torch.stack([fitted, target]))[0, 1].nan_to_num())
                updated[part, epoch] = unit_variance(fitted) * max(correlation, 1e-3)
        scores = updated
    return scores


def _two_folds(x: Tensor, target: Tensor) -> Tensor:
    """Ridge predictions of each row (n,) from the rows of the other fold."""
    predictions = torch.zeros(len(x), dtype=torch.float64)
    fold = torch.arange(len(x)) % 2
    for own in (0, 1):
        others = x[fold != own]
        normal = others.T @ others + RIDGE * torch.eye(x.shape[1], dtype=torch.float64)
        predictions[fold == own] = x[fold == own] @ torch.linalg.solve(normal, others.T @ target[fold != own])
    return predictions


def _products(view: HistoryView, gradients: Gradients, blocks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Whitened directions of g and their products with those of e, float32 (n, features) by epoch."""
    embeddings = {epoch.epoch: matrix for epoch, matrix in view.matrices(Target.EMBEDDING)}
    if missing := set(gradients.epochs) - set(embeddings):
        wanted = "the embeddings of every epoch with gradients"
        raise NotApplicable.expected(wanted, f"none of epoch {min(missing) + 1}")
    largest = max(len(part) for parts in blocks for part in parts)
    of_gradient, of_embedding = (6, 4) if largest < _FEW_ROWS else (12, 6)
    made = []
    for number, parts in enumerate(blocks):
        own = _whitened(embeddings[gradients.epochs[number]], of_embedding, _CLIP_EMBEDDING)
        features = torch.zeros(len(own), of_gradient * (1 + own.shape[1]))
        for part in parts:
            top = _whitened(gradients.matrices[number][part], of_gradient, _CLIP_GRADIENT)
            both = torch.cat([top, (top[:, :, None] * own[part][:, None, :]).flatten(1)], dim=1)
            features[part, : both.shape[1]] = both
        made.append(features)
    return made


def _whitened(x: Tensor, directions: int, limit: float) -> Tensor:
    """Coordinates along the top directions, of unit variance and clipped, float32 (n, at most `directions`)."""
    moved = (x - x.mean(dim=0)).double()
    values, vectors = torch.linalg.eigh(moved.T @ moved / len(moved))
    spread = values[-directions:].flip(0).clamp_min(1e-12 * float(values[-1])).sqrt()
    along: Tensor = (moved @ vectors[:, -directions:].flip(1)) / (spread + torch.finfo(torch.float64).tiny)
    return along.clamp(-limit, limit).float()
