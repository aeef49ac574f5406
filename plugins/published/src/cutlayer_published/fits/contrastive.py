"""Contrastive fitting: a row and its corrupted copy shall be embedded alike, and other rows elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cutlayer.lazy import Tensor, functional, nn, torch
from cutlayer.models.bottom_fits.base import Batch, DescentConfig, Fit, TrainingColumns, descend
from cutlayer.models.sections import Width

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel


class ContrastiveFit(DescentConfig):
    """SCARF: a row and a copy of it, with some columns taken from other rows, get similar embeddings.

    Other rows get different embeddings. The defaults are those of SCARF but for the schedule.

    Attributes:
        corruption: Share of a row's columns that are replaced.
        temperature: Temperature of the softmax over the batch.
        head: Width of both layers of the head, thrown away afterwards.
    """

    kind: Literal["contrastive"] = "contrastive"
    corruption: float = Field(default=0.6, gt=0, le=1)
    temperature: float = Field(default=1.0, gt=0)
    head: Width = 256


def fit_contrastive(settings: ContrastiveFit, bottom: BottomModel, columns: TrainingColumns) -> tuple[float, ...]:
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
        copy = corrupt_columns(batch, columns.gather(drawn), settings.corruption)
        first, second = (functional.normalize(head(bottom(*view))) for view in (batch, copy))
        return functional.cross_entropy(first @ second.T / settings.temperature, torch.arange(len(first)))

    return descend([bottom, head], columns, settings, loss_of, "fit contrastive")


def corrupt_columns(batch: Batch, pool: Batch, share: float) -> Batch:
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


CONTRASTIVE = Fit(ContrastiveFit, fit_contrastive)
