"""Columns that two hidden groups decide, for fits of a bottom model."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.models import BottomModel, Inputs, build_bottom
from cutlayer.models.bottom_fits import TrainingColumns
from cutlayer.models.bottom_fits.base import DrawnLabels

INPUTS = Inputs((5, 3), 4)
ROWS = 600
TRAINING = torch.arange(0, ROWS, 2)


def made(seed: int = 0) -> tuple[Tensor, Tensor, npt.NDArray[np.bool_]]:
    """Codes and numbers that two hidden groups decide, and which group a row is of."""
    draw = np.random.default_rng(seed)
    group = draw.random(ROWS) < 0.5
    numbers = np.where(group, 1.0, -1.0)[:, None] * [1, -1, 1, -1] + draw.normal(size=(ROWS, 4)) * 0.9
    first = np.where(draw.random(ROWS) < 0.8, group * 2 + 1, draw.integers(5, size=ROWS))
    codes = np.stack([first, draw.integers(3, size=ROWS)], axis=1)
    return torch.from_numpy(codes).int(), torch.from_numpy(numbers).float(), group


CODES, NUMBERS, GROUP = made()
KEY = bytes(range(32))
DIGESTS = torch.randint(256, (ROWS, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def columns(
    rows: Tensor = TRAINING, seen: list[Tensor] | None = None, gradients: Tensor | None = None
) -> TrainingColumns:
    def gather(wanted: Tensor) -> tuple[Tensor, Tensor]:
        if seen is not None:
            seen.append(wanted)
        return CODES[wanted], NUMBERS[wanted]

    drawn = DrawnLabels((CODES[rows, 0] % 2).long(), 2.0, 2)
    return TrainingColumns(INPUTS, rows, gather, gradients, drawn, lambda wanted: DIGESTS[wanted], key=KEY)


def bottom_of(kind: str, seed: int = 0, **options: Any) -> BottomModel:
    torch.manual_seed(seed)
    return build_bottom({"kind": kind, **options}, INPUTS)
