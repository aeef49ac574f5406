"""Weights of rows in the loss, from a column of the active party."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import number_values
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import computed_rows, gathered_rows


def row_weights(column: pa.Array, rows: npt.NDArray[np.int64], where: str, training: npt.NDArray[np.int64]) -> Tensor:
    """Weights divided by their mean over the training rows, so that the learning rate keeps its meaning.

    Args:
        column: Weights of the whole table, which are all judged: a partner has a part in which rows are common, and
            sees whether a run fails.
        rows: The common rows in their order, int64 (m,).
        where: Table and column, for error messages.
        training: Training rows among these, int64 (t,).

    Returns:
        float32 (m,); zeros where no training row has a weight above 0.

    Raises:
        DataError: No number, or a missing or negative one.
    """

    def checked(part: slice) -> npt.NDArray[np.float64]:
        piece = pa.chunked_array([column.slice(part.start, part.stop - part.start)])
        numbers = number_values(piece, "weight", where)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        if len(wrong):
            got = f"{numbers[wrong[0]]:g} in row {part.start + int(wrong[0])} (counted from 0)"
            raise fault(where, "weights of 0 or more in all rows", got, "fill or drop the row")
        return numbers

    values = gathered_rows(computed_rows(len(column), np.float64, checked), rows)
    mean = float(gathered_rows(values, training).mean()) or 1.0
    return torch.from_numpy(computed_rows(len(rows), np.float32, lambda part: values[part] / mean))
