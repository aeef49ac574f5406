"""The block shuffle trains as well as the shuffle of all rows, on rows of Criteo in the order of their digests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from cutlayer.config import FeaturesConfig, TableConfig
from cutlayer.data import shuffling
from cutlayer.data.align import intersect
from cutlayer.data.batches import Schedule
from cutlayer.data.party_data import PartyTable
from cutlayer.kernels.fits.optimizers import Adam

FILE = Path(__file__).parents[2].parent / "shared" / "data" / "criteo" / "criteo_train_137k.tsv.gz"
TRAINING, HELD_OUT, BATCH, SEEDS = 20_000, 10_000, 128, range(4)
STUCK = 800


@pytest.fixture(scope="module")
def criteo() -> tuple[Tensor, Tensor, Tensor]:
    """Codes and numbers of 30,000 rows in the common order, and their labels."""
    if not FILE.exists():
        pytest.skip("the Criteo sample is not at shared/data beside the checkout")
    config = TableConfig(path=FILE, format="csv", delimiter="\t", columns=("label", "I1..I13", "C1..C26"))
    features = FeaturesConfig(include=("I1..I13", "C1..C26"), categorical=("C1..C26",))
    features = features.model_copy(
        update={
            "numbers": features.numbers.model_copy(update={"transform": "log1p"}),
            "categories": features.categories.model_copy(update={"max_codes": 1000}),
        }
    )
    table = PartyTable("shop", config, "@row", "label", features)
    positions = intersect({"shop": table.digests})["shop"][: TRAINING + HELD_OUT]
    prepared = table.prepare(positions, np.arange(TRAINING))
    assert prepared.store is not None
    assert prepared.labels is not None
    codes, numbers = prepared.store.gather(torch.arange(TRAINING + HELD_OUT))
    return codes + 1000 * torch.arange(26, dtype=torch.int32), numbers, prepared.labels.values.float()


def auc(data: tuple[Tensor, Tensor, Tensor], seed: int, shuffle: str) -> float:
    """AUC of a logistic regression on codes and numbers, trained by Adam on gradients that are written out."""
    codes, numbers, labels = data
    table, weights = (torch.zeros(width, requires_grad=True) for width in (26_000, 13))
    gradients = table.grad, weights.grad = torch.zeros(26_000), torch.zeros(13)
    optimizer = Adam([table, weights], lr=0.01, fused=True)
    schedule = Schedule(np.arange(TRAINING), BATCH, seed, "rows" if shuffle == "rows" else "blocks")
    for epoch in range(2):
        for rows in schedule.epoch(epoch):
            rows = rows % STUCK if shuffle == "stuck" else rows
            own, x = codes[rows], numbers[rows]
            errors = ((table.detach()[own].sum(dim=1) + x @ weights.detach()).sigmoid() - labels[rows]) / len(rows)
            gradients[0].zero_().index_add_(0, own.flatten(), errors.repeat_interleave(own.shape[1]))
            torch.mv(x.T, errors, out=gradients[1])
            optimizer.step()
    scores = table.detach()[codes[TRAINING:]].sum(dim=1) + numbers[TRAINING:] @ weights.detach()
    return float(roc_auc_score(labels[TRAINING:], scores))


@pytest.mark.real_data
def test_blocks_train_as_well_as_rows(criteo: tuple[Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 800 rows, 4 % of the rows: as 64,000 of 1.6 million."""
    monkeypatch.setattr(shuffling, "BLOCK_ROWS", 50)
    monkeypatch.setattr(shuffling, "WINDOW_BLOCKS", 16)
    rows, blocks = (np.array([auc(criteo, seed, shuffle) for seed in SEEDS]) for shuffle in ("rows", "blocks"))
    noise = np.sqrt((rows.var(ddof=1) + blocks.var(ddof=1)) / len(SEEDS))
    assert abs(rows.mean() - blocks.mean()) < max(4 * noise, 0.002), (rows, blocks)
    assert rows.mean() > 0.7
    assert auc(criteo, 0, "stuck") < rows.mean() - 0.02, "a window that never moves trains worse"
