"""The sign-changes attack: a sign drawn once for a row changes over the epochs where its gradient is long."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.feature_prior import predict_by_ridge
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, rows_by_steps, run_scores, unit_variance
from cutlayer.lazy import Tensor, torch

BLOCK = 1024
"""Minimum number of rows, of consecutive steps, that share a main direction and a covariance."""
_CHANGES_WEIGHT = 0.7
_FLOOR = 1e-7
"""Smallest variance along an axis, over the largest."""


class SignChanges(HistoryAttack):
    """Score a row by the sign of its gradient along the main direction, how often that changes, and its line's radius.

    A defence may send every gradient at one length M, and turn it around with a probability that depends on its own
    length, (1 - |g| / M) / 2, by one number u of the row. Its sign then changes between epochs where |g| / M passes
    2 u - 1, which long gradients do, those of the rarer class, and short ones hardly ever. Rows of the rarer class also
    keep their sign more often, and lie further off the common directions: the Mahalanobis length of a row's line says
    so whatever its sign. The three are standardised and added, the changes with a weight of 0.7, which was set once, by
    hand, for Adult with 2 % of positives. Variants: `changes` alone, and `columns`, which adds what the party's own
    columns predict of the sum.

    Under `max_norm` of `form: past` it reads 0.931 and 0.929 of two partners where the other attacks of `auto` read
    0.853 and 0.860 (docs/results/other-defences.md).

    Reference: none; written against `max_norm`.
    """

    name = "sign_changes"
    reference = "this project, against one random sign for each row"
    needs = frozenset({Need.POSITIVE_SHARE})
    costly = True

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No message has a row that is not zero.
        """
        present, seen = view.gradients.present, view.gradients.seen
        radius, along = torch.zeros(2, *present.shape, dtype=torch.float64)
        for number, (epoch, matrix) in enumerate(view.sent_gradients):
            before = None
            for part in rows_by_steps(epoch.steps, present[:, number], BLOCK):
                radius[part, number], along[part, number], before = _read(matrix[part], before)
            if float(along[:, number] @ along[:, :number].sum(dim=1)) < 0:
                along[:, number] *= -1
        signs, counts = along.sign(), present.sum(dim=1).clamp_min(1)
        far, mean = radius.sum(dim=1) / counts, signs.sum(dim=1) / counts
        # Towards the rows that lie further off, which are those of the rarer class.
        mean = mean if float((far - far.mean()) @ (mean - mean.mean())) >= 0 else -mean
        changes = (signs[:, 1:] * signs[:, :-1] < 0).sum(dim=1).double()
        score = _standardised(far) + _standardised(mean) + _CHANGES_WEIGHT * _standardised(changes)
        score = score if knowledge.share < 0.5 else -score
        also = {"changes": changes}
        if view.columns is not None:
            own = _standardised(score)
            also["columns"] = own + _standardised(predict_by_ridge(view.columns, own, seen))
        return run_scores(view, score, seen, **also)


def _standardised(scores: Tensor) -> Tensor:
    return unit_variance(scores - scores.mean())


def _read(rows: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Read the lines of a block of rows.

    Args:
        rows: Gradients, float (n, d), none of them zero.
        before: Main direction of the block before, (d,); this one's has its sign.

    Returns:
        Centred logarithm of each line's squared Mahalanobis length (n,), its coordinate along the main direction (n,),
        and that direction (d,), in float64.
    """
    from cutlayer.kernels.rows.row_norms import row_norms

    lines = rows.double() / row_norms(rows).unsqueeze(1)
    variances, axes = torch.linalg.eigh(lines.T @ lines / len(lines))
    far = ((lines @ axes).square() / variances.clamp_min(_FLOOR * float(variances[-1]))).sum(dim=1).log()
    main = axes[:, -1]
    if before is not None and float(main @ before) < 0:
        main = -main
    return far - far.mean(), lines @ main, main
