"""The sections `fit` of a party, by kind."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.models.sections import MAX_WIDTH, Width


class DescentConfig(FrozenModel):
    """Gradient descent by Adam.

    Attributes:
        epochs: Number of passes over the rows.
        batch_size: Rows of a step, 2 or more; a last batch of one row is left out.
        lr: Learning rate.
    """

    epochs: int = Field(default=10, ge=1, le=10_000)
    batch_size: int = Field(default=256, ge=2)
    lr: float = Field(default=1e-3, gt=0)


class NoFit(FrozenModel):
    """The random initial weights, which no row has a part in."""

    kind: Literal["none"] = "none"


class PcaFit(FrozenModel):
    """Principal components; the bottom model must be `linear`."""

    kind: Literal["pca"] = "pca"


class SketchFit(FrozenModel):
    """A random sketch; the bottom model must be `linear`.

    Attributes:
        min_count: Number of training rows from which a category has a vector of its own.
        numbers: Whether the numbers themselves are in it. Without them their quantiles are, if the party's
            `features.numbers.quantiles` asks for these.
        map: `rotation` mixes all columns; `permutation` sends each in a random place and with a random sign.
    """

    kind: Literal["sketch"] = "sketch"
    min_count: int = Field(default=3, ge=1, le=2**31)
    numbers: bool = True
    map: Literal["rotation", "permutation"] = "rotation"


class AutoencoderFit(DescentConfig):
    """A decoder above the bottom model, thrown away afterwards.

    Attributes:
        hidden: Widths of the decoder's layers.
        buckets: Maximum number of classes of a category for the decoder; it reconstructs the code of a wider column
            modulo this number.
    """

    kind: Literal["autoencoder"] = "autoencoder"
    hidden: tuple[Width, ...] = (64,)
    buckets: int = Field(default=1024, ge=2, le=MAX_WIDTH)


class ContrastiveFit(DescentConfig):
    """SCARF's settings, with its defaults but for the schedule.

    Attributes:
        corruption: Share of a row's columns that are replaced.
        temperature: Temperature of the softmax over the batch.
        head: Width of both layers of the head, thrown away afterwards.
    """

    kind: Literal["contrastive"] = "contrastive"
    corruption: float = Field(default=0.6, gt=0, le=1)
    temperature: float = Field(default=1.0, gt=0)
    head: Width = 256


class GradientsFit(DescentConfig):
    """Least squares on the gradients of the warm-up epochs; needs `train.warmup_epochs`."""

    kind: Literal["gradients"] = "gradients"
