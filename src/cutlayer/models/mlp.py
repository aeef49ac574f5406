"""The `mlp` kind: dense layers below and above the cut."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cutlayer.models.base import BottomModel, FusedEmbedding, TopModel, dense_stack
from cutlayer.models.sections import DenseTopConfig, MlpBottomConfig, MlpTopConfig
from cutlayer.problem.inputs import Inputs


class MlpBottom(BottomModel):
    """Embeds categories in one fused table, appends the numbers, and applies dense layers."""

    reentrant = True

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

    reentrant = True

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
