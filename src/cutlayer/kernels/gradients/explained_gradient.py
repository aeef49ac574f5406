"""How much of a batch's gradients lies off the label's directions and follows from the receiver's own rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cutlayer.lazy import Tensor, torch

MAX_COLUMNS = 64
"""Columns of embeddings and gradients beyond which random projections of them are used."""
OWN_COLUMNS = 32
"""Random projections of the receiver's columns that predict beside its embedding."""
DECAY, PENALTY = 0.98, 10.0
"""Weight of a batch after the next one, and the ridge penalty, in rows of a batch of unit variance."""


class Explained(NamedTuple):
    """Parts of the energy of a batch's gradients, the sum of their squares.

    Attributes:
        off: Part that lies off the main directions, 0 to 1.
        predicted: Part that lies off them and was predicted from the receiver's own rows by earlier batches, at most
            `off`; negative where the prediction is worse than zeros.
    """

    off: float
    predicted: float


@dataclass(eq=False)
class ExplainedGradient:
    """Predicts gradients from the receiver's own rows by a ridge regression on all batches before, with decay.

    Attributes:
        directions: Number of main directions of a batch's gradients: those of its largest second moments.
        sums: What the regression is fitted to, of all batches so far, by name; empty before the first.
    """

    directions: int
    sums: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def add(self, gradient: Tensor, embedding: Tensor, columns: Tensor) -> Explained | None:
        """Parts of a batch, which then counts for later ones; `None` for the first batch and one of zeros.

        Args:
            gradient: float (n, width).
            embedding: What was sent, float (n, width).
            columns: The receiver's columns, categories one-hot, float (n, d).
        """
        g = _projected(gradient.double(), MAX_COLUMNS)
        energy = g.square().sum()
        if not bool(energy > 0) or not bool(energy.isfinite()):
            return None
        g = g * (len(g) / energy).sqrt()
        inputs = torch.cat([_standard(_projected(embedding.double(), MAX_COLUMNS)), _own(columns.double())], dim=1)
        main = torch.linalg.eigh(g.T @ g).eigenvectors[:, -self.directions :]
        result = None
        if self.sums:
            penalty = PENALTY * torch.eye(inputs.shape[1], dtype=g.dtype, device=g.device)
            guess = inputs @ torch.linalg.solve(self.sums["products"] + penalty, self.sums["targets"])
            off, predicted = (part - (part @ main) @ main.T for part in (g, guess))
            total = float(off.square().sum())
            missed = float((off - predicted).square().sum())
            result = Explained(total / len(g), (total - missed) / len(g))
        new = {"products": inputs.T @ inputs, "targets": inputs.T @ g}
        self.sums = {name: DECAY * self.sums[name] + part if self.sums else part for name, part in new.items()}
        return result


def _own(columns: Tensor) -> Tensor:
    ones = columns.new_ones(len(columns), 1)
    return torch.cat([_projected(columns, OWN_COLUMNS) / max(1, columns.shape[1]) ** 0.5, ones], dim=1)


def _standard(rows: Tensor) -> Tensor:
    return (rows - rows.mean(dim=0)) / rows.std(dim=0, correction=0).clamp_min(1e-6)


def _projected(rows: Tensor, most: int) -> Tensor:
    """Rows, by a fixed random projection where they have more columns than `most`."""
    if rows.shape[1] <= most:
        return rows
    draw = torch.Generator().manual_seed(0)
    return rows @ torch.randn(rows.shape[1], most, generator=draw, dtype=rows.dtype).to(rows.device)
