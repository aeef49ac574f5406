"""The drawn-labels attack: the sign of a gradient is a drawn label, and its direction predicts the true one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.co_training import Trees, predict_by_trees
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores
from cutlayer.kernels.statistics.spectral import project_on_top
from cutlayer.lazy import Tensor, torch

TREES = Trees(folds=5, trees=60, leaves=8, min_leaf_rows=100, learning_rate=0.05)
DIRECTIONS = 12
"""Directions of a matrix that are inputs of the trees."""
FLIP_RATE_RANGE = (0.01, 0.45)
"""Least and largest rate of flipped signs that is believed."""
UNKNOWN_FLIP_RATE = 0.25
"""Rate where the classes are about as large, so that their share does not tell it."""
_EVEN_MARGIN = 0.1
_CERTAIN = 0.01  # probabilities nearer to 0 or 1 count as this


class DrawnLabels(HistoryAttack):
    """Score a row by the sign of its gradient, and by what the signs of other rows say of its direction and embedding.

    Under randomised response a gradient is (q - y) w(e), y a label that was drawn once: its sign along the main
    direction is y in every epoch. The line that it lies on, that of w(e), does not depend on y. It says which units of
    the top model are active for the row, and so what the model predicts from the columns of all parties. Boosted trees
    are fitted to the signs, as labels with noise, on the lines of the last and the middle epoch and the party's own
    embedding; each row is predicted by trees of other rows, which average the draws. The share s of positives and that
    of the positive signs in the first epoch, s (1 - f) + (1 - s) f, give the rate f of flips. The predicted probability
    of a positive sign is corrected by it, and the sign is added as Bayes' rule does: logit p + log((1 - f) / f) times
    the sign. Variants: `predicted`, without the row's own sign, and `signs`, that alone.

    No sign is learned from rows that are sent no gradient, and they are not scored.

    Takes 2 s of one core for 8,192 rows.

    Reference: Natarajan et al., Learning with noisy labels (NeurIPS 2013), for what is learned from flipped labels; Wu
    et al. (arXiv 2202.12968), section 3, for a prediction as the prior of a drawn label. The use of the lines of
    gradients is this project's.
    """

    name = "drawn_labels"
    reference = "Natarajan et al. 2013 (NeurIPS), on signs and lines of gradients"
    needs = frozenset({Need.POSITIVE_SHARE})
    costly = True

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No message has a row that is not zero.
        """
        share = knowledge.share
        present = view.gradients.present
        seen = view.gradients.seen
        signs, lines = signs_and_lines(view)
        upper = signs > 0
        first = present[:, 0]
        # Flips bring both signs nearer to a half, and the rarer class remains the rarer one.
        if (float(upper[first].double().mean()) > 0.5) == (share < 0.5):
            signs, upper = -signs, ~upper
        rate = flip_rate(float(upper[first].double().mean()), share)
        learned = predict_by_trees(_inputs(view, lines), upper.double(), seen, TREES)
        chance = ((learned - rate) / (1 - 2 * rate)).clamp(_CERTAIN, 1 - _CERTAIN)
        predicted = torch.logit(chance)
        return run_scores(view, predicted + math.log(1 / rate - 1) * signs, seen, predicted=predicted, signs=signs)


def flip_rate(upper: float, share: float) -> float:
    """Rate of flipped signs.

    Args:
        upper: Share of the signs of the positives.
        share: Share of the positives.

    >>> round(flip_rate(0.386, 0.24), 4)
    0.2808
    """
    if abs(1 - 2 * share) < _EVEN_MARGIN:
        return UNKNOWN_FLIP_RATE
    return min(max((upper - share) / (1 - 2 * share), FLIP_RATE_RANGE[0]), FLIP_RATE_RANGE[1])


def signs_and_lines(view: HistoryView) -> tuple[Tensor, list[Tensor]]:
    """Sign of each row, which most of its gradients have, and its line in every epoch.

    Returns:
        1 or -1, float64 (n,); and unit vectors, float64 (n, d), whose sign is that of no label: along the main
        direction of the epoch. NaN where a row had no gradient.
    """
    from cutlayer.kernels.rows.row_norms import row_norms

    present = view.gradients.present
    total = torch.zeros(len(view.rows), dtype=torch.float64)
    lines = []
    for number, (_, matrix) in enumerate(view.sent_gradients):
        sent = present[:, number]
        units = torch.full(matrix.shape, torch.nan, dtype=torch.float64)
        units[sent] = matrix[sent].double() / row_norms(matrix[sent]).unsqueeze(1)
        main = torch.linalg.eigh(units[sent].T @ units[sent]).eigenvectors[:, -1]
        along = (units @ main).nan_to_num(0.0).sign()
        lines.append(units * along[:, None])
        total += along if float(along @ total) >= 0 else -along
    return torch.where(total >= 0, 1.0, -1.0).double(), lines


def _inputs(view: HistoryView, lines: Sequence[Tensor]) -> npt.NDArray[np.float64]:
    """Coordinates of the lines of the last and the middle epoch, and of the party's own embedding, (n, columns)."""
    parts = [_coordinates(lines[number]) for number in sorted({len(lines) // 2, len(lines) - 1})]
    if view.own_embeddings:
        parts.append(_coordinates(view.own_embeddings[max(view.own_embeddings)].flatten(1)))
    elif sent := view.matrices(Target.EMBEDDING):
        parts.append(_coordinates(sent[-1][1].flatten(1)))
    return torch.cat(parts, dim=1).numpy()


def _coordinates(rows: Tensor) -> Tensor:
    """Coordinates of rows (n, d) along the directions in which they vary most, float64 (n, k); NaN stays NaN."""
    known = rows.isfinite().all(dim=1)
    along = project_on_top(rows[known].double(), DIRECTIONS)
    coordinates = along.new_full((len(rows), along.shape[1]), torch.nan)
    coordinates[known] = along
    return coordinates
