"""Weights of rows in the loss, from a column of the active party."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.data.columns import number_values
from cutlayer.data.faults import fault


def row_weights(column: pa.ChunkedArray, where: str, training: npt.NDArray[np.int64]) -> Tensor:
    """Weights divided by their mean over the training rows, so that the learning rate keeps its meaning.

    Args:
        column: Weights of the common rows in their order, (m,).
        where: Table and column, for error messages.
        training: Training rows, int64 (t,).

    Returns:
        float32 (m,).

    Raises:
        DataError: no number, a missing or negative one, or no weight above 0 among the training rows.
    """
    values = number_values(column, "weight", where)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        got = f"{values[wrong[0]]:g} in row {int(wrong[0])} of the common ones"
        raise fault(where, "weights of 0 or more in all rows", got, "fill or drop the row")
    mean = float(values[training].mean())
    if mean == 0:
        raise fault(where, "a weight above 0 among the training rows", "0 in all", "is it the right column?")
    return torch.from_numpy((values / mean).astype(np.float32))
