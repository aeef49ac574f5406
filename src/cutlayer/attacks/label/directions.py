"""The directions attack: every direction in which the rows vary, not only the first."""

from __future__ import annotations

import warnings

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, orient, run_scores
from cutlayer.errors import NotApplicable
from cutlayer.kernels.statistics.spectral import project_on_top
from cutlayer.lazy import Tensor, torch

MAX_DIRECTIONS = 24
MAX_SENT_DIRECTIONS = 8
"""Directions of the embeddings as sent, where those by the own weights are attacked as well: each variant adds to what
the largest of all reads by chance."""
MAX_COMPONENTS = 8
_RELATIVE_SPREAD = 1e-5  # a direction with less of the first one's standard deviation is rounding


class Directions(HistoryAttack):
    """Score a row by its embedding along each of the top singular directions, and by its distance from the mean.

    A defence that keeps the label out of the first direction leaves it in another, which the top model reads as well.
    The matrices are the embeddings as sent in the last recorded epoch, and those of the bottom model that the party
    keeps at its end. Variants are up to 8 directions of the former; of the latter up to 24 directions, the Euclidean
    and the Mahalanobis radius, and up to 8 independent components. Each has one sign for the whole run. An attacker
    picks among them with a few labels; the audit reports the largest leak, and what it is for permuted labels.

    Reference: Sun et al., Label leakage and protection from forward embedding in vertical federated learning
    (arXiv 2203.01451), section 5, for the first direction; independent components by Hyvarinen and Oja 2000.
    """

    name = "directions"
    reference = "Sun et al. 2022 (arXiv 2203.01451), section 5, for every direction"
    reads = (Target.EMBEDDING,)
    needs = frozenset({Need.POSITIVE_SHARE})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No embedding varies over the rows.
        """
        matrices = own_matrices(view)
        last = next(reversed(matrices.values()))
        variants: dict[str, Tensor] = {}
        for name, matrix in matrices.items():
            along = _along(matrix, MAX_DIRECTIONS if matrix is last else MAX_SENT_DIRECTIONS)
            variants |= {f"{name}_direction_{number + 1}": scores for number, scores in enumerate(along.T)}
        variants |= _radii(last, along)
        variants |= {f"component_{number + 1}": scores for number, scores in enumerate(_independent(along))}
        if not variants:
            raise NotApplicable.expected("an embedding that varies over the rows", "none")
        signed = {name: orient(scores, knowledge.share) for name, scores in variants.items()}
        return run_scores(view, signed.pop(next(iter(signed))), **signed)


def own_matrices(view: HistoryView) -> dict[str, Tensor]:
    """The party's embeddings of the followed rows (n, d) in the last epoch: as `sent`, and by its `own` weights.

    Rows without messages in that epoch are replaced by its mean, so that they are at the centre.

    Raises:
        NotApplicable: There is none.
    """
    from cutlayer.channel.row_history import NO_STEP

    matrices = {}
    if sent := view.matrices(Target.EMBEDDING):
        epoch, matrix = sent[-1]
        present = epoch.steps != NO_STEP
        mean = matrix[present].mean(dim=0) if bool(present.any()) else matrix.mean(dim=0)
        matrices["sent"] = torch.where(present[:, None], matrix, mean)
    if view.own_embeddings:
        matrices["own"] = view.own_embeddings[max(view.own_embeddings)]
    if not matrices:
        raise NotApplicable.expected("embeddings", "none")
    return matrices


def _along(matrix: Tensor, max_directions: int) -> Tensor:
    """Coordinates (n, k) along the top directions that vary beyond rounding."""
    along = project_on_top(matrix.double(), max_directions)
    spread = along.std(dim=0, correction=0)
    return along[:, (spread > _RELATIVE_SPREAD * spread[:1]) & (spread > 0)]


def _radii(matrix: Tensor, along: Tensor) -> dict[str, Tensor]:
    """Squared Euclidean and Mahalanobis distances from the mean (n,), by variant."""
    if not along.shape[1]:
        return {}
    radius = (matrix.double() - matrix.double().mean(dim=0)).square().sum(dim=1)
    return {"radius": radius, "mahalanobis": (along / along.std(dim=0, correction=0)).square().sum(dim=1)}


def _independent(along: Tensor) -> list[Tensor]:
    """Independent components (n,) of the whitened top directions, of which there are coordinates (n, k)."""
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    along = along[:, :MAX_COMPONENTS]
    if along.shape[1] < 2:
        return []
    white = (along / along.std(dim=0, correction=0)).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # components are candidates, converged or not
        components = FastICA(whiten=False, random_state=0, max_iter=200).fit_transform(white)
    return list(torch.from_numpy(components).T)
