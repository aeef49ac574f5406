"""Base of the bottom models over an image."""

from __future__ import annotations

from abc import abstractmethod

from cutlayer.config import FrozenModel
from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.base import Block, BottomModel
from cutlayer.problem.inputs import Inputs

EVALUATION_ROWS = 256
"""Rows that are embedded at once outside of training: the maps of thousands would take gigabytes."""


class ConvBlock(Block):
    """A convolution, 2 x 2 max pooling and an activation, one layer to readers of layer outputs."""

    def __init__(
        self, channels_in: int, channels_out: int, side: int, padding: int, activation: type[nn.Module]
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels_in, channels_out, side, padding=padding)
        self.activation = activation()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (n, channels_in, h, w) to (n, channels_out, h', w')."""
        maps: Tensor = self.convolution(x)
        # Channels last pools eight times as fast; by permutation, since torch.func knows no memory format.
        result: Tensor = self.activation(self.pool(maps.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)))
        return result


class ImageBottom(BottomModel):
    """A bottom model that reads one image and nothing else; its author writes `embed`.

    Args:
        config: Names the kind, for messages.
        inputs: Columns of the party.
        smallest: Height and width that the image must have at least.
    """

    def __init__(self, config: FrozenModel, inputs: Inputs, smallest: tuple[int, int]) -> None:
        super().__init__()
        kind = str(getattr(config, "kind", type(config).__name__))
        if inputs.image is None:
            wanted = f"an image for a bottom model of kind {kind}"
            raise ConfigError.expected(wanted, "columns", "use mlp, wide_deep or tabular, or provide images")
        channels, height, width = inputs.image
        others = inputs.numbers - channels * height * width + len(inputs.cardinalities)
        if others:
            wanted = f"an image and no other column for a bottom model of kind {kind}"
            raise ConfigError.expected(wanted, f"{others} more", "name the image alone in features.include, or use mlp")
        if height < smallest[0] or width < smallest[1]:
            wanted = f"an image of at least {smallest[0]} x {smallest[1]} pixels for a bottom model of kind {kind}"
            raise ConfigError.expected(wanted, f"{height} x {width}", "use mlp, or pad the images")
        self.image = inputs.image

    @abstractmethod
    def embed(self, images: Tensor) -> Tensor:
        """Embed images (n, channels, height, width), float32; returns (n, width)."""

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch; see `BottomModel.forward`."""
        # Not `len`, which torch.export takes for a constant.
        images = numbers.reshape(numbers.shape[0], *self.image)
        if self.training or torch.compiler.is_compiling():  # an exported program takes any number of rows
            return self.embed(images)
        return torch.cat([self.embed(part) for part in torch.split(images, EVALUATION_ROWS)])
