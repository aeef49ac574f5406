"""Model completion by a departed party."""

from __future__ import annotations

from collections.abc import Sequence

from cutlayer.attacks.knowledge import in_words
from cutlayer.report.rounding import count, interval, metric
from cutlayer.report.section import Answer, Block, Cell, Column, Fold, Paragraph, Section, Table, number, table
from cutlayer.report.sections.bars import Value, bar_charts
from cutlayer.results.completion import CompletionResult, VariantValue, best
from cutlayer.results.decimals import NOT_AVAILABLE
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

TITLE = "Model completion by a departed party"
_SCRATCH = "from scratch: "
_PICKED = "strongest variant, picked after the fact"


def completion_section(report: Report) -> Section | None:
    """Utility of a departed party's completed model; `None` if no model was completed."""
    results = report.completions
    if not results:
        return None
    knowledge = "; ".join(dict.fromkeys(known for result in results for known in in_words(result.knowledge)))
    lead = (
        "A passive party that leaves keeps its bottom model. An attack completes it with a head and tests it alone on "
        f"the {report.data.reported[1]}. The attacker knows {knowledge}. From scratch is the same training from the "
        f"untrained bottom model, on the same labels. Each value is that of the {_PICKED} on these rows, on both sides."
    )
    groups: dict[str, list[CompletionResult]] = {}
    for result in results:
        groups.setdefault(f"{result.party}, {_labels(result)} labels", []).append(result)
    bars = bar_charts(report, {title: _bars(group) for title, group in groups.items()})
    blocks: list[Block] = [Paragraph(lead, "lead"), *bars, _table(report), Fold("All variants", (_variants(report),))]
    note = f"{name_of(report.utility.metric)} of the {_PICKED}, on both sides; 95 % interval below"
    brief = (Paragraph(note), _table(report))
    return Section("completion", TITLE, blocks, brief, "Model completion", _answers(report), folded=True)


def _table(report: Report) -> Table:
    return table(
        f"{name_of(report.utility.metric)} of the completed models, beside the model of all parties of the same run",
        report.completions,
        ("Completed model", lambda result: Cell(result.party, (f"{result.run}, {result.attack}",))),
        (number("Labels"), _labels),
        (Column("Strongest variant", "text", page_only=True), lambda result: _name(best(result.variants))),
        (number("Completed"), lambda result: _cell(best(result.variants))),
        (number("From scratch"), lambda result: _cell(best(result.scratch))),
        (number("All parties"), lambda result: _all_parties(result, report)),
        highlight=lambda result: result.run == RunKind.THIS_RUN,
    )


def _name(value: VariantValue | None) -> str:
    return value.variant if value else ""


def _cell(value: VariantValue | None) -> Cell:
    return Cell(metric(value.value), (interval(value.low, value.high),)) if value else Cell(NOT_AVAILABLE)


def _all_parties(result: CompletionResult, report: Report) -> str:
    """The value of all parties' model of the same run."""
    model = next((model for model in report.utility.rows if model.name == result.run), None)
    return metric(model.metrics.get(report.utility.metric) if model else None)


def _labels(result: CompletionResult) -> str:
    return f"{'all ' if result.all_labels else ''}{count(result.labels)}"


def _variants(report: Report) -> Table:
    """Every variant of each result, and its controls; one that was not run for a result has an empty cell."""
    results = report.completions
    from_scratch = ({f"{_SCRATCH}{value.variant}": value for value in result.scratch} for result in results)
    variants = ({value.variant: value for value in result.variants} for result in results)
    tables = [own | scratch for own, scratch in zip(variants, from_scratch, strict=True)]
    heads = [f"{result.party}, {result.run}, {result.attack}, {_labels(result)} labels" for result in results]
    columns = [
        (number(head), lambda name, values=values: _cell(values[name]) if name in values else "")
        for head, values in zip(heads, tables, strict=True)
    ]
    headline = name_of(report.utility.metric)
    return table(
        f"{headline} of every variant with its 95\u00a0% interval; an empty cell is one for few labels only",
        sorted(dict.fromkeys(name for values in tables for name in values), key=lambda name: name.startswith(_SCRATCH)),
        ("Variant", lambda name: name),
        *columns,
    )


def _bars(results: Sequence[CompletionResult]) -> list[Value]:
    """The strongest variant of each run and attack, then the strongest from scratch."""
    named = [(f"{result.run}, {result.attack}", best(result.variants), True) for result in results]
    named.append(("from scratch, the same labels", best(results[0].scratch), False))
    return [Value(name, value.value, value.low, value.high, highlighted) for name, value, highlighted in named if value]


def _answers(report: Report) -> tuple[Answer, ...]:
    """The largest gain over training from scratch in this run."""
    gains = []
    for result in report.completions:
        value, scratch = best(result.variants), best(result.scratch)
        if result.run == RunKind.THIS_RUN and value and scratch:
            gains.append(((value.value or 0) - (scratch.value or 0), result, value, scratch))
    if not gains:
        return ()
    _, result, value, scratch = max(gains, key=lambda gain: gain[0])
    text = (
        f"{result.attack} with {_labels(result)} labels makes the model of {result.party} reach "
        f"{name_of(report.utility.metric)} {metric(value.value)} by itself ({_PICKED}); "
        f"from scratch {metric(scratch.value)}, all parties {_all_parties(result, report)}."
    )
    return (Answer("Model completion", text),)
