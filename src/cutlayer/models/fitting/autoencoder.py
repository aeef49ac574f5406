"""An autoencoder: the bottom model learns an embedding from which the columns can be reconstructed."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from cutlayer.errors import ConfigError
from cutlayer.models.base import MAX_WIDTH, BottomModel, Width, dense_stack
from cutlayer.models.fitting.base import Batch, Columns, DescentConfig, descend


class AutoencoderFit(DescentConfig):
    """A decoder above the bottom model, thrown away afterwards.

    Attributes:
        hidden: widths of the decoder's layers.
    """

    kind: Literal["autoencoder"] = "autoencoder"
    hidden: tuple[Width, ...] = (64,)


def fit_autoencoder(settings: AutoencoderFit, bottom: BottomModel, columns: Columns) -> tuple[float, ...]:
    """Train bottom model and decoder on the reconstruction loss, the mean over the columns.

    The loss of a number is the squared error as encoded; that of a category is the cross-entropy in nats.

    Returns:
        Mean loss of every epoch.

    Raises:
        ConfigError: too many categories. Diverged: the loss is not finite.
    """
    if columns.total > MAX_WIDTH:
        remedy = "lower features.categories.max_codes"
        raise ConfigError.expected(f"at most {MAX_WIDTH:,} columns for fit autoencoder", f"{columns.total:,}", remedy)
    widths = (bottom.width, *settings.hidden)
    decoder = nn.Sequential(
        dense_stack(bottom.width, settings.hidden, "relu"), nn.Linear(widths[-1], columns.total, bias=True)
    )

    def loss_of(rows: Tensor) -> Tensor:
        batch = columns.gather(rows)
        return reconstruction_loss(decoder(bottom(*batch)), batch, columns)

    return descend([bottom, decoder], columns, settings, loss_of, "fit autoencoder")


def reconstruction_loss(decoded: Tensor, batch: Batch, columns: Columns) -> Tensor:
    """Mean over columns and rows of squared error (numbers) and cross-entropy (categories).

    Args:
        decoded: (n, d): logits of the categories, column after column, then the numbers.
    """
    codes, numbers = batch
    cards = columns.inputs.cardinalities
    logits, values = decoded[:, : sum(cards)], decoded[:, sum(cards) :]
    parts = [functional.mse_loss(values, numbers, reduction="sum") / len(numbers)] if columns.inputs.numbers else []
    for index, scores in enumerate(torch.split(logits, list(cards), dim=1) if cards else ()):
        parts.append(functional.cross_entropy(scores, codes[:, index].long()))
    return torch.stack(parts).sum() / (len(cards) + columns.inputs.numbers)
