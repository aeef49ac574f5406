"""The table of all categorical columns against `nn.Embedding`: forward and backward pass."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.local_training import CATEGORIES, CODES
from benchmarks.pairs import Comparison, compare
from cutlayer.models.embedding_table import EmbeddingTable

DIM = 4


def embedding_table(rows: int, repeats: int) -> Comparison:
    """Time both in turn, with one thread.

    Args:
        rows: Rows of a batch.
        repeats: Number of batches of each side.
    """
    sides = (("cutlayer", _ours), ("nn.Embedding", _plain))
    return compare("embedding_table", *sides, arguments=(rows,), rows=rows, repeats=repeats, threads=1)


def _ours(rows: int) -> Callable[[], float]:
    return _passes(EmbeddingTable(CATEGORIES * CODES, DIM), rows)


def _plain(rows: int) -> Callable[[], float]:
    return _passes(nn.Embedding(CATEGORIES * CODES, DIM), rows)


def _passes(table: nn.Embedding, rows: int) -> Callable[[], float]:
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(CATEGORIES * CODES, (rows, CATEGORIES), generator=draw, dtype=torch.int32)
    upstream: Tensor = torch.randn(rows, CATEGORIES, DIM, generator=draw)

    def once() -> float:
        table.zero_grad()
        began = time.perf_counter()
        table(codes).backward(upstream)
        return time.perf_counter() - began

    return once
