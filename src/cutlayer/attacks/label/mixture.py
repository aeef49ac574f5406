"""The mixture attack: two Gaussians over the scores of all epochs, which differ in mean or in spread."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, orient, run_scores
from cutlayer.attacks.label.joint_spectral import joint_scores
from cutlayer.kernels.fits.mixture import two_gaussians
from cutlayer.lazy import Tensor, torch


class Mixture(HistoryAttack):
    """Score a row by the log-odds of two Gaussians over its scores of all epochs.

    The scores of `joint_spectral`, one for each epoch, are the coordinates of a row. Both components have their own
    mean and diagonal covariance, and the share of the positives is fixed; expectation maximisation starts from the
    highest sums. Variances tell the class where a defence gives the classes noise of different power, such as max norm
    alignment, whose mean is the undefended gradient and whose variance depends on the gradient's length.

    Reference: expectation maximisation of a Gaussian mixture (Dempster, Laird and Rubin 1977); the use on the scores of
    several releases is this project's.
    """

    name = "mixture"
    reference = "Dempster, Laird and Rubin 1977, on the scores of joint_spectral"
    needs = frozenset({Need.POSITIVE_SHARE})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows."""
        seen = view.gradients.seen
        best, other = (log_odds(scores, seen, knowledge.share) for scores in joint_scores(view, knowledge.share))
        return run_scores(view, best, seen, other_blocks=other)


def log_odds(scores: Tensor, seen: Tensor, share: float) -> Tensor:
    """Log-odds of the two-component mixture, float64 (n,); 0 for rows that are not seen.

    Args:
        scores: Scores by epoch with one sign for the run, float64 (n, epochs).
        seen: Rows with a score, bool (n,).
        share: Share of positive rows, in (0, 1).
    """
    points = scores[seen]
    points = points / points.std(dim=0, correction=0).clamp_min(torch.finfo(torch.float64).tiny)
    total = points.mean(dim=1)
    if float(orient(total, share) @ total) < 0:
        points, total = -points, -total
    result = torch.zeros(len(scores), dtype=torch.float64)
    result[seen] = two_gaussians(points, share, total)
    return result
