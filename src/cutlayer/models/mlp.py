"""The `mlp` kind: dense layers below and above the cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.base import BottomModel, FusedEmbedding, TopModel, dense_stack
from cutlayer.models.sections import Activation, BottomKind, Cut, TopKind, Width, Widths
from cutlayer.problem.inputs import Inputs


class MlpBottomConfig(FrozenModel):
    """Dense layers over embedded categories and numbers.

    All categories are in one table; the numbers are appended to their vectors.

    Attributes:
        hidden: Widths of the layers; the last is the width of the cut.
        embedding: Columns of the vector that a category is looked up as.
        activation: Activation after each layer.
        cut: `linear` leaves the activation out of the last layer, so that an embedding can point in any direction.
        dropout: Share of the inputs of the first layer set to 0 in training.
    """

    kind: Literal["mlp"] = "mlp"
    hidden: Widths = Field(default=(64, 32), min_length=1)
    embedding: Width = 4
    activation: Activation = "relu"
    cut: Cut = "activated"
    dropout: float = Field(default=0.0, ge=0, lt=1)


class DenseTopConfig(FrozenModel):
    """Dense layers, then a linear map to the logits.

    Attributes:
        hidden: Widths of the layers; empty for a linear top model.
        activation: Activation after each layer.
    """

    hidden: Widths = (32,)
    activation: Activation = "relu"


class MlpTopConfig(DenseTopConfig):
    """Dense layers over the concatenated embeddings, then a linear map to the logits.

    Attributes:
        hidden: Widths of the layers; empty for a linear top model.
        activation: Activation after each layer.
        towers: Widths of layers that each embedding passes on its own before. Widths that the bottom models lack here
            give the same function, cut earlier.
    """

    kind: Literal["mlp"] = "mlp"
    towers: Widths = ()


class MlpBottom(BottomModel):
    """Embeds categories in one fused table, appends the numbers, and applies dense layers."""

    def __init__(self, config: MlpBottomConfig, inputs: Inputs) -> None:
        super().__init__()
        self.width = config.hidden[-1]
        self.categories = FusedEmbedding(inputs.cardinalities, config.embedding) if inputs.cardinalities else None
        self.dropout = nn.Dropout(config.dropout) if config.dropout else None
        width_in = len(inputs.cardinalities) * config.embedding + inputs.numbers
        self.layers = dense_stack(width_in, config.hidden, config.activation, config.cut)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch; see `BottomModel.forward`."""
        x = torch.cat([self.categories(codes), numbers], dim=1) if self.categories is not None else numbers
        result: Tensor = self.layers(x if self.dropout is None else self.dropout(x))
        return result


class MlpTop(TopModel):
    """Concatenates the embeddings in the job's order, each after its tower, and applies dense layers."""

    def __init__(self, config: DenseTopConfig, widths: Mapping[str, int], outputs: int) -> None:
        super().__init__()
        towers = config.towers if isinstance(config, MlpTopConfig) else ()
        self.towers = None
        if towers:
            self.towers = nn.ModuleList(dense_stack(w, towers, config.activation) for w in widths.values())
        total = len(widths) * towers[-1] if towers else sum(widths.values())
        self.layers = dense_stack(total, config.hidden, config.activation)
        self.logits = nn.Linear(config.hidden[-1] if config.hidden else total, outputs)

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits of a batch; see `TopModel.forward`."""
        together = list(embeddings.values())
        if self.towers is not None:
            together = [tower(embedding) for tower, embedding in zip(self.towers, together, strict=True)]
        result: Tensor = self.logits(self.layers(torch.cat(together, dim=1) if len(together) > 1 else together[0]))
        return result


MLP_BOTTOM = BottomKind(MlpBottomConfig, MlpBottom, lambda section: section.hidden[-1])
MLP_TOP = TopKind(MlpTopConfig, MlpTop)
