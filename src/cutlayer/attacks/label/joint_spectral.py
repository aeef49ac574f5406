"""The joint spectral attack: the direction in which each batch agrees with the other epochs of its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.blocks import Blocks, nonzero
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, epoch_agreement, orient, run_scores
from cutlayer.attacks.label.spectra import MAX_WIDTH, spectra
from cutlayer.attacks.label.spectral import positive_is_upper
from cutlayer.kernels.fits.k_means import upper_of_two
from cutlayer.kernels.statistics.spectral import project
from cutlayer.lazy import Tensor, torch

ROUNDS = 10
_CONVERGED = 1e-5  # change of the scores in a round, over their length


class JointSpectral(HistoryAttack):
    """Score a row by its gradients along the directions that agree over the epochs.

    From the top singular direction of every batch, each round fits the direction of a batch to what the rows' other
    epochs score: z_i = sum over the epochs s_it, v_tb = G_tb' z_(-t), s_tb = G_tb v_tb over its standard deviation.
    Noise that is drawn anew in every epoch averages out, and a sign that is arbitrary in each batch becomes one for the
    run. Directions are fitted to single batches, and to whole epochs; the score is that whose epochs agree more, and
    the variant `other_blocks` the other. With one epoch it is the spectral attack.

    Reference: the singular direction of Sun et al. 2022 (arXiv 2203.01451), section 5, over several releases of a row;
    the leave-one-epoch-out rounds are this project's.
    """

    name = "joint_spectral"
    reference = "Sun et al. 2022 (arXiv 2203.01451), section 5, over all epochs"
    needs = frozenset({Need.POSITIVE_SHARE})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows."""
        variants = [by_epoch.sum(dim=1) for by_epoch in joint_scores(view, knowledge.share)]
        best, other = (orient(scores, knowledge.share) for scores in variants)
        return run_scores(view, best, view.gradients.seen, other_blocks=other)


def joint_scores(view: HistoryView, share: float) -> tuple[Tensor, Tensor]:
    """Scores by epoch, float64 (n, epochs), with directions of batches and of epochs: those that agree more first."""

    def compute() -> tuple[Tensor, Tensor]:
        variants = [_scores_by_epoch(view, share, whole=whole) for whole in (False, True)]
        first, second = sorted(variants, key=epoch_agreement, reverse=True)  # blocks first where there is one epoch
        return first, second

    return view.once("joint_spectral", compute)


def _scores_by_epoch(view: HistoryView, share: float, *, whole: bool) -> Tensor:
    """Scores by epoch, float64 (n, epochs), with a direction for each epoch, or for each block of it."""
    gradients = view.gradients
    blocks = gradients.whole_epochs() if whole else gradients.blocks
    scores = _first_scores(view, blocks, share, whole=whole)
    if scores.shape[1] == 1:
        return scores
    groups = [(epoch, Blocks.of(parts)) for epoch, parts in enumerate(blocks) if parts]
    matrices = [group.prepared(gradients.matrices[epoch]) for epoch, group in groups]
    for _ in range(ROUNDS):
        total = scores.sum(dim=1)
        updated = torch.zeros_like(scores)
        for (epoch, group), matrix in zip(groups, matrices, strict=True):
            rest = group.centred(group.gather(total - scores[:, epoch]))
            along = group.along(matrix, (rest / nonzero(group.deviations(rest))).float()).double()
            along /= nonzero(group.deviations(group.centred(along)))
            updated[:, epoch] = group.scatter(along, len(scores))
        moved = float(torch.linalg.vector_norm(updated - scores) / nonzero(torch.linalg.vector_norm(updated)))
        scores = updated
        if moved < _CONVERGED:
            break
    return scores


def _first_scores(view: HistoryView, blocks: Sequence[Sequence[Tensor]], share: float, *, whole: bool) -> Tensor:
    """Scores along the top singular direction of each block, float64 (n, epochs), the epochs with one sign."""
    from torch.nn.utils.rnn import pad_sequence

    scores = torch.zeros(view.gradients.present.shape, dtype=torch.float64)
    for epoch, parts in enumerate(blocks):
        if not parts:
            continue
        padded = pad_sequence(standard_projections(view, epoch, parts, whole=whole), True, math.nan)
        upright = positive_is_upper(padded, upper_of_two(padded), share)[:, None]
        turned = torch.where(upright, padded, -padded)
        scores[torch.cat(list(parts)), epoch] = turned[~turned.isnan()]
        if epoch and float(scores[:, epoch] @ scores[:, 0]) < 0:
            scores[:, epoch] *= -1
    return scores


def standard_projections(view: HistoryView, epoch: int, parts: Sequence[Tensor], *, whole: bool) -> list[Tensor]:
    """Coordinates of the rows of each block (m,) along its direction of most variance, of unit variance, float64 (m,).

    Args:
        view: The attacked view.
        epoch: Number of the epoch in `view.gradients`.
        parts: Its blocks.
        whole: Whether the block is the epoch.
    """
    matrix = view.gradients.matrices[epoch]
    sizes = torch.tensor([len(part) for part in parts])
    if matrix.shape[1] > MAX_WIDTH:
        along = torch.cat([project(matrix[part]) for part in parts])
    else:
        tops = top_directions(view, epoch, whole=whole)
        along = torch.cat([matrix[part] @ top for part, top in zip(parts, tops, strict=True)]).double()
    block = torch.arange(len(parts)).repeat_interleave(sizes)

    def means(values: Tensor) -> Tensor:
        return (values.new_zeros(len(parts)).index_add_(0, block, values) / sizes)[block]

    moved = along - means(along)
    return list(torch.split(moved / nonzero(means(moved.square()).sqrt()), sizes.tolist()))


def top_directions(view: HistoryView, epoch: int, *, whole: bool) -> Tensor:
    """The direction of most variance of each block of an epoch, its largest coordinate positive, float32 (b, d)."""
    tops = spectra(view, whole=whole)[epoch].directions[:, :, 0]
    largest = tops.gather(1, tops.abs().argmax(dim=1, keepdim=True))
    return torch.where(largest > 0, tops, -tops).float()
