"""Result of a fit at once, its candidates and its choice: read by reports without PyTorch."""

from __future__ import annotations

from pydantic import Field

from cutlayer.config import FrozenModel


class Candidate(FrozenModel):
    """A model that was tried.

    Attributes:
        name: Name, or `average`.
        score: Mean over the folds of the task's headline metric; `None` where it is not defined.
        error: Standard error of that mean over the folds; `None` of a single fold.
        loss: Log loss, or root mean squared error in the unit of the labels, of the held-out rows.
        weight: Its weight in the model that was chosen, 0 to 1.
        ruled_out: Whether the first fold ruled it out: its scores are of that fold alone.
        seconds: Time of its fits in the cross-validation; 0 of the average.
    """

    name: str
    score: float | None
    error: float | None
    loss: float
    weight: float
    ruled_out: bool = False
    seconds: float = Field(default=0.0, exclude=True)  # of a clock, and so in no file: runs of a seed are equal


class FitResult(FrozenModel):
    """Choice of a fit, and its quality.

    Attributes:
        chosen: Name of a candidate, or `average`.
        candidates: Every candidate's scores in the cross-validation.
        folds: Number of folds; 1 if a fifth was held out once.
        rows: Number of rows of the fit, which are fewer than there are if these are too many.
        loss: Task's loss after the fit, on 4,096 of these rows if there are more.
        alone: The same of the model of the label owner's own columns alone; `None` in that one itself.
    """

    chosen: str
    candidates: tuple[Candidate, ...]
    folds: int
    rows: int
    loss: float
    alone: FitResult | None = None

    @property
    def best(self) -> Candidate:
        """The candidate that was chosen."""
        return next(candidate for candidate in self.candidates if candidate.name == self.chosen)


class ColumnImportance(FrozenModel):
    """Permutation importance of one column in a fitted model, on held-out rows.

    Attributes:
        party: Party that the column is of.
        column: Name of a column of the label owner; number of a column of a partner's release, from 1.
        drop: Mean over the permutations of what the headline metric loses.
        spread: Standard deviation of it over the permutations.
        rows: Number of rows.
    """

    party: str
    column: str
    drop: float
    spread: float
    rows: int


class FewerGrades(FrozenModel):
    """What a release of fewer grades would add: an estimate from grades that are ranges of those that were released.

    Attributes:
        grades: Number of grades.
        value: What they would add.
    """

    grades: int
    value: float


class PartnerPilot(FrozenModel):
    """What a partner would add to the label owner's own columns at full size, estimated from a pilot.

    Attributes:
        party: Name of the partner.
        rows: Number of rows that it released.
        own: Headline metric of own columns, cross-validated on all labelled rows.
        value: What the release adds to it on the pilot's rows.
        low: Lower bound of what it would add at full size, 95 %.
        high: Upper bound of it, what further rows may add included.
        further: Part of the upper bound that is for further rows.
        curve: What models add that are fitted to a quarter, half and all of the pilot's rows.
        fewer: What fewer grades would add; empty of columns, and where nothing is added.
        chosen: Name of the candidate that was chosen on the pilot's rows, or `average`.
    """

    party: str
    rows: int
    own: float
    value: float
    low: float | None
    high: float | None
    further: float
    curve: tuple[float, ...]
    fewer: tuple[FewerGrades, ...] = ()
    chosen: str = ""

    @property
    def is_growing(self) -> bool:
        """Whether more rows are likely to add more than the pilot's: the upper bound has a good part for them."""
        return self.further > self.value / 4
