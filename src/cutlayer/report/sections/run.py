"""Parties and data, and the job as it was run."""

from __future__ import annotations

from collections.abc import Mapping

from cutlayer.channel.kinds import meaning_of
from cutlayer.report.rounding import count, share, size, times
from cutlayer.report.section import Answer, Block, Code, Column, Facts, Fold, Paragraph, Section, number, table
from cutlayer.report.sections.columns import columns_table
from cutlayer.results.report import Report
from cutlayer.results.run import RunInfo, TaskInfo
from cutlayer.results.run_files import files_statement

_IN_ONE_PROCESS = (
    "All parties ran in one process: ids and order are how it matches their rows, and left no machine. Between "
    "organisations private set intersection, which sends no digest of an id, takes their place unless the job has "
    "alignment: plain."
)

_OF_ROWS = ("labels", "gradient", "split", "embedding", "evaluation", "release")
"""Kinds of messages that are computed from labels or columns, which a reviewer asks for first."""


def parties_section(report: Report) -> Section:
    """The rows, and each party's table, part of the model, and traffic."""
    data = report.data
    lead = (
        f"{count(data.common)} rows {'of the active party' if data.held else 'common to all'}: {count(data.train)} to "
        f"train on, {count(data.validation)} to validate, {count(data.test)} to test. {rows_left_out(report)}"
        f"{_task(report.task)}"
    )
    listed = table(
        "Each party's table, part of the model, and traffic in training",
        report.parties,
        (Column("Party", groups=("",)), lambda party: party.name),
        (Column("Role", groups=("",)), lambda party: f"{party.role}{', released once' * party.released_once}"),
        (number("own rows", "Table"), lambda party: count(party.rows_own)),
        (number("numeric", "Encoded inputs"), lambda party: _disclosed(party.numeric)),
        (number("categorical", "Encoded inputs"), lambda party: _disclosed(party.categorical)),
        (number("cut width", "Model"), lambda party: "none" if party.width is None else count(party.width)),
        (number("parameters", "Model"), lambda party: _disclosed(party.parameters)),
        (number("sent", "Traffic"), lambda party: size(party.bytes_sent)),
        (number("received", "Traffic"), lambda party: size(party.bytes_received)),
    )
    blocks: tuple[Block, ...] = (Paragraph(lead, "lead"), listed)
    if report.columns:
        blocks += (Fold("The columns that went in", (columns_table(report.columns, "report.json"),)),)
    if traffic := report.active.traffic:
        blocks += (_traffic(traffic),)
        if "ids" in traffic and all(party.parameters is not None for party in report.parties):
            blocks += (Paragraph(_IN_ONE_PROCESS),)
    answers = (Answer("Sent", _sent(report)),) if report.active.traffic else ()
    return Section("parties", "Parties and data", blocks, nav="Parties", answers=answers, folded=True)


def _sent(report: Report) -> str:
    """What crossed of labels and columns, and the bytes of all else, in both directions."""
    active, passives = report.active, report.passives
    partners = passives[0] if len(passives) == 1 else "The partners"
    sides: list[str] = []
    for at, name in enumerate((active.name, partners)):
        sent = {kind: both[at] for kind, both in active.traffic.items() if both[at]}
        parts = [f"{meaning_of(kind)} ({size(sent.pop(kind))})" for kind in (*sent,) if kind in _OF_ROWS]
        rest = [f"{size(sum(sent.values()))} to match rows ({', '.join(sent).replace('_', ' ')})"] if sent else []
        sides.append(f"{name} sent {'; '.join((*parts, *rest)) or 'nothing of its rows'}.")
    return " ".join(sides)


def rows_left_out(report: Report) -> str:
    """Sentences on rows that took no part, each with a space after it; empty where there are none."""
    left_out = ((party.name, *each) for party in report.parties for each in party.left_out.items())
    reasons = "".join(f"{count(rows)} rows of the file of {name} are left out, {why}. " for name, why, rows in left_out)
    return reasons + _not_common(report)


def _not_common(report: Report) -> str:
    """A sentence on the active party's rows that another party lacks."""
    active = report.active
    if report.data.held:
        has = "released" if report.pilot else "has"
        each = [f"{name} {has} {count(rows)}" for name, rows in report.data.held.items()]
        return f"Of the {count(report.data.common)} rows of {active.name}, {', '.join(each)}. "
    if active.rows_own <= report.data.common:
        return ""
    missing, whole = count(active.rows_own - report.data.common), count(active.rows_own)
    at = ", ".join(f"{count(rows)} not at {name}" for name, rows in report.data.lacking.items() if rows)
    by_party = f" ({at})" if len(report.data.lacking) > 1 else ""
    return f"{missing} of the {whole} rows of {active.name} are not with every party: left out{by_party}. "


def _traffic(traffic: Mapping[str, tuple[int, int]]) -> Block:
    """Bytes by kind of message at the active party, which sends or receives every message."""
    return table(
        "Traffic of the active party by kind of message",
        sorted(traffic.items(), key=lambda entry: (-sum(entry[1]), entry[0])),
        (Column("Message"), lambda entry: entry[0].replace("_", " ")),
        (number("sent"), lambda entry: size(entry[1][0])),
        (number("received"), lambda entry: size(entry[1][1])),
        (Column("What it is", "statement"), lambda entry: meaning_of(entry[0])),
    )


def _disclosed(value: int | None) -> str:
    return "not disclosed" if value is None else count(value)


_TASKS = {
    "value": "regression",
    "count": "regression of counts, on the log link",
    "amount": "regression of amounts, on the log link",
    "severity": "regression of positive amounts, on the log link",
    "ranking": "ranking by grades of relevance, within groups of rows",
    "survival": "the time until an event, of which some are censored: relative hazards",
}


def _task(task: TaskInfo) -> str:
    if task.kind == "regression":
        return f"The task is {_TASKS[task.target]}."
    classes = f" of {', '.join(task.classes)}" if task.classes else ""
    positive = "" if task.positive_share is None else f"; {share(task.positive_share, 1)} of training rows are positive"
    return f"The task is {'binary' if task.kind == 'binary' else 'multi-class'} classification{classes}{positive}."


def trained_on(run: RunInfo) -> str:
    """Device of each party that this report knows of, and the precision of the models."""
    devices = ", ".join(f"{device} ({party})" for party, device in run.devices.items())
    if len(set(run.devices.values())) == 1:
        devices = next(iter(run.devices.values()))
    return f"{devices or 'device unknown'}, {run.precision}"


def job_section(report: Report) -> Section:
    """Identification of the run, and its job file."""
    run = report.run
    noise = "supplied key: reproducible, not private" if run.reproducible_noise else "key from the operating system"
    facts = (
        ("Run", run.id),
        ("Folder", run.folder),
        ("Its files", files_statement(report.files)),
        ("Job digest", run.job_digest),
        *((("Training", f"{run.training}, in the trails and model cards of its parties"),) if run.training else ()),
        ("Started", run.created),
        ("Software", f"Cutlayer {run.cutlayer}, PyTorch {run.torch}, Python {run.python}"),
        ("Repeatable with", f"seed {run.seed}, {times(run.threads, 'thread')}"),
        ("Trained on", trained_on(run)),
        ("Noise", noise),
        ("Report format", f"version {report.schema_version}"),
    )
    blocks: tuple[Block, ...] = (Facts(facts), Code("Job file", report.job)) if report.job else (Facts(facts),)
    return Section("job", "The job as run", blocks, nav="Job", folded=True)
