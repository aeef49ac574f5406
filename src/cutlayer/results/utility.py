"""How good a model is on held-out rows, next to its references."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import computed_field

from cutlayer.config import FrozenModel
from cutlayer.models.top_estimators.result import ColumnImportance, FitResult
from cutlayer.results.number import Bounded, Derived, Number
from cutlayer.results.run import RunId, RunKind


class Difference(Bounded):
    """Headline metric of this run's model minus that of another one on the same rows.

    Attributes:
        value: The difference.
        low: Lower bound of it (95 % bootstrap of rows, which are drawn for both models alike).
        high: Upper bound of it.
    """

    value: Number = None


class ModelUtility(Derived, Bounded):
    """One model on the reported held-out rows.

    Attributes:
        run_kind: How its training differs from the job.
        parties: The parties that the kind is about, as in `RunId`.
        protection: Name of the protection alone.
        attack: Name of the attack by which the parties depart from the protocol.
        metrics: Metrics by name.
        low: Lower bound of the headline metric (95 % bootstrap).
        high: Upper bound of it.
        ahead: What this run's model is ahead of it; `None` of this run, and where it was not measured.
    """

    run_kind: RunKind
    parties: tuple[str, ...] = ()
    protection: str = ""
    attack: str = ""
    metrics: Mapping[str, Number]
    ahead: Difference | None = None

    @classmethod
    def of(
        cls,
        run: RunId,
        metrics: Mapping[str, float],
        bounds: tuple[float | None, float | None] = (None, None),
        ahead: Difference | None = None,
    ) -> ModelUtility:
        """The record of a run with its metrics, the bounds of the headline metric, and what this run is ahead of it."""
        return cls(
            run_kind=run.kind,
            parties=run.parties,
            protection=run.protection,
            attack=run.attack,
            metrics=metrics,
            low=bounds[0],
            high=bounds[1],
            ahead=ahead,
        )

    @property
    def run(self) -> RunId:
        """The training."""
        return RunId(self.run_kind, self.parties, self.protection, self.attack)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def name(self) -> str:
        """Label of the training."""
        return self.run.label

    @computed_field  # type: ignore[prop-decorator]
    @property
    def note(self) -> str:
        """Description of the training."""
        return self.run.note


class Gain(Difference):
    """Gain from passive parties in the headline metric over the active party's own columns.

    Attributes:
        parties: The passive parties.
    """

    parties: tuple[str, ...]

    @property
    def shown(self) -> int:
        """1 if the rows show that the parties add something, -1 if that they take something away, else 0."""
        return int((self.low or 0) > 0) - int((self.high or 0) < 0)


class PatternUtility(Bounded):
    """This run's model on the held-out rows that the same passive parties have.

    Attributes:
        parties: The passive parties that have these rows; empty for the rows of the active party alone.
        rows: Number of rows.
        value: Headline metric on them; `None`, as the next three, where `groups_to_show` does not show them.
        low: Lower bound of it (95 % bootstrap).
        high: Upper bound of it.
        gain: What the parties add to own columns on these rows; `None` without a model of own columns.
    """

    parties: tuple[str, ...]
    rows: int
    value: Number = None
    gain: Gain | None = None


class UtilityResult(FrozenModel):
    """This run and its references.

    Attributes:
        metric: Name of the headline metric.
        higher_is_better: Direction of that metric.
        matters: Loss of that metric from which on a loss matters, as the job states.
        rows: This run, the runs it is compared with, then the references.
        choice: How the model of this run was chosen, if it was fitted at once.
        gain: What all passive parties add to the active party's own columns; `None` without a model of these.
        contributions: Shapley value of each passive party over the sets of parties that may be present, where the top
            model answers for every set; their sum is the gain over own columns, or over chance without any.
        columns: What the model loses without each column, of a model that was fitted at once.
        patterns: The held-out rows by the passive parties that have them, in a run on all rows; those of most parties
            first.
    """

    metric: str
    higher_is_better: bool = True
    matters: float = 0.02
    rows: tuple[ModelUtility, ...] = ()
    choice: FitResult | None = None
    gain: Gain | None = None
    contributions: tuple[Gain, ...] = ()
    columns: tuple[ColumnImportance, ...] = ()
    patterns: tuple[PatternUtility, ...] = ()

    def row(self, kind: RunKind) -> ModelUtility | None:
        """The first row of a kind, or `None`."""
        return next((row for row in self.rows if row.run_kind is kind), None)
