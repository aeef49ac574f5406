"""The `lenet5` kind: LeNet-5 below the cut, for images of one channel or several."""

from __future__ import annotations

from typing import Literal

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, nn
from cutlayer.models.base import Dense, activation_of
from cutlayer.models.image import ConvBlock, ImageBottom
from cutlayer.models.sections import Activation, BottomKind, Cut, Width
from cutlayer.problem.inputs import Inputs


class LeNet5BottomConfig(FrozenModel):
    """LeNet-5 up to its layer F6: two convolutions of 5 x 5 with max pooling, and two dense layers.

    It reads an image (docs/how-to/images.md) of at least 12 x 12 pixels.

    Attributes:
        width: Number of columns of the embedding.
        activation: Activation after each layer.
        cut: `linear` leaves the activation out of the last layer.
    """

    kind: Literal["lenet5"] = "lenet5"
    width: Width = 84
    activation: Activation = "relu"
    cut: Cut = "activated"


class LeNet5Bottom(ImageBottom):
    """LeNet-5 up to its layer F6, which is the embedding.

    Layers: 6 maps of 5 x 5, pooled; 16 maps of 5 x 5, pooled; 120 and `width` dense. Images are padded by 2, as the
    paper pads digits of 28 x 28 to 32 x 32. They must have 12 x 12 pixels.

    Reference: LeCun, Bottou, Bengio, Haffner 1998, Gradient-based learning applied to document recognition, section
    II.B. As is usual today, and unlike the paper: the maximum in place of a trained average, ReLU in place of a scaled
    tangent, every map of the second convolution reads all maps of the first, and layer C5 is dense, since half an image
    leaves other than 5 x 5 pixels.
    """

    def __init__(self, config: LeNet5BottomConfig, inputs: Inputs) -> None:
        super().__init__(config, inputs, smallest=(12, 12))
        self.width = config.width
        channels, height, width = self.image
        activation = activation_of(config.activation)
        self.maps = nn.Sequential(ConvBlock(channels, 6, 5, 2, activation), ConvBlock(6, 16, 5, 0, activation))
        pixels = ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        last = activation_of(config.activation, config.cut)
        self.layers = nn.Sequential(Dense(16 * pixels, 120, activation), Dense(120, config.width, last))

    def embed(self, images: Tensor) -> Tensor:
        """Embed images (n, channels, height, width)."""
        result: Tensor = self.layers(self.maps(images).flatten(1))
        return result


LENET5 = BottomKind(LeNet5BottomConfig, LeNet5Bottom)
