"""Moments of all pairwise distances against the matrix product X X^T alone, made in the same tiles and thrown away."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from cutlayer.kernels.dependence.pairwise import tile_size
from cutlayer_published.embedding.distance_statistics import distance_mean_and_variance, distance_statistics


def sample(n: int, width: int) -> Tensor:
    """Rows float32 (n, width)."""
    return torch.randn(n, width, generator=torch.Generator().manual_seed(0))


def statistics_side(n: int, width: int) -> Callable[[], float]:
    """Ours: mean and variance, from the upper triangle."""
    x = sample(n, width)
    return _timed(lambda: distance_statistics(x))


def loss_side(n: int, width: int) -> Callable[[], float]:
    """Ours: mean and variance with their gradient."""
    x = sample(n, width).requires_grad_()

    def once() -> None:
        mean, variance = distance_mean_and_variance(x)
        (mean + variance).backward()  # type: ignore[no-untyped-call]

    return _timed(once)


def product_side(n: int, width: int) -> Callable[[], float]:
    """The whole product, tile by tile: no tile leaves the cache."""
    x = sample(n, width)
    size = tile_size(x.device)

    def once() -> None:
        for row in range(0, n, size):
            for column in range(0, n, size):
                torch.mm(x[row : row + size], x[column : column + size].T)

    return _timed(once)


def _timed(run: Callable[[], object]) -> Callable[[], float]:
    def once() -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    return once
