"""Split of the common rows into training, validation and test rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.config import SplitConfig
from cutlayer.data.shuffling import permutation
from cutlayer.data.streams import Stream
from cutlayer.errors import DataError


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers in the common order, int64 and ascending; every row is in exactly one of the three.

    Attributes:
        train: Rows that models, encoders and scales are fitted on.
        validation: Rows that decide early stopping and the best checkpoint; may be empty.
        test: Rows that the report's metrics are computed on; may be empty.
    """

    train: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]

    def part(self, name: str) -> Tensor:
        """Row numbers of `train`, `validation` or `test` as a tensor, int64."""
        return torch.from_numpy({"train": self.train, "validation": self.validation, "test": self.test}[name])


def split_rows(n: int, split: SplitConfig, seed: int) -> Split:
    """Divide the n common rows; a pure function of its arguments, so every party computes the same.

    Each share is rounded down, but a share above 0 gets at least one row.

    Raises:
        DataError: no row is left to train on.

    >>> parts = split_rows(10, SplitConfig(test=0.2, validation=0.1), seed=0)
    >>> len(parts.train), len(parts.validation), len(parts.test)
    (7, 1, 2)
    """
    test, validation = (max(int(n * share), int(share > 0)) for share in (split.test, split.validation))
    if n - test - validation < 1:
        got = f"{n} common rows for {test} test and {validation} validation rows"
        raise DataError.expected("a row to train on", got, "lower train.split")
    order = permutation(n, seed, Stream.SPLIT)
    held_out = test + validation
    return Split(np.sort(order[held_out:]), np.sort(order[test:held_out]), np.sort(order[:test]))
