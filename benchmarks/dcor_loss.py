"""Distance correlation as a loss, value and gradient: our tiles against autograd through n x n matrices."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from cutlayer.kernels.dependence.distance_correlation import class_distance_correlation_sqr


def sample(n: int, width: int) -> tuple[Tensor, Tensor]:
    """Embeddings float32 (n, width) and a quarter of positives that shift them."""
    draw = torch.Generator().manual_seed(0)
    labels = (torch.rand(n, generator=draw) < 0.25).long()
    e = torch.randn(n, width, generator=draw)
    e[:, 0] += labels
    return e, labels


def tiles_side(n: int, width: int) -> Callable[[], float]:
    """Ours."""
    e, labels = sample(n, width)
    return _timed(e, lambda x: class_distance_correlation_sqr(x, labels, 2))


def naive_side(n: int, width: int) -> Callable[[], float]:
    """The matrices written out, as in the published code."""
    e, labels = sample(n, width)
    y = torch.nn.functional.one_hot(labels, 2).float()

    def dcor(x: Tensor) -> Tensor:
        a, b = _centred(x), _centred(y)
        return (a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt()

    return _timed(e, dcor)


def _centred(rows: Tensor) -> Tensor:
    norms = rows.square().sum(1)
    squared = norms[:, None] + norms - 2.0 * rows @ rows.T
    a = squared.clamp(min=1e-20).sqrt()
    return a - a.mean(0) - a.mean(1, keepdim=True) + a.mean()


def _timed(e: Tensor, loss: Callable[[Tensor], Tensor]) -> Callable[[], float]:
    def once() -> float:
        x = e.clone().requires_grad_()
        began = time.perf_counter()
        loss(x).log().backward()  # type: ignore[no-untyped-call]
        return time.perf_counter() - began

    return once
