"""The sections of a passive party's report, which the page, the terminal and Markdown render in their own way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cutlayer.accounting.wording import with_bound
from cutlayer.channel.kinds import Kind, meaning_of
from cutlayer.config.aggregate import UNDATED
from cutlayer.report.alignment import alignment_section
from cutlayer.report.carried import carried_section
from cutlayer.report.passive.reach import ability_phrase, figure_text, knowledge_text, weakest_first
from cutlayer.report.rounding import as_sentence, bounds, count, date, metric, share, size, times
from cutlayer.report.section import (
    Answer,
    Block,
    Cell,
    Column,
    Facts,
    Findings,
    Fold,
    Items,
    Paragraph,
    Section,
    Table,
    number,
    table,
)
from cutlayer.report.sections.columns import columns_table
from cutlayer.report.sections.protections import (
    REPRODUCIBLE_NOT_PRIVATE,
    evidence_table,
    formal_table,
    guarantee_tests_section,
    totals_table,
)
from cutlayer.report.sections.scope import attack_glossary
from cutlayer.results.audit import UNMEASURED_BY_PASSIVE
from cutlayer.results.features import FeatureResult
from cutlayer.results.metric_names import name_of
from cutlayer.results.passive import MessageCount, PartReleases, PassiveReport
from cutlayer.results.run_files import files_statement

RUN_AUDIT = "`cutlayer audit {folder} --attack inversion` attacks what was recorded"
_LAST_START = "The run was resumed: messages are those of its last start. `cutlayer trail show` has all of them."

_ALONE = (
    "Not measured here: what {0} reads with its own columns and labels in addition, and the ideal output, which is "
    "what the score of a model of all columns would reveal in any system. Both need its columns and labels: a run of "
    "all parties in one process measures them."
)


def passive_sections(report: PassiveReport) -> tuple[Section, ...]:
    """All sections in the order of the page, without those that have nothing to show."""
    sections = (
        _sent(report),
        _attacks(report),
        carried_section(report.carried),
        _learned(report),
        alignment_section(report.alignment),
        _guarantees(report),
        guarantee_tests_section(report.guarantees),
        _findings(report),
        _unmeasured(report),
        _job(report),
    )
    return tuple(section for section in sections if section is not None)


def _findings(report: PassiveReport) -> Section | None:
    if not report.findings:
        return None
    text = f"{times(len(report.findings), 'finding')} about columns of {report.party}, or files of the run."
    blocks = (Findings(report.findings),)
    return Section("findings", "Findings", blocks, blocks, "Findings", (Answer("Findings", text),))


def _sent(report: PassiveReport) -> Section:
    rows = [part for part in report.releases if part.rows and part.releases]
    messages = [message for message in report.messages if message.sent]
    released = sum(message.rows for message in messages)
    lead = (
        f"{report.party} sent {times(sum(message.sent for message in messages), 'message')} to {report.active}, "
        f"{size(sum(message.bytes_sent for message in messages))} in all, and none to another party. Releases of rows "
        "are numbers computed from their columns."
    )
    planned = "Predictions release rows again; none are in these counts."
    if report.serving:
        planned = f"Predictions are planned to release each row {count(report.serving)} more times."
    by_row = table(
        "Releases by row, in the training",
        rows,
        (Column("Rows", "text"), lambda part: f"{part.part} rows"),
        (number("Number"), lambda part: count(part.rows)),
        (number("Releases of each"), _often),
    )
    left_out = tuple(_left_out(report))
    notes = [*left_out, planned]
    notes += [_LAST_START] * report.resumed
    by_kind = Fold("Messages sent, by kind", (_messages(messages, "sent"),))
    blocks: tuple[Block, ...] = (Paragraph(lead, "lead"), by_row, Items(tuple(notes)), by_kind)
    most = max((part.releases for part in rows), default=0)
    often = "once" if most == 1 else f"up to {count(most)} times"
    text = (
        f"To {report.active} alone: {count(released)} releases of {count(sum(part.rows for part in rows))} rows, "
        f"each row {often}; "
        f"{size(sum(message.bytes_sent for message in messages))} in all."
    )
    brief: list[Block] = [Paragraph(lead), by_row, *([Items(left_out)] if left_out else [])]
    return Section("sent", f"What {report.party} sent", blocks, brief, "Sent", (Answer("Sent", text),))


def _often(part: PartReleases) -> str:
    return "once" if part.releases == 1 else f"up to {count(part.releases)} times"


def _left_out(report: PassiveReport) -> Iterator[str]:
    """Rows that took no part, by the reason."""
    for reason, rows in report.rows.left_out.items():
        yield f"{count(rows)} rows of the file of {report.party} were left out, {reason}."
    if report.rows.undated:
        yield f"{report.party} aggregates {UNDATED} (CL122)."
    if missing := report.rows.table - report.rows.run:
        yield f"{count(missing)} of the {count(report.rows.table)} rows of {report.party} took no part: none was sent."


def _messages(messages: Sequence[MessageCount], direction: str) -> Table:
    """Messages by kind; of what was sent with its rows."""
    sent = direction == "sent"
    columns = [
        (Column("Message", "text"), lambda message: message.kind.replace("_", " ")),
        (number("Messages"), lambda message: count(message.sent if sent else message.received)),
        (number("Rows"), lambda message: count(message.rows) if message.rows else "none"),
        (number("Bytes"), lambda message: size(message.bytes_sent if sent else message.bytes_received)),
        (Column("What it is", "statement"), lambda message: meaning_of(message.kind)),
    ]
    if not sent:
        del columns[2]
    return table(f"Messages {direction}, by kind", messages, *columns, layout="stack")


def _attacks(report: PassiveReport) -> Section:
    lead = (
        f"Attacks that {report.party} ran on its own columns, from its record of what {report.active} received. Each "
        "figure stands with the weakest knowledge that reaches it. A better attack may read more."
    )
    shown = weakest_first(report.features)
    reached = _reached(shown) if shown else Paragraph(_none(report), "warn")
    blocks: list[Block] = [Paragraph(lead, "lead"), reached]
    brief: list[Block] = [reached]
    if more := [result for result in report.features if result not in shown]:
        blocks.append(Fold("Attacks that need more for no more, or gave no figure", (_reached(more),)))
    if columns := [_by_column(result) for result in shown if result.columns]:
        blocks.append(Fold("Column by column", tuple(columns)))
    if skipped := tuple(f"{attack.label}: {attack.reason}." for attack in report.skipped):
        blocks.append(Items(skipped, "Not run"))
        brief.append(Items(skipped))
    if shown and _is_sent_labels(report):
        blocks.append(Paragraph(_ALONE.format(report.active)))
    blocks += attack_glossary(result.attack for result in report.features)
    text = " ".join(_can(report, result) for result in shown[:3]) or _none(report)
    answer = Answer("Columns", text, "plain" if shown else "bad")
    title = f"What attacks on the columns of {report.party} reach"
    return Section("attacks", title, blocks, brief, "Attacks", (answer,))


def _can(report: PassiveReport, result: FeatureResult) -> str:
    """What the active party can read, with what it must know, as a sentence."""
    figure = f"{figure_text(result)}, {result.attack}"
    return f"Knowing {knowledge_text(result)}, {report.active} can {ability_phrase(result)} ({figure})."


def _none(report: PassiveReport) -> str:
    how = RUN_AUDIT.format(folder=report.folder)
    if report.asked:
        return (
            f"No attack of this party's audit gave a figure ({', '.join(report.asked)}): nothing is known of what "
            f"{report.active} can read. {how}."
        )
    return (
        f"Not attacked: this party's audit names no attack on its columns. {how}; `audit: {{attacks: [inversion]}}` in "
        "the private file does so in the next run."
    )


def _reached(results: Sequence[FeatureResult]) -> Table:
    return table(
        "What the attacker must know, and what it then reads",
        results,
        (Column("The attacker knows", "text"), knowledge_text),
        (Column("It can", "text"), lambda result: Cell(ability_phrase(result), (result.release,))),
        (number("Figure"), lambda result: Cell(figure_text(result), _bounds(result))),
        (number("Without what was sent"), lambda result: _value(result, result.baseline)),
        (Column("Attack", "text"), lambda result: Cell(result.attack, (f"on {count(result.rows)} rows",))),
        layout="stack",
    )


def _value(result: FeatureResult, value: float | None) -> str:
    """A value of an attack's metric, in the unit of its figure."""
    return metric(value) if value is None or result.metric != "exact" else share(value, 1)


