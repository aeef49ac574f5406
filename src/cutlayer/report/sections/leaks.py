"""Leaks of the messages: the matrix of protections and attacks, leaks per epoch, and every value behind them."""

from __future__ import annotations

from cutlayer.report import charts
from cutlayer.report.history import leak_domain, legend, series_of, shown_epochs, targets_of
from cutlayer.report.matrix import Matrix, covers_chance, matrix_of, strength, target_of
from cutlayer.report.rounding import auc, count, interval, times
from cutlayer.report.section import (
    Answer,
    Block,
    Cell,
    Column,
    Fold,
    Items,
    Panel,
    Panels,
    Paragraph,
    Section,
    Table,
    number,
    table,
)
from cutlayer.results.leaks import LeakResult
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

BRIEF_RUNS = 4
"""Number of runs that fit beside each other in a terminal."""
_LEAD = (
    "Each value is the leak of an attack on the very messages that were sent: max(AUC, 1\u00a0−\u00a0AUC) of its "
    "scores against the true labels, 0.5 for chance and 1 for every label. An attacker keeps everything it has seen, "
    "so the worst epoch counts; being the largest of several, it lies somewhat above 0.5 even where nothing leaks."
)


def leaks(report: Report) -> Section:
    """Leaks of the labels through embeddings and cut gradients."""
    matrix = matrix_of(report)
    blocks: list[Block] = [Paragraph("No attack was run on this job's messages.")]
    brief: list[Block] = [Paragraph("No leak was measured."), Items(report.limits)]
    if matrix.targets:
        values = tuple(_values(matrix, run) for run in matrix.runs)
        blocks = [
            Paragraph(_LEAD, "lead"),
            _matrix(matrix),
            *_panels(report),
            Fold("Every value of the matrix", values),
        ]
        brief = [Paragraph("Leak at the worst epoch (e), 95 % interval below: 0.5 is chance, 1 every label")]
        brief += _brief(matrix)
        if report.limits:
            brief.append(Paragraph(f"Not measured: {len(report.limits)}; the report says what and why."))
    if report.limits:
        blocks.append(Items(report.limits, "What was not measured, and why"))
    answer = Answer("Worst leak", _answer(report, matrix))
    return Section("leaks", "Leaks at the cut layer", tuple(blocks), brief, "Leaks", (answer,))


def _matrix(matrix: Matrix) -> Table:
    worst = matrix.worst(RunKind.THIS_RUN)

    def cell(leak: LeakResult | None) -> Cell:
        if leak is None:
            return Cell("not run", tone="muted")
        epoch = f"epoch {leak.epoch}" + (", ≈ chance" if covers_chance(leak) else "")
        notes, tone = (interval(leak.low, leak.high), epoch), f"h{strength(leak.leak)}"
        if leak is worst:
            return Cell(auc(leak.leak), (*notes, "worst of run"), tone=f"{tone} worst")
        return Cell(auc(leak.leak), notes, tone=tone)

    columns = [
        (number(target.attack, target.party, target.message), lambda run, at=target: cell(matrix.cell(run, at)))
        for target in matrix.targets
    ]
    return table(
        "Leak by protection, party, message and attack, with 95\u00a0% bootstrap intervals and the worst epoch",
        matrix.runs,
        (Column("Run and its protections", groups=("", "")), lambda run: Cell(run, (matrix.runs[run],))),
        *columns,
        own=lambda run: run == RunKind.THIS_RUN,
        layout="matrix",
    )


def _brief(matrix: Matrix) -> list[Table]:
    """The matrix on its side, so that it fits 80 columns: a row per target, a column per run."""

    def cell(leak: LeakResult | None) -> Cell:
        if leak is None:
            return Cell("not run", tone="muted")
        bounds, tone = interval(leak.low, leak.high), f"h{strength(leak.leak)}"
        return Cell(f"{auc(leak.leak)} e{leak.epoch}", (bounds,), tone=tone)

    attack = ("Attack", lambda target: Cell(target.attack, (f"{target.message} {target.party}",)))
    columns = [
        (Column(run, note=note), lambda target, run=run: cell(matrix.cell(run, target)))
        for run, note in matrix.runs.items()
    ]
    starts = range(0, len(columns), BRIEF_RUNS)
    return [
        table("Leak by attack and run", matrix.targets, attack, *columns[start : start + BRIEF_RUNS])
        for start in starts
    ]


