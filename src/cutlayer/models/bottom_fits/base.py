"""Inputs of every method to fit a bottom model, and the training loop of those by gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.errors import Diverged
from cutlayer.kernels.noise.informative_rows import informative_draws
from cutlayer.kernels.noise.randomized_response import drawn_rate, expected_shortfall, transition_matrix
from cutlayer.kernels.noise.score_bands import MIN_EPSILON, lower_epsilons
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.problem.inputs import Inputs

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel

Batch = tuple[Tensor, Tensor]
"""Category codes, int32 (n, c), and numbers, float32 (n, m)."""


class GradeLimits(FrozenModel):
    """Limits of what grades carry of a party's columns.

    Attributes:
        limits: Largest share of an attribute's entropy that drawn grades may carry, by name of its column. Of a column
            that is no feature it is what features tell of it; rows to predict without that column are refused. `other`
            is for all features that are not named, and `=other` is a column of that name. The default is 0.95 of what
            the noise of the draw lets through: 0.92 at an epsilon of 8, 0.74 at 4. It is not below 0.48, all that noise
            at 2 lets through. Grades that carry more look as if labels were that attribute. An attribute is a value of
            a category. Of a number it is a value that 0.2 % of the rows have, or a part between two deciles. It is also
            all from a decile on, or the outer 1 or 3 %. Sets of values or parts are attributes too; what two columns
            say only together is none. It is one of 50 rows, or of a tenth of the rows of a run of fewer than 500. Of
            one of fewer, but 5, what is carried beyond chance counts, though not of several releases together. More is
            never sent: see `least_epsilon`. Of rows of later predictions it is checked what their grades carry together
            with those of other jobs, and with those before their columns changed.
        least_epsilon: Where grades would carry more, they are drawn at a lower epsilon than that of `grade_dp`, with
            fewer grades. It is the first of 6, 4, 3 and 2 that is within all limits, and not below this one. If a
            column without a limit carried more than its default, the default is 0.48 from there on. If no step is
            within limits, or by `null`, grades are refused. Which it is follows from exact values of all rows, and the
            label owner learns it. A private fit (`epsilon`) has no step unless this is stated.
    """

    limits: Mapping[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    least_epsilon: float | None = Field(default=MIN_EPSILON, ge=MIN_EPSILON)

    def steps(self, epsilon: float | None) -> list[float]:
        """Epsilons below that of a draw, descending, at which grades are tried that exceed limits at it."""
        return [] if epsilon is None or self.least_epsilon is None else lower_epsilons(epsilon, self.least_epsilon)


@dataclass(frozen=True, eq=False)
class DrawnLabels:
    """Labels that a label owner drew by randomised response, as a partner receives them.

    Attributes:
        values: Drawn class of each training row, int64 (n,).
        epsilon: Privacy of a draw, as the label owner states it.
        classes: Number of classes, or of the levels that a number was rounded to.
        are_numbers: Whether they are levels of a number.
    """

    values: Tensor
    epsilon: float
    classes: int
    are_numbers: bool = False

    def state(self, folds: Tensor | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a party keeps of them on disk: tensors, and plain values.

        Args:
            folds: Fold of each row in the fit of the party's models, uint8 (n,), once that is known.
        """
        tensors = {"labels": self.values.to(torch.uint8), **({} if folds is None else {"folds": folds})}
        return tensors, {"epsilon": self.epsilon, "classes": self.classes}

    @property
    def transition(self) -> Tensor:
        """Probability that a class (row) is drawn as another (column), float64 (classes, classes)."""
        return transition_matrix(self.epsilon, self.classes)

    def informative_rows(self, known: int) -> float:
        """Number of true labels that would tell as much as those of so many `known` rows of these, by their shares."""
        shares = (torch.bincount(self.values, minlength=self.classes).double() / max(len(self.values), 1)).tolist()
        return informative_draws(shares, known, self.epsilon, are_numbers=self.are_numbers)

    def fault(self) -> str:
        """What no draw of randomised response would be; empty where nothing is.

        The rate of each drawn class lies between those of rows that are never and always of it, within five standard
        errors. So a label owner cannot pass an attribute that few rows have for labels of a small epsilon. Of many
        classes each alone has few rows, so that all they lack is compared, too: by what as many classes that no row
        is of lack by chance. They vary together less than independent ones, as what one lacks another has (Joag-Dev and
        Proschan 1983, negative association).
        """
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0) or not 2 <= self.classes <= 256:
            return f"epsilon {self.epsilon} and {self.classes} classes"
        rows = len(self.values)
        if rows and int(self.values.max()) >= self.classes:
            return f"a class {int(self.values.max())} of {self.classes}"
        counts = torch.bincount(self.values, minlength=self.classes).double()
        slope, least = drawn_rate(self.epsilon, self.classes)
        for bound, sign in ((least, 1), (slope + least, -1)):
            # Five standard errors, and as many rows: where few are expected, chance is not normal.
            beyond = sign * (bound * rows - counts) - 5 * math.sqrt(bound * (1 - bound) * rows) - 5
            if float(beyond.max()) > 0:
                code = int(beyond.argmax())
                rate = float(counts[code]) / rows
                return f"class {code} in {rate:.1%} of the rows, which no draw at epsilon {self.epsilon:g} gives"
        mean, variance = expected_shortfall(rows, least)
        short = float((least * rows - counts).clamp_min(0).sum())
        if short > self.classes * mean + 5 * math.sqrt(self.classes * variance) + 5:
            few = f"{self.classes} classes, of which too many are in too few rows"
            return f"{few}, {short:,.0f} in all, for a draw at epsilon {self.epsilon:g}"
        return ""


