"""MixMatch: sharpened guesses of labels, and mixed rows."""

from __future__ import annotations

from cutlayer.lazy import Tensor, functional, torch

TEMPERATURE = 0.5
ALPHA = 0.75
"""Both as in the paper, section 4.1."""


def sharpen(p: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Class probabilities raised to 1/temperature and scaled to a sum of 1 (equation 7).

    Args:
        p: Distributions, float (n, classes), rows that sum to 1.
        temperature: In (0, 1]; 1 changes nothing.

    >>> sharpen(torch.tensor([[0.75, 0.25]])).round(decimals=3).tolist()
    [[0.8999999761581421, 0.10000000149011612]]
    """
    raised = p ** (1 / temperature)
    return raised / raised.sum(dim=1, keepdim=True)


def mix_weights(n: int, alpha: float = ALPHA) -> Tensor:
    """max(w, 1 - w) of w drawn from Beta(alpha, alpha), float32 (n, 1): a mixed row stays nearer to its first part.

    One draw for each row, as in the paper (equations 8 and 9); the well-known implementation of the completion attack
    draws one for the whole batch.
    """
    w = torch.distributions.Beta(alpha, alpha).sample((n, 1))
    return torch.maximum(w, 1 - w)


def mix_up(x: Tensor, p: Tensor, weights: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Each row and its label mixed with another row and its label (equations 10 and 11).

    Args:
        x: Rows, float (n, d).
        p: Their label distributions, float (n, classes).
        weights: Weight of the row itself, float (n, 1).
        order: Index of the row that it is mixed with, int64 (n,).
    """
    return weights * x + (1 - weights) * x[order], weights * p + (1 - weights) * p[order]


def mixmatch_loss(logits: Tensor, targets: Tensor, labelled: int, weight: float) -> Tensor:
    """Cross-entropy of the labelled rows plus `weight` times the mean squared error of the rest (equations 3 to 5).

    Args:
        logits: Logits of mixed rows, float (n, classes), the labelled rows first.
        targets: Their mixed labels, float (n, classes).
        labelled: Number of labelled rows, in (0, n).
        weight: Weight of the rows whose labels are guessed.
    """
    known = functional.cross_entropy(logits[:labelled], targets[:labelled])
    guessed = functional.mse_loss(logits[labelled:].softmax(dim=1), targets[labelled:])
    return known + weight * guessed
