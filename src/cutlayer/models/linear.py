"""The `linear` kind: one affine map of numbers and one-hot categories to the cut."""

from __future__ import annotations

from typing import Literal

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.base import BottomModel, FusedEmbedding
from cutlayer.models.sections import BottomKind, Width
from cutlayer.problem.inputs import Inputs


class LinearBottomConfig(FrozenModel):
    """An affine map of the numbers and the one-hot categories.

    `fit: {kind: pca}` sets its weights.

    Attributes:
        width: Number of columns of the embedding.
    """

    kind: Literal["linear"] = "linear"
    width: Width = 16


class LinearBottom(BottomModel):
    """An affine map of the encoded columns, each category being one column of zeros and ones.

    A one-hot column times a weight is a lookup, so that no column of zeros and ones is ever written out.
    """

    def __init__(self, config: LinearBottomConfig, inputs: Inputs) -> None:
        super().__init__()
        self.width = config.width
        self.categories = FusedEmbedding(inputs.cardinalities, config.width) if inputs.cardinalities else None
        self.numbers = nn.Linear(inputs.numbers, config.width, bias=False) if inputs.numbers else None
        self.bias = nn.Parameter(torch.zeros(config.width))

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch; see `BottomModel.forward`."""
        result: Tensor = self.bias
        if self.categories is not None:
            result = result + self.categories.by_column(codes).sum(1)
        return result if self.numbers is None else result + self.numbers(numbers)

    def assign(self, weights: Tensor, bias: Tensor) -> None:
        """Become x weights + bias.

        Args:
            weights: (d, width); rows of the categories first, in the order of their codes, then those of the numbers.
            bias: (width,).
        """
        with torch.no_grad():
            start = 0
            if self.categories is not None:
                start = len(self.categories.table.weight)
                self.categories.table.weight.copy_(weights[:start])
            if self.numbers is not None:
                self.numbers.weight.copy_(weights[start:].T)
            self.bias.copy_(bias)


LINEAR_BOTTOM = BottomKind(LinearBottomConfig, LinearBottom)
