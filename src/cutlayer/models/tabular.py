"""The `tabular` kind: dense layers over scaled inputs and periodic embeddings of numbers."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.base import Block, BottomModel, FusedEmbedding, dense_stack
from cutlayer.models.sections import BottomKind, Cut, Width, Widths
from cutlayer.problem.inputs import Inputs

TabularActivation = Literal["selu", "mish", "relu", "gelu", "tanh", "silu"]


class TabularBottomConfig(FrozenModel):
    """Dense layers over embedded categories, numbers, and periodic embeddings of the numbers.

    For tables with numeric columns, below any top model, in the manner of [RealMLP](https://arxiv.org/abs/2407.04491).
    Each number is followed by [learned combinations of cosines of it](https://arxiv.org/abs/2203.05556), and each input
    has a learned factor. It is measured against `mlp` (docs/results/utility.md).

    The vectors of categories begin at zero, and a category that few training rows have stays near it. With `release:
    once` and without a `fit` all stay there, so that categories are not released at all.

    Attributes:
        hidden: Widths of the layers; the last is the width of the cut.
        embedding: Columns per categorical column.
        frequencies: Number of cosines per numeric column.
        number_embedding: Number of learned combinations of its cosines per numeric column, besides the number itself.
        sigma: Standard deviation of the initial frequencies, in periods per unit of a scaled number; above 0. The
            larger it is, the closer may values be that the model tells apart.
        activation: Activation function.
        cut: `linear` leaves the activation out of the last layer.
        dropout: Share of the inputs of the first layer set to 0 in training. `dp_bottom` needs 0.
    """

    kind: Literal["tabular"] = "tabular"
    hidden: Widths = Field(default=(64, 32), min_length=1)
    embedding: Width = 4
    frequencies: Width = 16
    number_embedding: Width = 3
    sigma: float = Field(default=0.5, gt=0, le=1000)
    activation: TabularActivation = "selu"
    cut: Cut = "activated"
    dropout: float = Field(default=0.15, ge=0, lt=1)


class PeriodicNumbers(Block):
    """Numbers, each followed by learned combinations of cosines of it.

    The combinations of the number x of column j are, with f, p, w and b of that column alone,

        sum_h w[h] cos(2 pi f[h] x + p[h]) + b.

    The frequencies f begin as N(0, sigma^2), the phases p as uniform on a period, w and b as in a linear layer.

    Args:
        columns: Number of numeric columns, m.
        config: Number of cosines and combinations, and sigma.

    Reference: Gorishniy, Rubachev, Babenko 2022, On embeddings for numerical features in tabular deep learning (arXiv
    2203.05556), section 3.3; in the form "PBLD" of Holzmueller, Grinsztajn, Steinwart 2024 (arXiv 2407.04491), with
    one cosine and a phase in place of sine and cosine, without an activation, and with the number itself besides.
    """

    def __init__(self, columns: int, config: TabularBottomConfig) -> None:
        super().__init__()
        cosines, combinations = config.frequencies, config.number_embedding
        bound = 1 / math.sqrt(cosines)
        frequencies = torch.empty(columns, cosines)
        if not frequencies.is_meta:  # as `EmbeddingTable.reset_parameters`
            frequencies.normal_().mul_(config.sigma)
        self.frequencies = nn.Parameter(frequencies)
        self.phases = nn.Parameter(torch.empty(columns, cosines).uniform_(-math.pi, math.pi))
        self.weight = nn.Parameter(torch.empty(columns, cosines, combinations).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(columns, combinations).uniform_(-bound, bound))

    def forward(self, numbers: Tensor) -> Tensor:
        """Numbers float32 (n, m) to float32 (n, m + m * combinations): first the numbers themselves."""
        waves = torch.cos(2 * math.pi * numbers.unsqueeze(2) * self.frequencies + self.phases)
        combined = torch.einsum("nmh,mhc->nmc", waves, self.weight) + self.bias
        return torch.cat([numbers, combined.flatten(1)], dim=1)


class InputScale(Block):
    """A learned factor for each input, from 1: how much of it the layers after it see.

    Reference: Holzmueller, Grinsztajn, Steinwart 2024 (arXiv 2407.04491), section 3, "scaling layer".
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Inputs (n, width) times their factors."""
        return x * self.factors


class TabularBottom(BottomModel):
    """Embeds categories and numbers, scales each input, and applies dense layers.

    In the manner of RealMLP, a multilayer perceptron whose defaults were tuned on many tables. It differs: widths and
    learning rate are those of the job, without schedules; layers have PyTorch's initial weights, not the neural tangent
    parametrisation; activations have no parameters; all categories are embedded, also those of few values, by vectors
    that begin at zero; labels are not smoothed. Each row is embedded on its own: nothing is normalised over the batch.
    The pixels of an image have no periodic embedding.

    Reference: Holzmueller, Grinsztajn, Steinwart 2024, Better by default: strong pre-tuned MLPs and boosted trees on
    tabular data (arXiv 2407.04491), section 3.
    """

    def __init__(self, config: TabularBottomConfig, inputs: Inputs) -> None:
        super().__init__()
        self.width = config.hidden[-1]
        self.pixels = math.prod(inputs.image) if inputs.image else 0
        columns = inputs.numbers - self.pixels
        self.categories = FusedEmbedding(inputs.cardinalities, config.embedding) if inputs.cardinalities else None
        if self.categories is not None:
            # So that a category of few training rows stays near zero, and one of none is zero, not a random vector.
            nn.init.zeros_(self.categories.table.weight)
        self.numbers = PeriodicNumbers(columns, config) if columns else None
        width_in = len(inputs.cardinalities) * config.embedding + self.pixels + columns * (1 + config.number_embedding)
        self.scale = InputScale(width_in)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else None
        self.layers = dense_stack(width_in, config.hidden, config.activation, config.cut)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch; see `BottomModel.forward`."""
        # By a positive index: `numbers[:, -0:]` would be all of them.
        columns = numbers.shape[1] - self.pixels
        parts = [] if self.categories is None else [self.categories(codes)]
        if self.numbers is not None:
            parts.append(self.numbers(numbers[:, :columns]))
        if self.pixels:
            parts.append(numbers[:, columns:])
        x = self.scale(torch.cat(parts, dim=1))
        result: Tensor = self.layers(x if self.dropout is None else self.dropout(x))
        return result


TABULAR = BottomKind(TabularBottomConfig, TabularBottom, lambda section: section.hidden[-1])
