"""Label gradients at zeros: the bottom model learns where the active party would have its embedding move."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, functional, torch
from cutlayer.models.bottom_fits.base import DescentConfig, Fit, TrainingColumns, descend

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel


class GradientsFit(DescentConfig):
    """Least squares on the negative gradients of the warm-up epochs: the step of gradient boosting.

    It requires `train.warmup_epochs` (docs/how-to/protect-features.md#fit-to-the-gradients-of-warm-up-epochs). A bottom
    model with a `cut` needs `cut: linear`, since gradients have either sign.
    """

    kind: Literal["gradients"] = "gradients"


def fit_gradients(settings: GradientsFit, bottom: BottomModel, columns: TrainingColumns) -> tuple[float, ...]:
    """Train the bottom model to predict, from the party's columns, the step that would have lowered each row's loss.

    While zeros stand for the party's rows, the gradient of a row's loss with respect to its embedding says what the
    active party's model gets wrong about it: the residual of that row, times the top model's slope. The least-squares
    prediction of minus that gradient is the step of gradient boosting. The zeros depend on no row, so that nothing is
    spent of the party's budget; the gradients are the active party's, under its own protections of labels.

    The targets are divided by their root mean square, so that `lr` means the same in every job.

    Returns:
        Mean squared error of every epoch; 1 is that of predicting zeros.

    Raises:
        ConfigError: There are no gradients, or all are zero.
        Diverged: The loss is not finite.

    Reference: Friedman 2001, Greedy function approximation: a gradient boosting machine, Annals of Statistics 29, for
    the step; that it is taken across the cut before a single private release is this project's.
    """
    if columns.gradients is None:
        raise ConfigError.expected("gradients of warm-up epochs for fit gradients", "none", "set train.warmup_epochs")
    rows = columns.rows[columns.gradients[columns.rows].isfinite().all(dim=1)]
    scale = columns.gradients[rows].square().mean().sqrt()
    if not float(scale) > 0:
        raise ConfigError.expected("gradients to fit by", "zeros alone", "protect labels less, or fit by other means")
    targets = columns.gradients / -scale

    def loss_of(rows: Tensor) -> Tensor:
        return functional.mse_loss(bottom(*columns.gather(rows)), targets[rows])

    return descend([bottom], replace(columns, rows=rows), settings, loss_of, "fit gradients")


def no_gradients(rows: int, width: int) -> Tensor:
    """Storage for the gradients of warm-up epochs, float32 (rows, width); NaN until a row's gradient arrives."""
    return torch.full((rows, width), torch.nan)


GRADIENTS = Fit(GradientsFit, fit_gradients, needs_warmup=True)