def _panels(report: Report) -> list[Panels]:
    """Leak per epoch: one panel per party, message and attack, all on one scale."""
    history = shown_epochs(report)
    domain = leak_domain(value for epoch in history for value in epoch.leak.values())
    groups: dict[str, list[Panel]] = {}
    for target in targets_of(report):
        series = series_of(report, [(epoch.run, epoch.epoch, epoch.leak.get(target.key)) for epoch in history])
        if series:
            worst = charts.summary(series, "worst", max, auc)
            label = f"Leak per epoch, {target.attack} on the {target.message}s of {target.party}. {worst}"
            svg = charts.lines(series, label, domain, reference=0.5, write=auc)
            groups.setdefault(target.party, []).append(Panel(target.attack, f"on {target.message}s", svg))
    drawn = legend(report, [epoch.run for epoch in report.history if epoch.leak])
    titled = tuple((party, tuple(panels)) for party, panels in groups.items())
    return [Panels(titled, drawn, "Leak per epoch")] if titled else []


def _values(matrix: Matrix, run: str) -> Table:
    def other_aucs(leak: LeakResult) -> Cell:
        return Cell(", ".join(map(auc, leak.other_aucs.values())) or "n/a", tuple(leak.other_aucs))

    note = matrix.runs[run]
    return table(
        f"{run}: {note}" if note else run,
        [leak for target in matrix.targets if (leak := matrix.cell(run, target)) is not None],
        (Column("Attack", groups=("",)), lambda leak: Cell(leak.attack, (f"{leak.message}, {leak.party}",))),
        (number("leak", "Leak"), lambda leak: auc(leak.leak)),
        (number("95\u00a0% interval", "Leak"), lambda leak: interval(leak.low, leak.high)),
        (number("epoch", "Worst epoch"), lambda leak: str(leak.epoch)),
        (number("of", "Worst epoch"), lambda leak: str(leak.epochs_seen)),
        (number("batch mean", "Other AUC"), lambda leak: auc(leak.batch_auc)),
        (number("pooled", "Other AUC"), lambda leak: auc(leak.pooled_auc)),
        (number("first epoch", "Other AUC"), lambda leak: auc(leak.first_epoch_leak)),
        (number("last epoch", "Other AUC"), lambda leak: auc(leak.last_epoch_leak)),
        (number("others", "Other AUC"), other_aucs),
        (number("accuracy", "Hard labels"), lambda leak: auc(leak.hard_accuracy)),
        (number("renamed", "Hard labels"), lambda leak: auc(leak.assigned_accuracy)),
        (number("AUC", "Hard labels"), lambda leak: auc(leak.hard_auc)),
        (number("rows", "Scored"), lambda leak: count(leak.rows)),
        (number("positive", "Scored"), lambda leak: count(leak.positives)),
        (number("batches", "Scored"), lambda leak: "n/a" if leak.batches is None else count(leak.batches)),
        (Column("The attacker knows", "text", ("",)), lambda leak: "; ".join(leak.knowledge) or "only the messages"),
    )


def _answer(report: Report, matrix: Matrix) -> str:
    worst, undefended = matrix.worst(RunKind.THIS_RUN), matrix.worst(RunKind.UNDEFENDED)
    if worst is None:
        return f"Nothing was measured: {report.limits[0] if report.limits else 'no attack was run.'}"
    text = (
        f"{worst.attack} on the {worst.message}s of {worst.party}, at the worst of "
        f"{times(worst.epochs_seen, 'epoch')} (epoch {worst.epoch}): "
        f"{auc(worst.leak)}, 95\u00a0% interval {interval(worst.low, worst.high)}; 0.5 is chance."
    )
    if covers_chance(worst):
        text += " The interval includes chance."
    same = matrix.cell(RunKind.UNDEFENDED, target_of(worst))
    if same is not None:
        text += f" On the undefended run the same attack reaches {auc(same.leak)}."
    # The undefended run may leak most at another target.
    if undefended is not None and target_of(undefended) != target_of(worst):
        where = f"{undefended.attack} on the {undefended.message}s of {undefended.party}"
        text += f" The undefended run leaks most to {where}: {auc(undefended.leak)}."
    return text
