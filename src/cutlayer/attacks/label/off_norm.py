"""The off-direction norm attack: the length of a gradient off the directions in which its batch varies most."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.blocks import Blocks
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores
from cutlayer.attacks.label.spectra import Spectra, spectra
from cutlayer.lazy import Tensor, torch

MAX_DIRECTIONS = 4
_VARYING = 1e-9  # of the largest variance; a direction with less is rounding
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

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows."""
        variants = _averaged(view)
        return run_scores(view, variants.pop("off_1"), view.gradients.seen, **variants)


def _averaged(view: HistoryView) -> dict[str, Tensor]:
    """Means over the epochs of the centred log-lengths, by variant, float64 (n,)."""
    gradients = view.gradients
    width = gradients.matrices[0].shape[1]
    removed = range(min(MAX_DIRECTIONS + 1, max(width, 1)))
    names = [f"off_{count}" for count in removed] + ["radius"]
    names += ["off_1"] if "off_1" not in names else []
    sums = {name: torch.zeros(len(gradients.present), dtype=torch.float64) for name in names}
    by_epoch = zip(gradients.matrices, gradients.blocks, spectra(view, whole=False), strict=True)
    for matrix, parts, spectrum in by_epoch:
        if parts:
            group = Blocks.of(parts)
            for name, squares in squared_lengths(group.gather(matrix).double(), spectrum, len(removed)).items():
                sums[name] += group.scatter(group.centred(squares.clamp_min(_FLOOR**2).log()), len(matrix))
    counts = gradients.present.sum(dim=1).clamp_min(1)
    return {name: total / counts for name, total in sums.items()}


def squared_lengths(rows: Tensor, spectrum: Spectra, variants: int) -> dict[str, Tensor]:
    """Squared lengths (b, m) of rows off the top directions of their block, and Mahalanobis lengths.

    Rows are projected on the directions that vary alone; what is left off all of these is their length minus that.

    Args:
        rows: Centred rows of each block, float64 (b, m, d).
        spectrum: Variances and directions of these rows.
        variants: Number of variants off 0, 1, ... directions, at most d.
    """
    varying = spectrum.variances > _VARYING * spectrum.variances[:, :1]
    used = min(max(int(varying.sum(dim=1).max()), variants), rows.shape[2])
    along = (rows @ spectrum.directions[:, :, :used]).square_()
    inverse = torch.where(varying, 1 / spectrum.variances, 0.0)[:, :used]
    weights = torch.stack([torch.ones_like(inverse), inverse], dim=2)
    weights[:, : variants - 1, 0] = 0.0
    left, radius = (along @ weights).unbind(dim=2)
    lengths = {"off_0": rows.square().sum(dim=2), "radius": radius}
    if used < rows.shape[2]:
        left = left + (lengths["off_0"] - along.sum(dim=2)).clamp_min_(0.0)
    for count in range(variants - 1, 0, -1):
        lengths[f"off_{count}"] = left
        left = left + along[:, :, count - 1]
    return lengths
