"""How good a model is on held-out rows, next to its references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import computed_field, model_validator

from cutlayer.config import FrozenModel
from cutlayer.models.fitted import FitResult
from cutlayer.results.number import Number
from cutlayer.results.run import RunId, RunKind


class ModelUtility(FrozenModel):
    """One model on the reported held-out rows.

    Attributes:
        run_kind: How its training differs from the job.
        parties: The parties that the kind is about, as in `RunId`.
        protection: Name of the protection alone.
        metrics: Metrics by name.
        low: Lower bound of the headline metric (95 % bootstrap).
        high: Upper bound of it.
    """

    run_kind: RunKind
    parties: tuple[str, ...] = ()
    protection: str = ""
    metrics: Mapping[str, Number]
    low: Number = None
    high: Number = None

    @model_validator(mode="before")
    @classmethod
    def _without_computed(cls, raw: Any) -> Any:
        """Drop what is written for readers and follows from the rest."""
        return {key: raw[key] for key in raw if key not in ("name", "note")} if isinstance(raw, Mapping) else raw

    @classmethod
    def of(
        cls, run: RunId, metrics: Mapping[str, float], bounds: tuple[float | None, float | None] = (None, None)
    ) -> ModelUtility:
        """The record of a run with its metrics and the bounds of the headline metric."""
        return cls(
            run_kind=run.kind,
            parties=run.parties,
            protection=run.protection,
            metrics=metrics,
            low=bounds[0],
            high=bounds[1],
        )

    @property
    def run(self) -> RunId:
        """The training."""
        return RunId(self.run_kind, self.parties, self.protection)

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


class UtilityResult(FrozenModel):
    """This run and its references.

    Attributes:
        metric: Name of the headline metric.
        higher_is_better: Direction of that metric.
        rows: This run, the runs it is compared with, then the references.
        choice: How the model of this run was chosen, if it was fitted at once.
    """

    metric: str
    higher_is_better: bool = True
    rows: tuple[ModelUtility, ...] = ()
    choice: FitResult | None = None

    def row(self, kind: RunKind) -> ModelUtility | None:
        """The first row of a kind, or `None`."""
        return next((row for row in self.rows if row.run_kind is kind), None)
