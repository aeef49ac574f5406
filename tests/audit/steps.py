"""Sampled steps made by hand, for tests of the transcript and the auditor."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.channel.transcript import LAYER_ROWS, Step

ACTIVE, PASSIVE = "bank", "telco"


def step(epoch: int, number: int, rows: Tensor, *, width: int = 3, layers: tuple[str, ...] = (), seed: int = 0) -> Step:
    """A step of random matrices; the layers' outputs are of the first rows only."""
    draw = torch.Generator().manual_seed(hash((epoch, number, seed)) % 2**31)

    def matrix(count: int) -> Tensor:
        return torch.randn(count, width, generator=draw)

    return Step(
        epoch,
        number,
        rows,
        {PASSIVE: matrix(len(rows))},
        {PASSIVE: matrix(len(rows))},
        {name: matrix(min(len(rows), LAYER_ROWS)) for name in layers},
    )


def telling(epoch: int, number: int, rows: Tensor, truth: Tensor, strength: float) -> Step:
    """A step whose gradients are longer, and its embeddings farther along one axis, for positive rows."""
    made = step(epoch, number, rows)
    positive = truth[rows].float()
    gradient = made.gradients[PASSIVE] * (1 + strength * positive[:, None])
    embedding = made.embeddings[PASSIVE] + strength * positive[:, None]
    return Step(epoch, number, rows, {PASSIVE: embedding}, {PASSIVE: gradient}, {"layer": embedding.clone()})
