"""The `columns` kind: the label owner's own columns as they are, for a top model that reads them itself."""

from __future__ import annotations

from typing import Literal

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, torch
from cutlayer.models.base import BottomModel
from cutlayer.models.sections import BottomKind
from cutlayer.problem.inputs import Inputs


class ColumnsBottomConfig(FrozenModel):
    """The active party's own columns as they are.

    It is what `auto` stands for there under a top model that is fitted at once. A passive party cannot have it, as it
    would send its columns.
    """

    kind: Literal["columns"] = "columns"


class ColumnsBottom(BottomModel):
    """Passes category codes, as numbers, and numbers side by side; it has no parameters.

    A float32 holds any code below 2^24.
    """

    def __init__(self, config: ColumnsBottomConfig, inputs: Inputs) -> None:
        super().__init__()
        self.width = len(inputs.cardinalities) + inputs.numbers

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Codes, then numbers, float32 (n, c + m); see `BottomModel.forward`."""
        return torch.cat([codes.to(numbers.dtype), numbers], dim=1)


COLUMNS_BOTTOM = BottomKind(ColumnsBottomConfig, ColumnsBottom)
