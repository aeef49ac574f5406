"""An autoencoder: the bottom model learns an embedding from which the columns can be reconstructed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, functional, nn, torch
from cutlayer.models.bottom_fits.base import Batch, DescentConfig, Fit, TrainingColumns, descend
from cutlayer.models.sections import MAX_WIDTH, Width

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel


class AutoencoderFit(DescentConfig):
    """A decoder on top of the bottom model reconstructs the columns, and is then discarded.

    The loss is the squared error of numbers, and the cross-entropy of categories.

    Attributes:
        hidden: Widths of the decoder's layers.
        buckets: Maximum number of classes of a category for the decoder; it reconstructs the code of a wider column
            modulo this number.
    """

    kind: Literal["autoencoder"] = "autoencoder"
    hidden: tuple[Width, ...] = (64,)
    buckets: int = Field(default=1024, ge=2, le=MAX_WIDTH)


def fit_autoencoder(settings: AutoencoderFit, bottom: BottomModel, columns: TrainingColumns) -> tuple[float, ...]:
    """Train bottom model and decoder on the reconstruction loss, the mean over the columns.

    The loss of a number is the squared error as encoded; that of a category is the cross-entropy in nats, of its code
    modulo `buckets`. So the decoder's size does not grow with the number of categories.

    Returns:
        Mean loss of every epoch.

    Raises:
        ConfigError: Too many columns.
        Diverged: The loss is not finite.
    """
    from cutlayer.models.base import dense_stack

    classes = tuple(min(count, settings.buckets) for count in columns.inputs.cardinalities)
    outputs = sum(classes) + columns.inputs.numbers
    if outputs > MAX_WIDTH:
        wanted = f"at most {MAX_WIDTH:,} outputs of the decoder for fit autoencoder"
        raise ConfigError.expected(wanted, f"{outputs:,}", "lower fit.buckets")
    widths = (bottom.width, *settings.hidden)
    decoder = nn.Sequential(dense_stack(bottom.width, settings.hidden, "relu"), nn.Linear(widths[-1], outputs))

    def loss_of(rows: Tensor) -> Tensor:
        batch = columns.gather(rows)
        return reconstruction_loss(decoder(bottom(*batch)), batch, classes)

    return descend([bottom, decoder], columns, settings, loss_of, "fit autoencoder")


def reconstruction_loss(decoded: Tensor, batch: Batch, classes: tuple[int, ...]) -> Tensor:
    """Mean over columns and rows of squared error (numbers) and cross-entropy (categories, modulo their classes).

    Args:
        decoded: (n, d): logits of the classes, column after column, then the numbers.
        batch: Codes and numbers of the same rows.
        classes: Number of classes of each categorical column.
    """
    codes, numbers = batch
    logits, values = decoded[:, : sum(classes)], decoded[:, sum(classes) :]
    parts = [functional.mse_loss(values, numbers, reduction="sum") / len(numbers)] if numbers.shape[1] else []
    for index, scores in enumerate(torch.split(logits, list(classes), dim=1) if classes else ()):
        parts.append(functional.cross_entropy(scores, codes[:, index].long() % classes[index]))
    return torch.stack(parts).sum() / (len(classes) + numbers.shape[1])


AUTOENCODER = Fit(AutoencoderFit, fit_autoencoder)
