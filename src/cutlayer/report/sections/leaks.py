"""Leaks of the messages: the matrix of protections and attacks, leaks per epoch, and every value behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cutlayer.attacks.knowledge import condition, in_words
from cutlayer.config.party import LABEL_FREE
from cutlayer.report import charts, rounding
from cutlayer.report.history import leak_domain, legend, series_of, shown_epochs, targets_of
from cutlayer.report.matrix import LeakTarget, Matrix, covers_chance, leak_step, matrix_of, target_of
from cutlayer.report.releases import ONLY_RELEASE, is_only_release, release_of
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
from cutlayer.report.sections.scope import attack_glossary, unmeasured_answer
from cutlayer.results.decimals import NOT_AVAILABLE
from cutlayer.results.leaks import LabelCurve, LeakResult
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

_LEAD = (
    "Each value is the leak of an attack on the very messages that were sent: {}, 0.5 for chance and 1 for every "
    "label. An attacker stores everything it has seen: attacks on the whole run score each row once from all its "
    "epochs (run), all others count at their worst epoch. A party's own columns reveal something without any "
    "message; the excess is what an attack reads beyond that. Own model after leaving is the held-out AUC of a "
    "model that the party trains alone, on labels that an attack inferred."
)
_TOGETHER = (
    "Parties together pool what they hold: their messages are attacked side by side, and compared with the columns of "
    "all of them. Each of them also has what it reads alone, which can be more."
)
_IDEAL = (
    "Ideal output is the score of a model of all columns, which a computation that reveals nothing else hands over: no "
    "system hides it from those who get scores."
)
_CLASSES = "max(AUC, 1\u00a0−\u00a0AUC) of its scores against the true labels"
_VALUES = "max(c, 1\u00a0−\u00a0c) of the share c of pairs of rows that its scores order as the true values do"

MAX_FURTHER_SCORES = 6
"""Number of further scores of an attack that the page shows; report.json has all."""


def leaks_section(report: Report) -> Section:
    """Leaks of the labels through embeddings and cut gradients."""
    matrix = matrix_of(report)
    blocks: list[Block] = [Paragraph("No attack was run on this job's messages.")]
    brief: list[Block] = [Paragraph("No leak was measured."), Items(report.limits)]
    if matrix.targets:
        values = tuple(_values(report, matrix, run) for run in matrix.runs)
        blocks = [
            _strongest(matrix, report),
            Fold("How leaks are measured", tuple(_measured(report, matrix))),
            Fold("Every attack and run", (_matrix(report, matrix), *_curves(report), *_panels(report))),
            Fold("Every value of the matrix", values),
            *attack_glossary(target.attack for target in matrix.targets),
        ]
        brief = [
            Paragraph("Strongest attack on each kind of message, 95 % interval below: 0.5 is chance, 1 every label"),
            _strongest(matrix, report),
        ]
        if len(matrix.runs) > 1:
            brief += _by_run(matrix)
        if report.limits:
            brief.append(Paragraph(f"Not measured: {len(report.limits)}; the report says what and why."))
    if report.left_out:
        names = ", ".join(report.left_out)
        partial = Paragraph(f"This audit leaves out attacks of the default catalogue: {names}. No gate passes on it.")
        blocks, brief = [partial, *blocks], [*brief, partial]
    if report.limits:
        what = f"What was not measured, and why: {times(len(report.limits), 'attack')}"
        blocks.append(Fold(what, (Items(report.limits),)))
    answer = Answer("Worst leak", _answer(report, matrix))
    return Section(
        "leaks", "Leaks at the cut layer", tuple(blocks), brief, "Leaks", (answer, unmeasured_answer(report))
    )


def _measured(report: Report, matrix: Matrix) -> Iterator[Paragraph]:
    yield Paragraph(_LEAD.format(_VALUES if report.task.kind == "regression" else _CLASSES))
    if any(target.together for target in matrix.targets):
        yield Paragraph(_TOGETHER)
    if any(baseline.ideal is not None for baseline in matrix.baselines.values()):
        yield Paragraph(_IDEAL)
    if report.sample:
        yield Paragraph(report.sample)


def _strongest(matrix: Matrix, report: Report) -> Table:
    """The strongest attack on each kind of message of each party, and what its leak compares with."""
    pairs = list(dict.fromkeys((target.party, target.message) for target in matrix.targets))
    words = {target.party: target.attacker for target in matrix.targets}
    worst = {pair: leak for pair in pairs if (leak := matrix.worst(RunKind.THIS_RUN, *pair)) is not None}

    def undefended(pair: tuple[str, str]) -> str:
        baseline = matrix.worst(RunKind.UNDEFENDED, *pair)
        if baseline is None:
            # A release without labels is a measure, though none that changes a message and has evidence.
            free = any(entry.protection == LABEL_FREE for entry in report.ledger.entries)
            return NOT_AVAILABLE if report.protections or free else str(RunKind.THIS_RUN)
        return auc(baseline.leak)

    def excess(pair: tuple[str, str]) -> Cell:
        columns = matrix.own_columns(worst[pair])
        return Cell(NOT_AVAILABLE) if columns is None else Cell(rounding.excess(worst[pair].leak - columns))

    def departed(pair: tuple[str, str]) -> str:
        leaks = [leak for leak in matrix.cells.values() if (leak.party, leak.message) == pair]
        values = [leak.departed_auc for leak in leaks if leak.run == RunKind.THIS_RUN and leak.departed_auc is not None]
        return auc(max(values, default=None))

    def chance(pair: tuple[str, str]) -> str:
        baseline = matrix.baselines.get(pair[0])
        return NOT_AVAILABLE if baseline is None else auc(baseline.chance)

    def ideal(pair: tuple[str, str]) -> str:
        return auc(getattr(matrix.baselines.get(pair[0]), "ideal", None))

    hidden = any(baseline.ideal is not None for baseline in matrix.baselines.values())
    binary = (
        (number("Own model after leaving", page_only=True), departed),
        (number("TPR at 1 % FPR", page_only=True), lambda pair: auc(worst[pair].true_positive_rate)),
    )
    return table(
        "Strongest attack on each party's messages in this run, with 95\u00a0% intervals: 0.5 is chance, 1 every label",
        list(worst),
        ("Message", lambda pair: Cell(f"{pair[1]}s", (words[pair[0]],))),
        ("Strongest attack", lambda pair: Cell(worst[pair].attack, _variant(worst[pair]))),
        (number("Leak"), lambda pair: _cell(worst[pair])),
        (number("Undefended"), undefended),
        (number("Own columns"), lambda pair: auc(matrix.own_columns(worst[pair]))),
        (number("Excess"), excess),
        *(((number("Ideal output"), ideal),) if hidden else ()),
        *(binary if report.task.kind == "binary" else ()),
        (number("Permuted labels", page_only=True), chance),
        layout="stack",
    )


def _variant(leak: LeakResult) -> tuple[str, ...]:
    return (leak.variant.replace("_", " "),) if leak.variant else ()


def _absent(matrix: Matrix, run: str, message: str) -> Cell:
    """Cell of a message that no attack read: an attack that was not run may have read something."""
    none_sent = message == "gradient" and LABEL_FREE in matrix.runs[run].split(", ")
    return Cell("none sent" if none_sent else "not run", tone="muted")


def _cell(leak: LeakResult, *notes: str) -> Cell:
    return Cell(auc(leak.leak), (interval(leak.low, leak.high), *notes), tone=f"h{leak_step(leak.leak)}")


def _matrix(report: Report, matrix: Matrix) -> Table:
    """A row for each attack on a message, a column for each run."""
    worst = matrix.worst(RunKind.THIS_RUN)

    def at(run: str, target: LeakTarget) -> Cell:
        leak = matrix.cell(run, target)
        if leak is None:
            return _absent(matrix, run, target.message)
        when = release_of(report, leak) + (", ≈ chance" if covers_chance(leak) else "")
        if leak is not worst:
            return _cell(leak, when)
        cell = _cell(leak, when, "worst of run")
        return replace(cell, tone=f"{cell.tone} worst")

    columns = [
        (Column(run, "number", note=note), lambda target, run=run: at(run, target)) for run, note in matrix.runs.items()
    ]
    return table(
        "Leak by party, message, attack and run, with 95\u00a0% intervals",
        matrix.targets,
        ("Attack", lambda target: Cell(target.attack, (_sent(target.message, target.attacker),))),
        *columns,
        layout="matrix",
    )


def _by_run(matrix: Matrix) -> list[Block]:
    """For each party a row for each run, and a column for the worst leak of each kind of message."""

    def worst(run: str, party: str, message: str) -> Cell:
        leak = matrix.worst(run, party, message)
        return _absent(matrix, run, message) if leak is None else _cell(leak)

    blocks: list[Block] = []
    for party, words in {target.party: target.attacker for target in matrix.targets}.items():
        messages = dict.fromkeys(target.message for target in matrix.targets if target.party == party)
        columns = [(number(f"{message}s"), lambda run, at=(party, message): worst(run, *at)) for message in messages]
        runs = ("Run", lambda run: Cell(run, (matrix.runs[run],)))
        shown = table("Worst leak by run", matrix.runs, runs, *columns, highlight=lambda run: run == RunKind.THIS_RUN)
        blocks += [Paragraph(f"Worst leak of the messages of {words}, by run"), shown]
    return blocks


def _curves(report: Report) -> list[Table]:
    """Leak by the number of labels that an attacker knows."""
    counts = sorted({point.labels for curve in report.curves for point in curve.points})

    def at(curve: LabelCurve, labels: int) -> Cell:
        point = next((point for point in curve.points if point.labels == labels), None)
        if point is None:
            return Cell(NOT_AVAILABLE)
        columns = "" if point.own_columns is None else f"columns {auc(point.own_columns)}"
        return Cell(auc(point.leak), (columns,) if columns else (), tone=f"h{leak_step(point.leak)}")

    columns = [(number(str(labels)), lambda curve, labels=labels: at(curve, labels)) for labels in counts]
    message = ("Message", lambda curve: Cell(f"{curve.message}s", (curve.attacker, curve.attack)))
    caption = "Leak by the number of labels known to the attacker who reads most; below it, of its own columns alone"
    return [table(caption, report.curves, message, *columns, layout="matrix")] if counts else []


def _panels(report: Report) -> list[Panels]:
    """Leak per epoch: one panel per party, message and attack, all on one scale."""
    # An epoch that was not recorded is no gap in a line.
    history = [epoch for epoch in shown_epochs(report) if epoch.leak]
    if len({epoch.epoch for epoch in history}) < 2:  # a single point is no line, and the matrix has it
        return []
    domain = leak_domain(value for epoch in history for value in epoch.leak.values())
    groups: dict[str, list[Panel]] = {}
    for target in targets_of(report):
        series = series_of(report, [(epoch.run, epoch.epoch, epoch.leak.get(target.key)) for epoch in history])
        if series:
            worst = charts.series_in_words(series, "worst", max, auc)
            label = f"Leak per epoch, {target.attack} on the {target.message}s of {target.party}. {worst}"
            svg = charts.line_chart(series, label, domain, reference=0.5, write=auc)
            groups.setdefault(target.party, []).append(Panel(target.attack, f"on {target.message}s", svg))
    drawn = legend(report, [epoch.run for epoch in report.history if epoch.leak])
    titled = tuple((party, tuple(panels)) for party, panels in groups.items())
    return [Panels(titled, drawn, "Leak per epoch")] if titled else []


def _values(report: Report, matrix: Matrix, run: str) -> Table:
    def epoch(leak: LeakResult) -> str:
        return ONLY_RELEASE if is_only_release(report, leak) else str(leak.epoch)

    def other_aucs(leak: LeakResult) -> Cell:
        shown, more = [*leak.other_aucs.items()][:MAX_FURTHER_SCORES], len(leak.other_aucs) - MAX_FURTHER_SCORES
        notes = (", ".join(name for name, _ in shown), *([f"and {more} more in report.json"] if more > 0 else ()))
        return Cell(", ".join(auc(value) for _, value in shown) or NOT_AVAILABLE, notes if shown else ())

    note = matrix.runs[run]
    return table(
        f"{run}: {note}" if note else run,
        [leak for target in matrix.targets if (leak := matrix.cell(run, target)) is not None],
        (Column("Attack", groups=("",)), lambda leak: Cell(leak.attack, (f"{leak.message}, {leak.attacker}",))),
        (number("leak", "Leak"), lambda leak: auc(leak.leak)),
        (number("95\u00a0% interval", "Leak"), lambda leak: interval(leak.low, leak.high)),
        (number("epoch", "Worst epoch"), epoch),
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
        (number("batches", "Scored"), lambda leak: NOT_AVAILABLE if leak.batches is None else count(leak.batches)),
        (
            Column("The attacker knows", "text", ("",)),
            lambda leak: "; ".join(in_words(leak.knowledge)) or "only the messages",
        ),
    )


def _sent(message: str, attacker: str) -> str:
    """What an attack reads, in words: labels are sent to a partner, and all else is its own."""
    return f"{message}s {'sent to' if message == 'label' else 'of'} {attacker}"


def _answer(report: Report, matrix: Matrix) -> str:
    worst, undefended = matrix.worst(RunKind.THIS_RUN), matrix.worst(RunKind.UNDEFENDED)
    if worst is None:
        return f"Nothing was measured: {report.limits[0] if report.limits else 'no attack was run.'}"
    epochs = times(worst.epochs_seen, "epoch")
    when = f"over {epochs}" if worst.whole_run else f"at the worst of {epochs} (epoch {worst.epoch})"
    when = ONLY_RELEASE if is_only_release(report, worst) else when
    text = (
        f"{worst.attack} on the {_sent(worst.message, worst.attacker)}, {when}: "
        f"{auc(worst.leak)}, 95\u00a0% interval {interval(worst.low, worst.high)}; 0.5 is chance."
    )
    needed = condition(worst.knowledge)
    if needed:
        text += f" The attacker has {needed}."
    columns = matrix.own_columns(worst)
    if columns is not None:
        whose = "Their" if worst.together else "The party's"
        text += f" {whose} own columns reach {auc(columns)}."
    if covers_chance(worst):
        text += " The interval includes chance."
    same = matrix.cell(RunKind.UNDEFENDED, target_of(worst))
    if same is not None:
        text += f" On the undefended run the same attack reaches {auc(same.leak)}."
    # The undefended run may leak most at another target.
    if undefended is not None and target_of(undefended) != target_of(worst):
        where = f"{undefended.attack} on the {_sent(undefended.message, undefended.attacker)}"
        text += f" The undefended run leaks most to {where}: {auc(undefended.leak)}."
    return text
