"""The job of `scale_rows` in pandas and one loop: the tables are joined, encoded and trained on in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.scale_tables import BATCH, CATEGORIES, NUMBERS
from cutlayer.models import FusedEmbedding

TEST_SHARE = 0.2
"""Test and validation rows of the job together."""


class Plain(nn.Module):
    """The layers of the job: two bottom models and a top model."""

    def __init__(self, cardinalities: tuple[int, ...]) -> None:
        super().__init__()
        self.table = FusedEmbedding(cardinalities, 4)
        self.network = nn.Sequential(
            nn.Linear(CATEGORIES * 4, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)
        )
        self.publisher = nn.Sequential(
            nn.Linear(NUMBERS, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)
        )
        self.top = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, codes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Logits (n,)."""
        both = torch.cat([self.publisher(numbers), self.network(self.table(codes))], dim=1)
        result: torch.Tensor = self.top(both).squeeze(1)
        return result


def plain_loop(folder: Path, stage: Callable[[str], AbstractContextManager[None]]) -> int:
    """Read, align, encode, and train an epoch; returns the number of training rows."""
    with stage("read"):
        publisher = pd.read_parquet(folder / "publisher.parquet")
        network = pd.read_parquet(folder / "network.parquet")
    with stage("align"):
        joined = publisher.merge(network, on="id")
        del publisher, network
    with stage("encode"):
        codes = np.stack([pd.factorize(joined[f"C{i + 1}"])[0] + 2 for i in range(CATEGORIES)], axis=1)
        numbers = np.log1p(joined[[f"I{i + 1}" for i in range(NUMBERS)]].to_numpy(dtype=np.float32))
        numbers = np.nan_to_num((numbers - np.nanmean(numbers, axis=0)) / np.nanstd(numbers, axis=0))
        labels = torch.from_numpy(joined["label"].to_numpy(dtype=np.float32))
        del joined
        inputs = torch.from_numpy(codes.astype(np.int32)), torch.from_numpy(numbers)
    model = Plain(tuple((codes.max(axis=0) + 1).tolist()))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    loss_of = nn.BCEWithLogitsLoss()

    def step(rows: torch.Tensor) -> None:
        loss = loss_of(model(*(matrix.index_select(0, rows) for matrix in inputs)), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    training = torch.randperm(len(labels))[: int(len(labels) * (1 - TEST_SHARE))]
    step(training[:BATCH])  # the first step loads further modules
    with stage("train"):
        for rows in torch.split(training, BATCH):
            step(rows)
    return len(training)
