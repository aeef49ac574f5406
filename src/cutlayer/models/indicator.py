"""The `indicator` kind: dense layers over the embeddings and a column for each party that says whether it is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from cutlayer.lazy import Tensor, torch
from cutlayer.models.mlp import DenseTopConfig, MlpTop
from cutlayer.models.sections import TopKind

PRESENCE = "is there"


class IndicatorTopConfig(DenseTopConfig):
    """Dense layers as in `mlp`, which also read which parties are there.

    Zeros stand in place of an absent embedding. A column for each passive party is 1 where it is there. It is for
    `rows: all` (docs/how-to/all-rows.md#trained-end-to-end).

    Attributes:
        hidden: Widths of the layers; empty for a linear model.
        activation: Activation after each layer.
    """

    kind: Literal["indicator"] = "indicator"


class IndicatorTop(MlpTop):
    """Reads zeros in place of an absent embedding, as `mlp`, and a column of each party that may leave: 1 or 0.

    Args:
        config: Settings of the dense layers.
        widths: Number of columns of every embedding, in the job's order.
        outputs: Number of logits of the task.
        may_leave: Parties that may leave.
    """

    reads_presence = True

    def __init__(
        self, config: IndicatorTopConfig, widths: Mapping[str, int], outputs: int, may_leave: Sequence[str] = ()
    ) -> None:
        columns = {PRESENCE: len(may_leave)} if may_leave else {}
        super().__init__(config, {**widths, **columns}, outputs)
        self.leaving = tuple(may_leave)

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits (n, outputs) of rows that all parties have."""
        return self.answer(embeddings, embeddings)

    def answer(self, embeddings: Mapping[str, Tensor], present: Collection[str]) -> Tensor:
        """Logits of rows that the present parties have; see `TopModel.answer`."""
        seen = {name: e if name in present else torch.zeros_like(e) for name, e in embeddings.items()}
        some = next(iter(seen.values()))
        seen[PRESENCE] = some.new_tensor([name in present for name in self.leaving]).expand(
            some.shape[0], -1
        )  # not `len`, for torch.export
        return super().forward(seen)


INDICATOR = TopKind(IndicatorTopConfig, IndicatorTop, needs_departures=True)
