"""The spectral attack: the directions in which a batch varies most separate its classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, Target, all_at_once
from cutlayer.kernels.fits.k_means import distances, k_means_each, upper_of_two
from cutlayer.kernels.statistics.spectral import project_each, project_on_top_each
from cutlayer.kernels.statistics.ties import merge_ties_each
from cutlayer.lazy import Tensor, torch

BALANCED_MARGIN = 0.005
"""Distance from 0.5 within which the size of a cluster does not identify its class."""

_ROUNDING = 1e-9


class Spectral(LabelAttack):
    """Score a row by its projection on the batch's top singular direction, or in many classes by clusters on several.

    The batch is centred, v is its top right singular vector, s_i = <x_i - mean, v>. Optimal 1-D 2-means of s gives two
    clusters. The one whose size fits the known positive share is called positive; within 0.5 +- 0.005 it is the one of
    larger mean |s|. The score is s with the sign that puts the positive cluster higher; `also` has |s| alone, which the
    paper's text names too.

    In a multi-class task (an extension of the paper's two classes) the batch is projected on its top classes - 1
    directions, as many as the class means can span, and k-means finds one cluster per class. The largest cluster is
    named as the most frequent class, and so on by size; where classes are about equally frequent that says little, so
    the audit reports the best assignment too. The score for a class is how much nearer its cluster's centre is than any
    other, in squared distance; of two classes that is the oriented projection again.

    Reference: Sun et al., Label leakage and protection from forward embedding in vertical federated learning
    (arXiv 2203.01451), section 5.
    """

    name = "spectral"
    reference = "Sun et al. 2022 (arXiv 2203.01451), section 5"
    reads = (Target.GRADIENT, Target.EMBEDDING, Target.LAYER)
    needs = frozenset({Need.CLASS_SHARES})
    tasks = frozenset({"binary", "multiclass"})

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Score each sampled step on its own."""
        if view.task.kind == "multiclass":
            return all_at_once(view, partial(guess_classes, shares=knowledge.shares))
        absolute = view.target is not Target.LAYER
        return all_at_once(view, partial(guess, positive_share=knowledge.share, absolute=absolute))


def guess(x: Tensor, positive_share: float, *, absolute: bool = True) -> Guess:
    """Oriented projections, hard labels and absolute projections of several batches, each on its own.

    Args:
        x: Gradients or embeddings, float (b, n, d).
        positive_share: Share of positive rows, in (0, 1).
        absolute: Whether to return absolute projections too, which the results of a layer have no place for.
    """
    scale = torch.linalg.vector_norm(x, dim=2, dtype=torch.float64)
    s = merge_ties_each(project_each(x), scale)  # before clustering: rows equal up to rounding belong together
    upper = upper_of_two(s)
    fits = positive_is_upper(s, upper, positive_share)[:, None]
    return Guess(
        values=torch.where(fits, s, -s), hard=upper == fits, also={"absolute": s.abs()} if absolute else {}, scale=scale
    )


def positive_is_upper(s: Tensor, upper: Tensor, positive_share: float) -> Tensor:
    """Whether the upper cluster of scores is the positive one, by the rule of `Spectral`.

    Args:
        s: Scores, float (..., n), NaN for a row that is missing.
        upper: Whether each row is in the upper cluster, bool (..., n).
        positive_share: Share of positive rows, in (0, 1).

    Returns:
        bool (...,).
    """
    rows, count = (~s.isnan()).sum(dim=-1), upper.sum(dim=-1)
    share = count.double() / rows.clamp_min(1)
    if abs(positive_share - 0.5) <= BALANCED_MARGIN + _ROUNDING:
        sizes = s.abs().nan_to_num(0.0)
        above, below = (torch.where(chosen, sizes, 0.0).sum(dim=-1) for chosen in (upper, ~upper))
        fits = above / count.clamp_min(1) >= below / (rows - count).clamp_min(1)
    else:
        fits = (share - positive_share).abs() <= (1 - share - positive_share).abs()
    return fits | (share == 0)


def guess_classes(x: Tensor, shares: Sequence[float]) -> Guess:
    """Class scores and named clusters of several batches, each on its own.

    Args:
        x: Gradients or embeddings, float (b, n, d), n of 1 or more.
        shares: Share of each class, by code; two or more.
    """
    scale = torch.linalg.vector_norm(x, dim=2, dtype=torch.float64)
    points = merge_ties_each(project_on_top_each(x, len(shares) - 1), scale)
    squares = distances(points, k_means_each(points, len(shares)))
    clusters = squares.argmin(dim=2)
    named = name_by_size(clusters, shares)
    squares = squares.take_along_dim(named[:, None], dim=2)
    nearest = squares.topk(2, dim=2, largest=False).values
    nearest_other = torch.where(squares == nearest[..., :1], nearest[..., 1:], nearest[..., :1])
    # A coordinate is rounded by its row's length, so its square by that times the distance.
    rounding = squares.amax(dim=2).sqrt() * scale.amax(dim=1, keepdim=True)
    return Guess(nearest_other - squares, hard=named.argsort(dim=1).take_along_dim(clusters, dim=1), scale=rounding)


def name_by_size(clusters: Tensor, shares: Sequence[float]) -> Tensor:
    """Name clusters by their sizes: the largest is the most frequent class's, the next that of the next.

    Args:
        clusters: Cluster of each row, int64 (..., n), below the number of classes.
        shares: Share of each class, by code.

    Returns:
        The cluster of each class code, int64 (..., classes). Its `argsort()` gives the class of each cluster.

    >>> name_by_size(torch.tensor([2, 2, 2, 0, 0, 1]), [0.2, 0.5, 0.3]).tolist()
    [1, 2, 0]
    """
    sizes = (clusters[..., None] == torch.arange(len(shares))).sum(dim=-2)
    named = torch.empty_like(sizes)
    frequent_first = torch.tensor(shares).argsort(descending=True, stable=True)
    named[..., frequent_first] = sizes.argsort(dim=-1, descending=True, stable=True)
    return named
