"""Aligned gradient matching: the dummy labels of every batch, brought to one sign over the run and averaged."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.gradient_match import match_blocks, named_guess
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, orient, run_scores, unit_variance
from cutlayer.attacks.label.mixture import log_odds
from cutlayer.kernels.statistics.sign_alignment import align_signs
from cutlayer.lazy import Tensor, torch

MAX_EPOCHS = 6
_CERTAIN = 12.0  # log-odds beyond this count as certain


class AlignedMatch(HistoryAttack):
    """Score a row by the mean of its dummy labels in up to 6 epochs, with signs aligned over the run.

    `gradient_match` tells the classes of a batch apart and names them by their sizes, which fails where a defence hides
    the sizes: the sign is then arbitrary in each batch. Rows return in every epoch, so the signs that make the epochs
    agree are known without a label. `mixture` has the log-odds of a two-component mixture over the epochs.

    Reference: Liu, Zou et al., Batch label inference and replacement attacks in black-boxed vertical federated learning
    (arXiv 2112.05409, 2021), section 3; the alignment is this project's.
    """

    name = "aligned_match"
    reference = "Liu, Zou et al. 2021 (arXiv 2112.05409), section 3, over all epochs"
    needs = frozenset({Need.POSITIVE_SHARE})
    quick = False
    costly = True

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No epoch has both gradients and embeddings.
        """
        seen = view.gradients.seen
        scores = matched_scores(view, knowledge.share)
        mean = orient(scores.sum(dim=1), knowledge.share)
        return run_scores(view, mean, seen, mixture=log_odds(scores, seen, knowledge.share))


def matched_scores(view: HistoryView, share: float) -> Tensor:
    """Aligned scores by epoch, float64 (n, epochs)."""

    def compute() -> Tensor:
        gradients = view.gradients
        embeddings = view.both(MAX_EPOCHS)
        chosen = list(embeddings)
        blocks = [gradients.blocks[number] for number in chosen]
        cells = [(column, part) for column, parts in enumerate(blocks) for part in parts]
        own = [embeddings[chosen[column]][part] for column, part in cells]
        sent = [gradients.matrices[chosen[column]][part] for column, part in cells]
        scores = torch.zeros(len(view.rows), len(chosen), dtype=torch.float64)
        for (column, part), logs in zip(cells, match_blocks(own, sent, 2), strict=True):
            odds = named_guess(logs, (1 - share, share), binary=True).values.clamp(-_CERTAIN, _CERTAIN)
            scores[part, column] = unit_variance(odds - odds.mean())
        return align_signs(scores, blocks)

    return view.once("aligned_match", compute)