def _bounds(result: FeatureResult) -> tuple[str, ...]:
    if result.metric != "exact" or result.low is None:
        return bounds(result.low, result.high)
    return (f"{_value(result, result.low)} to {_value(result, result.high)}",)


def _by_column(result: FeatureResult) -> Table:
    exact = result.metric == "exact"
    return table(
        f"{result.attack}, {result.release}, {knowledge_text(result)}",
        result.columns,
        ("Column", lambda column: column.column),
        (number("Rows read exactly" if exact else name_of(result.metric)), lambda column: _value(result, column.value)),
        (number("Without what was sent"), lambda column: _value(result, column.baseline)),
    )


def _learned(report: PassiveReport) -> Section:
    received = [message for message in report.messages if message.received]
    facts = tuple(_of_labels(report, received))
    lead = Paragraph(f"What {report.active} sent to {report.party}, and what that says of the labels.", "lead")
    blocks = (lead, Items(facts), Fold("Messages received, by kind", (_messages(received, "received"),)))
    section = Section("learned", f"What {report.party} learned", blocks, (Items(facts),), "Learned")
    return replace(section, answers=(Answer("Learned", " ".join(facts)),))


def _of_labels(report: PassiveReport, received: Sequence[MessageCount]) -> Iterator[str]:
    gradients = next((message for message in received if message.kind == "gradient"), None)
    if gradients is not None:
        yield (
            f"{times(gradients.received, 'message')} of gradients ({size(gradients.bytes_received)}), which depend on "
            f"labels: what they reveal is in the report of {report.active}, and not measured here."
        )
    elif _is_sent_labels(report):
        yield (
            "One label of each training row, drawn by randomised response, and nothing else that depends on labels: "
            f"what draws and own columns reveal together is in the report of {report.active}, and not measured here."
        )
    elif report.label_free:
        yield "No gradient, and no label: no message that it was sent depends on a label" + (
            ", but the end of the training can." if report.sees_end else "."
        )
    else:
        yield "No gradient, and no label."
    if report.split_sent:
        yield f"Which rows train, validate and test, by a column or the labels of {report.active}: it can show labels."


