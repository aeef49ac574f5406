"""The network of the images of the clip-bound study: maps of two convolutions, flattened, are the embedding."""

from __future__ import annotations

from torch import Tensor, nn

from cutlayer.errors import ConfigError
from cutlayer.models.image import ConvBlock
from cutlayer.problem.inputs import Inputs

CHANNELS = (16, 32)


class Maps(nn.Module):
    """Two convolutions of 3 x 3, each with a ReLU and 2 x 2 pooling, and no dense layer below the cut.

    Args:
        inputs: An image and no other column.

    Raises:
        ConfigError: there is no image.
    """

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        if inputs.image is None:
            raise ConfigError.expected("an image", "columns")
        self.image = inputs.image
        channels, height, width = inputs.image
        first, second = CHANNELS
        self.maps = nn.Sequential(ConvBlock(channels, first, 3, 1, nn.ReLU), ConvBlock(first, second, 3, 1, nn.ReLU))
        self.width = second * (height // 4) * (width // 4)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Maps of images whose pixels are `numbers` (n, channels x height x width), float32; (n, width)."""
        result: Tensor = self.maps(numbers.reshape(numbers.shape[0], *self.image)).flatten(1)
        return result
