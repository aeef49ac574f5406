"""The `resnet18` kind: a residual network of 18 layers below the cut, for images of about 32 x 32 pixels and halves."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, nn
from cutlayer.models.base import Block
from cutlayer.models.image import ImageBottom
from cutlayer.models.sections import BottomKind, Width
from cutlayer.problem.inputs import Inputs

_BLOCKS = 2
_STRIDES = (1, 2, 2, 2)
_GROUPS = 32

Norm = Literal["batch", "group", "none"]
"""Normalisation after each convolution."""


class ResNet18BottomConfig(FrozenModel):
    """ResNet-18 for small images: four stages of two residual blocks.

    Its stem is 3 x 3 without pooling, and it has no classifier. It reads an image (docs/how-to/images.md) of at least
    9 x 9 pixels. `norm: batch` makes a row change the embeddings of the other rows of its batch. `group` normalises
    each row by its own maps, in 32 groups of channels, or fewer so that each has two or more. `none` has biases in
    place of it, and nothing bounds the embedding.

    Attributes:
        channels: Number of channels of the first stage; each further stage has twice those of the stage before.
        width: Number of columns of the embedding; by default the embedding is the mean of each channel of the last
            stage, 8 times `channels` columns.
        norm: `batch` as in the paper, `group`, or `none`; the last two embed every row on its own, as the protections
            `dp_embedding` and `dp_bottom` need it.
    """

    kind: Literal["resnet18"] = "resnet18"
    channels: int = Field(default=64, ge=1, le=1024)
    width: Width | None = None
    norm: Norm = "batch"


class ResNet18Bottom(ImageBottom):
    """ResNet-18 without its classifier, with the stem for small images.

    The stem is one convolution of 3 x 3 with stride 1 and no pooling. With 64 channels and no `width` it has the
    11,168,832 parameters of the usual CIFAR ResNet-18 for colour images. The image must have 9 x 9 pixels, so that
    even a batch of one row has a variance to normalise by. Batch normalisation makes the embedding of a training row
    depend on the other rows of its batch; group normalisation takes mean and variance of a row's own maps, over 32
    groups of channels, or as many as leave two channels or more in each. Without normalisation the convolutions have
    biases, which start at 0; nothing bounds the embedding then.

    Reference: He, Zhang, Ren, Sun 2016, Deep residual learning for image recognition (arXiv 1512.03385), table 1,
    column "18-layer", and section 4.2 for the stem; where a block changes the shape its shortcut is a projection
    (option B). Wu and He 2018, Group normalization (arXiv 1803.08494), section 3, for `norm: group`.
    """

    def __init__(self, config: ResNet18BottomConfig, inputs: Inputs) -> None:
        super().__init__(config, inputs, smallest=(9, 9))
        first = config.channels
        self.stem = ConvNorm(self.image[0], first, 3, 1, norm=config.norm)
        blocks: list[nn.Module] = []
        channels_in = first
        for stage, stride in enumerate(_STRIDES):
            channels = first * 2**stage
            for block in range(_BLOCKS):
                blocks.append(Residual(channels_in, channels, stride if block == 0 else 1, norm=config.norm))
                channels_in = channels
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.width = config.width or channels_in
        self.projection = nn.Linear(channels_in, config.width) if config.width else None
        self._initialise()

    def embed(self, images: Tensor) -> Tensor:
        """Embed images (n, channels, height, width)."""
        if self.precision == "bf16" and images.is_cuda:  # the layout of a GPU's units for products in bfloat16
            images = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        means: Tensor = self.pool(self.blocks(self.stem(images).relu())).flatten(1)
        return means if self.projection is None else self.projection(means)

    def _initialise(self) -> None:
        """Weights of the convolutions by the fan-out rule of He et al. 2015 (arXiv 1502.01852)."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # as `EmbeddingTable.reset_parameters`
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class ConvNorm(Block):
    """A convolution that keeps the size up to its stride, and what normalises its maps; the bias is that one's."""

    def __init__(self, channels_in: int, channels_out: int, side: int, stride: int, *, norm: Norm) -> None:
        super().__init__()
        bias = norm == "none"
        self.convolution = nn.Conv2d(channels_in, channels_out, side, stride, padding=side // 2, bias=bias)
        self.norm = _normalisation(norm, channels_out)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (n, channels_out, h / stride, w / stride), normalised unless `norm` is `none`."""
        result: Tensor = self.norm(self.convolution(x))
        return result


def _normalisation(norm: Norm, channels: int) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    groups = math.gcd(_GROUPS, max(channels // 2, 1))
    return nn.GroupNorm(groups, channels) if norm == "group" else nn.Identity()


class Residual(Block):
    """Two convolutions of 3 x 3 with a shortcut, one layer to readers of layer outputs."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, *, norm: Norm) -> None:
        super().__init__()
        self.first = ConvNorm(channels_in, channels_out, 3, stride, norm=norm)
        self.second = ConvNorm(channels_out, channels_out, 3, 1, norm=norm)
        same = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if same else ConvNorm(channels_in, channels_out, 1, stride, norm=norm)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (n, channels_in, h, w) to (n, channels_out, h / stride, w / stride)."""
        result: Tensor = (self.second(self.first(x).relu()) + self.shortcut(x)).relu()
        return result


RESNET18 = BottomKind(
    ResNet18BottomConfig, ResNet18Bottom, lambda section: section.width or 2 ** (len(_STRIDES) - 1) * section.channels
)