def _is_sent_labels(report: PassiveReport) -> bool:
    return any(message.kind == Kind.LABELS and message.received for message in report.messages)


def _guarantees(report: PassiveReport) -> Section:
    totals = report.ledger.totals
    proved = [total for total in totals if total.epsilon is not None]
    stated = tuple(as_sentence(total.statement) for total in totals)
    none = f"None: nothing protects the columns of {report.party}, and all that it sent is as its model computed it."
    lead = "What is proved for the whole run, for any attacker, with the conditions. It is no measurement."
    blocks: list[Block] = [Paragraph(lead, "lead"), Items(stated or (none,))]
    if proved:
        blocks.append(totals_table(proved))
    if report.protections:
        blocks += [evidence_table(report.protections), formal_table(report.protections)]
    if report.reproducible_noise:
        blocks.append(Paragraph(REPRODUCIBLE_NOT_PRIVATE, "warn"))
    text = " ".join(as_sentence(with_bound(total)) for total in totals) or none
    return Section(
        "guarantees",
        "What is proved, and under which conditions",
        blocks,
        (Items(stated or (none,)),),
        "Guarantees",
        (Answer("Guarantees", text, "plain" if proved else "bad"),),
    )


def _unmeasured(report: PassiveReport) -> Section:
    alarms = tuple(
        f"Alarm about {alarm.peer} in epoch {alarm.epoch + 1}, step {alarm.step + 1}: {alarm.detail}."
        for alarm in report.alarms
    )
    missing = (
        as_sentence(UNMEASURED_BY_PASSIVE),
        "Other trainings on the same rows, and predictions, are releases of their own: `cutlayer ledger` adds them up.",
    )
    blocks: tuple[Block, ...] = (Items(missing),)
    if alarms:
        blocks = (Items(alarms, "Alarms of this party's guard"), *blocks)
    answers = (Answer("Alarms", " ".join(alarms), "bad"),) if alarms else ()
    return Section("not-measured", "Not measured here", blocks, (Items((*alarms, *missing)),), "Limits", answers)


def _job(report: PassiveReport) -> Section:
    facts = (
        ("Run folder", report.folder),
        ("Its files", files_statement(report.files)),
        ("Job digest", report.job_digest),
        ("Training", f"{report.training}, in the trails and model cards of its parties"),
        ("Ended", date(report.created)),
        ("Epochs", count(report.epochs)),
        ("Trained on", report.device),
        ("Software", f"Cutlayer {report.cutlayer}"),
    )
    columns = columns_table((report.columns,), "report.json")
    return Section("job", "The columns and the job", (columns, Facts(facts)), nav="Job")
