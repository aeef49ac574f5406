"""The message-size attack: how large a whole message is depends on how many of its rows are of the rare class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores
from cutlayer.errors import NotApplicable
from cutlayer.kernels.statistics.message_sizes import message_sizes
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from cutlayer.channel.row_history import FollowedEpoch


WINDOW = 25
"""Steps before and after a step whose messages its own is compared with: the model is about the same there."""
_LIMIT = 4.0  # spreads beyond which a size says no more
_TO_DEVIATION = 1.4826  # from the median absolute deviation of a normal distribution
_MIN_SPREAD = 1e-6  # relative; sizes that differ by less differ by rounding


class MessageSize(HistoryAttack):
    """Score a row by how large the messages were that it was part of, averaged over the epochs.

    Noise in proportion to a batch's longest gradient, or levels that follow a message, hide a row's gradient and not
    the batch's: the size of the message, its root mean square over all rows, tells how many rows of the rarer class,
    whose gradients are longer, are among them. A row is in another batch in every epoch. With n rows of a batch, a
    share s of positives and T epochs, and sizes that tell the number of positives exactly, the AUC is
    Phi(sqrt(T / (2 n s (1 - s)))): next to nothing with hundreds of positives in a batch, and nearly 1 with a few.

    Noise whose covariance follows the batch, as that of `marvell`, tells the same in the directions in which gradients
    vary little: the variant `off` is the size of what is left of a message off its main direction.

    A defence may scale a message by the batches before it. If one batch moves that scale, the message after it tells
    what its own did not: the variant `change` is the size of the next message over that of this one.

    The logarithm of a size is compared with those of the steps around it, within the epoch. The
    known share says which class is the rarer one.

    Reference: group testing (Dorfman 1943, The detection of defective members of large populations) and learning from
    label proportions (Quadrianto et al. 2009, Estimating labels from label proportions); the use on sizes of messages
    is this project's.
    """

    name = "message_size"
    reference = "Dorfman 1943, group testing, on sizes of messages"
    needs = frozenset({Need.POSITIVE_SHARE})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No epoch has messages of different sizes.
        """
        from cutlayer.channel.row_history import NO_STEP

        size = len(view.rows)
        totals, counts = torch.zeros(2, 3, size, dtype=torch.float64)
        for epoch, matrix in view.matrices(Target.GRADIENT):
            present = epoch.steps != NO_STEP
            whole, off = _sizes(epoch, view.party, matrix).T
            for variant, sizes in enumerate((whole, off, _changes(whole))):
                if (relative := _relative(sizes)) is not None:
                    scores = torch.where(present, relative[epoch.steps], torch.nan)
                    totals[variant] += scores.nan_to_num(0.0)
                    counts[variant] += scores.isfinite()
        seen = (counts > 0).any(dim=0)
        if not bool(seen.any()):
            raise NotApplicable.expected("messages of different sizes", "none")
        whole, off, change = totals / counts.clamp_min(1) * (1 if knowledge.share < 0.5 else -1)
        return run_scores(view, whole, seen, off=off, change=change)


def _sizes(epoch: FollowedEpoch, party: str, matrix: Tensor) -> Tensor:
    """Sizes of each step's message, float64 (steps, 2); those of the followed rows where no others are recorded."""
    from cutlayer.channel.row_history import NO_STEP

    if party in epoch.sizes:
        return epoch.sizes[party]
    present = epoch.steps != NO_STEP
    rows, steps = matrix[present], epoch.steps[present]
    sizes = [message_sizes(rows[steps == step]) for step in range(int(steps.max()) + 1)]
    return torch.tensor(sizes, dtype=torch.float64)


def _changes(sizes: Tensor) -> Tensor:
    """Each size (steps,) under that of the step after it; 0 where one of the two is, and for the last step."""
    after = torch.cat([sizes[1:], sizes.new_zeros(1)])
    return torch.where(sizes > 0, after / sizes.clamp_min(torch.finfo(torch.float64).tiny), 0.0)


def _relative(sizes: Tensor) -> Tensor | None:
    """Logarithm of each size (steps,) over those around it, in spreads; NaN for a message of zeros.

    `None` where the sizes do not vary.
    """
    sent = sizes > 0
    logs = torch.where(sent, sizes, 1.0).log()
    moved = logs - _window_sums(logs * sent) / _window_sums(sent.double()).clamp_min(1)
    spread = _TO_DEVIATION * float(moved[sent].abs().median()) if bool(sent.any()) else 0.0
    if spread < _MIN_SPREAD:
        return None
    return torch.where(sent, (moved / spread).clamp(-_LIMIT, _LIMIT), torch.nan)


def _window_sums(values: Tensor) -> Tensor:
    """Sum of the values (n,) from `WINDOW` before each to as many after it, as far as there are any."""
    sums = torch.cat([values.new_zeros(1), values.cumsum(dim=0)])
    index = torch.arange(len(values))
    return sums[(index + WINDOW + 1).clamp_max(len(values))] - sums[(index - WINDOW).clamp_min(0)]
