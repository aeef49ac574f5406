"""The mean-length attack: how long a row's gradients are over the run, and how often it is sent none."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Scores, Target, nonzero_rows
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, rows_by_steps, run_scores
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, torch


class MeanLength(HistoryAttack):
    """Score a row by the mean length of its gradients over the epochs, with zero for a row that was sent zeros.

    A defence that sends the largest entries alone sends most rows of the common class nothing, and that is the label.
    Lengths are relative to the root mean square length of the rows of consecutive steps. Steps in which every followed
    row was sent zeros, as under party dropout, are left out. Variants: `silence`, the share of epochs in which the row
    was sent zeros, and `entries`, the mean share of its entries that are not zero.

    Reference: Li, Sun et al. 2021 (arXiv 2102.08504), section 3, for the length in one batch.
    """

    name = "mean_length"
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 3, over all epochs"

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No gradient other than zero was sent.
        """
        size = len(view.rows)
        sums = {name: torch.zeros(size, dtype=torch.float64) for name in ("", "silence", "entries")}
        counts = torch.zeros(size, dtype=torch.float64)
        for epoch, matrix in view.matrices(Target.GRADIENT):
            present = nonzero_rows(matrix)
            sent = _in_sent_steps(epoch.steps, present)
            counts += sent
            sums[""] += relative_lengths(matrix, rows_by_steps(epoch.steps, sent))
            sums["silence"] += sent & ~present
            sums["entries"] += (matrix != 0).double().mean(dim=1) * sent
        if not bool(counts.any()):
            raise NotApplicable.expected("cut gradients that are not all zero", "none")
        means = {name: total / counts.clamp_min(1) for name, total in sums.items()}
        return run_scores(view, means.pop(""), counts > 0, **means)


def _in_sent_steps(steps: Tensor, present: Tensor) -> Tensor:
    """Rows (n,) whose step sent any followed row more than zeros, bool (n,)."""
    from cutlayer.channel.row_history import NO_STEP

    return (steps != NO_STEP) & torch.isin(steps, steps[present])


def relative_lengths(matrix: Tensor, blocks: tuple[Tensor, ...]) -> Tensor:
    """Length of each row over the root mean square length of its block, float64 (n,); 0 outside of the blocks."""
    lengths = torch.zeros(len(matrix), dtype=torch.float64)
    for part in blocks:
        rows = torch.linalg.vector_norm(matrix[part].double(), dim=1)
        lengths[part] = rows / (float(rows.square().mean().sqrt()) or 1.0)
    return lengths
