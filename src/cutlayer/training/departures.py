"""Utility of a model when parties leave, with its references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cutlayer.config import Job
from cutlayer.data.store import Store
from cutlayer.models.absence import Names
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.results.departure import AbsenceUtility, DepartureResult, LeftParty
from cutlayer.results.run import RunId, RunKind
from cutlayer.results.utility import ModelUtility
from cutlayer.training.utility import interval


def departure_result(active: ActiveOutcome, seed: int) -> DepartureResult:
    """Utility of the finished model for every set of absent parties, none first, and the cost of further heads."""
    rows = []
    for absent, logits in {(): active.logits, **active.logits_without}.items():
        low, high = interval(active.task, logits, active.labels, seed)
        row = AbsenceUtility(
            absent=absent,
            contributed=tuple(name for name in active.widths if name not in {*absent, *active.lost}),
            metrics=dict(active.task.evaluate(logits, active.labels)) if len(logits) else {},
            low=low,
            high=high,
        )
        rows.append(row)
    heads = active.extra_heads
    left = tuple(
        LeftParty(party=name, epoch=when.epoch + 1, step=when.step + 1, why=when.why)
        for name, when in active.lost.items()
    )
    return DepartureResult(left=left, heads=1 + len(heads), extra_parameters=sum(heads), rows=tuple(rows))


def with_references(
    departures: DepartureResult, undefended: DepartureResult | None, references: Sequence[ModelUtility], metric: str
) -> DepartureResult:
    """The result with the headline metric of other models without the same parties.

    Args:
        departures: This run's result.
        undefended: Result of the undefended baseline, if it was trained.
        references: Held-out metrics of all references; the retrained and fine-tuned ones are used.
        metric: Name of the headline metric.
    """
    values: dict[tuple[RunKind, Names], float | None] = {}
    for row in undefended.rows if undefended else ():
        values[RunKind.UNDEFENDED, row.absent] = row.metrics.get(metric)
    for model in references:
        if model.run_kind is RunKind.ALONE:
            absent = tuple(name for name in departures.rows[0].contributed if name not in model.parties)
            values[RunKind.RETRAINED, absent] = model.metrics.get(metric)
        else:
            values[model.run_kind, model.parties] = model.metrics.get(metric)
    kinds = (RunKind.UNDEFENDED, RunKind.RETRAINED, RunKind.FINETUNED)
    rows = []
    for row in departures.rows:
        known = {str(kind): values[kind, row.absent] for kind in kinds if (kind, row.absent) in values}
        rows.append(row.model_copy(update={"references": known}))
    return departures.model_copy(update={"rows": tuple(rows)})


def retrained_stores(job: Job, stores: Mapping[str, Store]) -> Iterator[tuple[RunId, dict[str, Store]]]:
    """The references trained without each single passive party, and their columns."""
    for name in job.passives:
        left = {other: store for other, store in stores.items() if other != name}
        if left:
            alone = [*left] == [job.active]
            yield RunId(RunKind.ALONE, (job.active,)) if alone else RunId(RunKind.RETRAINED, (name,)), left


def finetuned_sets(job: Job, stores: Mapping[str, Store]) -> Iterator[Names]:
    """The sets of absent parties that the top model is fine-tuned for: each single passive party, and all of them."""
    for absent in dict.fromkeys([*((name,) for name in job.passives), job.passives]):
        if stores.keys() - set(absent):
            yield absent