@dataclass(frozen=True)
class TrainingColumns:
    """One party's own encoded training rows.

    Attributes:
        inputs: Their shape.
        rows: Row numbers of the training rows, int64 (t,); no other row may be looked at.
        gather: Reads rows, int64 (n,).
        gradients: At zeros in place of the embedding, float32 (n, width) by row number; `None` where none were sent.
        labels: Drawn labels of the training rows; `None` where none were sent.
        digests: Reads the digests of the ids of rows, int64 (n,) -> uint8 (n, 16); `None` where no fit needs them.
        epsilon: Privacy of the draw that will protect a row's grade; `None` where nothing will.
        key: 32 bytes that a fit to drawn labels is random by; empty where none were sent.
    """

    inputs: Inputs
    rows: Tensor
    gather: Callable[[Tensor], Batch]
    gradients: Tensor | None = None
    labels: DrawnLabels | None = None
    digests: Callable[[Tensor], Tensor] | None = None
    epsilon: float | None = None
    key: bytes = field(default=b"", repr=False)

    @property
    def total(self) -> int:
        """Columns with every category as one of its own."""
        return sum(self.inputs.cardinalities) + self.inputs.numbers


class Fit(NamedTuple):
    """A kind of fit: its section, what runs it, and what it needs.

    Attributes:
        config: Section of the job that describes a fit of this kind.
        run: Fits the bottom model in place.
        bottom: Kind of the bottom model that it needs; empty for any.
        needs_warmup: Whether it needs gradients, so epochs before the release, and an embedding of both signs.
        check: Refuses columns that it cannot be fitted to, at little cost; `None` where only the fit can tell.
    """

    config: type[FrozenModel]
    run: Callable[[Any, BottomModel, TrainingColumns], tuple[float, ...]]
    bottom: str = ""
    needs_warmup: bool = False
    check: Callable[[Any, TrainingColumns], None] | None = None

    @property
    def kind(self) -> str:
        """Its name in `fit: {kind: ...}`."""
        return str(self.config.model_fields["kind"].default)


class DescentConfig(FrozenModel):
    """Gradient descent by Adam.

    Attributes:
        epochs: Number of passes over the rows.
        batch_size: Rows of a step, 2 or more; a last batch of one row is left out.
        lr: Learning rate.
    """

    epochs: int = Field(default=10, ge=1, le=10_000)
    batch_size: int = Field(default=256, ge=2)
    lr: float = Field(default=1e-3, gt=0)


def descend(
    modules: Sequence[nn.Module],
    columns: TrainingColumns,
    settings: DescentConfig,
    loss_of: Callable[[Tensor], Tensor],
    what: str,
) -> tuple[float, ...]:
    """Train modules on shuffled batches; the order comes from the global random state.

    Args:
        modules: Modules whose parameters are trained.
        columns: The party's own training rows.
        settings: Epochs, batch size and learning rate.
        loss_of: Mean loss of a batch of rows, a scalar.
        what: Name of the fit, for the error.

    Returns:
        Mean loss of every epoch.

    Raises:
        Diverged: A loss is not finite.
    """
    from cutlayer.kernels.fits.optimizers import Adam

    for module in modules:
        module.train()
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = Adam(parameters, lr=settings.lr, fused=True)
    losses = []
    for epoch in range(settings.epochs):
        total, seen = 0.0, 0
        for rows in torch.split(columns.rows[torch.randperm(len(columns.rows))], settings.batch_size):
            if len(rows) == 1 < len(columns.rows):
                continue
            loss = loss_of(rows)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, seen = total + float(loss.detach()) * len(rows), seen + len(rows)
        losses.append(total / seen)
        if not math.isfinite(losses[-1]):
            raise Diverged(f"{what}: the loss of epoch {epoch + 1} is {losses[-1]}; lower fit.lr")
    optimizer.zero_grad()
    return tuple(losses)
