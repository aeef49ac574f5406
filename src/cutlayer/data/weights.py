"""Weights of rows in the loss, from a column of the active party."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.data.columns import number_values
from cutlayer.data.faults import fault
from cutlayer.data.labels import Pieces
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import computed, gathered, row_array


def row_weights(pieces: Pieces, rows: int, where: str, training: npt.NDArray[np.int64]) -> Tensor:
    """Weights divided by their mean over the training rows, so that the learning rate keeps its meaning.

    Args:
        pieces: Returns the weights of the common rows in their order, in pieces.
        rows: Number of common rows m.
        where: Table and column, for error messages.
        training: Training rows, int64 (t,).

    Returns:
        float32 (m,).

    Raises:
        DataError: No number, a missing or negative one, or no weight above 0 among the training rows.
    """
    values, first = row_array(rows, np.float64), 0
    for piece in pieces():
        numbers = number_values(piece, "weight", where)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        if len(wrong):
            got = f"{numbers[wrong[0]]:g} in row {first + int(wrong[0])} of the common ones"
            raise fault(where, "weights of 0 or more in all rows", got, "fill or drop the row")
        values[first : first + len(numbers)] = numbers
        first += len(numbers)
    mean = float(gathered(values, training).mean())
    if mean == 0:
        raise fault(where, "a weight above 0 among the training rows", "0 in all", "is it the right column?")
    return torch.from_numpy(computed(rows, np.float32, lambda part: values[part] / mean))
