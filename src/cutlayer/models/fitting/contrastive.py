"""Contrastive fitting: a row and its corrupted copy shall be embedded alike, and other rows elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from cutlayer.models.base import BottomModel
from cutlayer.models.fitting.base import Batch, Columns, descend
from cutlayer.models.fitting.sections import ContrastiveFit


def fit_contrastive(settings: ContrastiveFit, bottom: BottomModel, columns: Columns) -> tuple[float, ...]:
    """Train bottom model and head by InfoNCE between rows and their corrupted copies.

    In each copy the same number of columns, drawn at random, get their value from training rows drawn at random, each
    column from a row of its own. Not the paper's: the loss leaves out its constant log n.

    Returns:
        Mean loss of every epoch, in nats; chance is the logarithm of the rows in a batch.

    Raises:
        Diverged: The loss is not finite.

    Reference: Bahri, Jiang, Tay and Metzler 2022, SCARF: self-supervised contrastive learning using random feature
    corruption (arXiv 2106.15147), algorithm 1.
    """
    head = nn.Sequential(nn.Linear(bottom.width, settings.head), nn.ReLU(), nn.Linear(settings.head, settings.head))

    def loss_of(rows: Tensor) -> Tensor:
        batch = columns.gather(rows)
        drawn = columns.rows[torch.randint(len(columns.rows), (len(batch[1]),))]
        copy = corrupted(batch, columns.gather(drawn), settings.corruption)
        first, second = (functional.normalize(head(bottom(*view))) for view in (batch, copy))
        return functional.cross_entropy(first @ second.T / settings.temperature, torch.arange(len(first)))

    return descend([bottom, head], columns, settings, loss_of, "fit contrastive")


def corrupted(batch: Batch, pool: Batch, share: float) -> Batch:
    """The batch with a share of each row's columns (rounded down, one at least) replaced by values out of `pool`."""
    codes, numbers = batch
    count = codes.shape[1] + numbers.shape[1]
    replaced = torch.rand(len(numbers), count).argsort(1).argsort(1) < max(1, int(share * count))
    source = torch.randint(len(pool[1]), (len(numbers), count))
    mask_codes, mask_numbers = torch.split(replaced, [codes.shape[1], numbers.shape[1]], dim=1)
    of_codes, of_numbers = torch.split(source, [codes.shape[1], numbers.shape[1]], dim=1)
    return (
        torch.where(mask_codes, pool[0].gather(0, of_codes), codes),
        torch.where(mask_numbers, pool[1].gather(0, of_numbers), numbers),
    )
