"""The off-direction norm attack: the length of a gradient off the directions in which its batch varies most."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.blocks import Blocks
from cutlayer.attacks.label.history import Gradients, HistoryAttack, HistoryView, run_scores

MAX_DIRECTIONS = 4
_FLOOR = 1e-9  # relative to the block's root mean square length, so that an exact zero has a logarithm


class OffNorm(HistoryAttack):
    """Score a row by the log of its gradient's length off the top singular directions, averaged over the epochs.

    An undefended gradient lies almost in one direction. A defence whose noise off that direction has another power for
    each class, as the published optimum of Marvell, marks the class by what is left when the direction is removed.
    The variants remove 0 to 4 directions of each batch; `radius` is the Mahalanobis length.

    Reference: none; written against defences that add isotropic noise to one class.
    """

    name = "off_norm"
    reference = "this project; against noise of another power for each class"
    reads = (Target.GRADIENT,)

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows."""
        gradients = view.gradients
        variants = _averaged(gradients)
        return run_scores(view, variants.pop("off_1"), gradients.seen, **variants)


def _averaged(gradients: Gradients) -> dict[str, Tensor]:
    """Means over the epochs of the centred log-lengths, by variant, float64 (n,)."""
    width = gradients.matrices[0].shape[1]
    removed = range(min(MAX_DIRECTIONS + 1, max(width, 1)))
    names = [f"off_{count}" for count in removed] + ["radius"]
    names += ["off_1"] if "off_1" not in names else []
    sums = {name: torch.zeros(len(gradients.present), dtype=torch.float64) for name in names}
    for matrix, parts in zip(gradients.matrices, gradients.blocks, strict=True):
        if parts:
            group = Blocks.of(parts)
            for name, squares in _squared_lengths(group, matrix, len(removed)).items():
                sums[name] += group.scatter(group.centred(squares.clamp_min(_FLOOR**2).log()), len(matrix))
    counts = gradients.present.sum(dim=1).clamp_min(1)
    return {name: total / counts for name, total in sums.items()}


def _squared_lengths(group: Blocks, matrix: Tensor, variants: int) -> dict[str, Tensor]:
    """Squared lengths (b, m) of centred rows (n, d) off the top directions of their block, and Mahalanobis lengths."""
    rows = group.gather(matrix).double()
    values, vectors = torch.linalg.eigh(rows.mT @ rows / group.real.sum(dim=1)[:, None, None])
    along = (rows @ vectors.flip(2)).square()
    left = along.sum(dim=2)
    lengths = {"off_0": left}
    for count in range(1, variants):
        left = left - along[:, :, count - 1]
        lengths[f"off_{count}"] = left.clamp_min(0.0)
    variances = values.flip(1)
    inverse = torch.where(variances > 1e-9 * variances[:, :1], 1 / variances, 0.0)
    lengths["radius"] = (along @ inverse[:, :, None])[:, :, 0]
    return lengths
