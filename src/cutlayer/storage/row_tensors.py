"""Tensors with an entry for each row of a table, which lie where `row_array` puts them: large ones in files."""

from __future__ import annotations

import math

import numpy as np

from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import chunks_of, computed_rows, gathered_rows, row_array


def empty_rows(rows: int, like: Tensor) -> Tensor:
    """Room for a number of rows, not initialised.

    Args:
        rows: Number of rows.
        like: Rows of the same type and shape, (n, ...).
    """
    width = math.prod(like.shape[1:]) * like.element_size()
    return torch.from_numpy(row_array(rows * width, np.uint8)).view(like.dtype).view(rows, *like.shape[1:])


def filled_rows(rows: int, width: int, fill: float, dtype: torch.dtype) -> Tensor:
    """A matrix (rows, width) of one value."""
    return empty_rows(rows, torch.empty(0, width, dtype=dtype)).fill_(fill)


def first_column(values: Tensor) -> Tensor:
    """A number for each row, (n,): of values in two columns, such as a time and whether it is an event's, the first."""
    return values[:, 0].contiguous() if values.dim() == 2 else values


def rows_of(values: Tensor, rows: Tensor) -> Tensor:
    """`values[rows]` of two tensors on the CPU.

    >>> rows_of(torch.tensor([5, 6, 7]), torch.tensor([2, 0])).tolist()
    [7, 5]
    """
    return torch.from_numpy(gathered_rows(values.numpy(), rows.numpy()))


def scattered_rows(values: Tensor, rows: Tensor, length: int, fill: int) -> Tensor:
    """A vector, or matrix, of a given length with some entries set.

    Args:
        values: (n, ...).
        rows: Indices of these entries in the result, int64 (n,), distinct.
        length: Number of entries of the result.
        fill: Value of the other entries.

    >>> scattered_rows(torch.tensor([5, 6]), torch.tensor([2, 0]), 3, -1).tolist()
    [6, -1, 5]
    """
    whole = row_array((length, *values.shape[1:]), values.numpy().dtype)
    whole.fill(fill)
    for start, end in chunks_of(len(rows)):
        whole[rows[start:end].numpy()] = values[start:end].numpy()
    return torch.from_numpy(whole)


def where_equal(values: Tensor, value: int) -> Tensor:
    """`values == value`, bool (n,)."""
    plain = values.numpy()
    return torch.from_numpy(computed_rows(len(values), np.bool_, lambda part: plain[part] == value))


def number_equal(values: Tensor, value: int) -> int:
    """Number of entries of a vector that have a value.

    >>> number_equal(torch.tensor([1, 0, 1]), 1)
    2
    """
    return sum(int((values[start:end] == value).sum()) for start, end in chunks_of(len(values)))


def number_differing(values: Tensor, others: Tensor) -> int:
    """Number of entries in which two vectors differ."""
    return sum(int((values[start:end] != others[start:end]).sum()) for start, end in chunks_of(len(values)))


def float64_rows(values: Tensor) -> Tensor:
    """The values as float64."""
    return torch.from_numpy(computed_rows(len(values), np.float64, lambda part: values[part].numpy(), values.shape[1:]))


def copied_rows(values: Tensor) -> Tensor:
    """A copy of a tensor on the CPU."""
    plain = values.numpy()
    return torch.from_numpy(computed_rows(len(values), plain.dtype, lambda part: plain[part], plain.shape[1:]))
