"""What an attack reads of columns that it knows no row of: candidate columns, without their names."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cutlayer.attacks.feature.base import MIN_ROWS, FeatureAttack
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor


@dataclass(frozen=True, eq=False)
class Readings:
    """Candidates for columns of the table, up to the names of values, offset, unit and sign.

    Attributes:
        rows: Row numbers of the common order, int64 (n,).
        vectors: Candidate columns, float64 (k, n).
        certain: Whether the attack has a certificate that a candidate is exact, bool (k,).
    """

    rows: Tensor
    vectors: Tensor
    certain: Tensor


class ReadingAttack(FeatureAttack[Readings], ABC):
    """Reads columns from the embeddings alone: no row is known, and nothing is fitted to one."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    live = True

    def check(self, view: FeatureView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` also for too few rows."""
        super().check(view, knowledge)
        if len(view.rows) < MIN_ROWS:
            raise NotApplicable.expected(f"{MIN_ROWS} rows or more for {self.name}", len(view.rows))


def readings_of(view: FeatureView, vectors: list[np.ndarray], certain: list[bool]) -> Readings:
    """Candidates (n,) as `Readings`."""
    import torch

    matrix = np.stack(vectors) if vectors else np.zeros((0, len(view.rows)))
    return Readings(view.rows, torch.from_numpy(matrix.astype(np.float64)), torch.tensor(certain, dtype=torch.bool))
