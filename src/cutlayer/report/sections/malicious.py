"""Gains of parties that do not follow the protocol."""

from __future__ import annotations

from cutlayer.report.rounding import excess, interval, metric
from cutlayer.report.section import Answer, Cell, Paragraph, Section, Table, number, table
from cutlayer.results.decimals import NOT_AVAILABLE
from cutlayer.results.malicious import MaliciousResult
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report

_LEAD = (
    "Each row is one more training of this job, in which a malicious party sends something else than the protocol has "
    "it send, without protections of its own. Malicious is the strongest attack on the messages of that training, "
    "curious the strongest one on those of this run, and the gain their difference. A malicious party that knows other "
    "attacks may gain more."
)


def malicious_section(report: Report) -> Section | None:
    """The gain of malicious parties over curious ones; `None` where no such training was asked for."""
    if not report.malicious:
        return None
    lead = Paragraph(_LEAD, "lead")
    note = Paragraph("one more training for each attack, in which the attacker does not follow the protocol")
    answer = Answer("Malicious parties", " ".join(malicious_sentences(report)))
    blocks, brief = (lead, _table(report)), (note, _table(report))
    return Section("malicious", "Malicious parties", blocks, brief, "Malicious", (answer,))


def malicious_sentences(report: Report) -> tuple[str, ...]:
    """Gain of each malicious training, as sentences."""
    return tuple(_sentence(result) for result in report.malicious)


def _sentence(result: MaliciousResult) -> str:
    does = {
        "labels": "reads {} of the labels",
        "features": f"reads {{}} of the columns of {result.party}",
        "predictions": "has its way with predictions of other classes, {}",
    }[result.secret].format(f"{name_of(result.metric)} {metric(result.value)}")
    return f"{result.attacker}, if malicious ({result.attack}), {does}; curious, {metric(result.curious)}."


def _table(report: Report) -> Table:
    guarded = any(result.alarm for result in report.malicious)
    return table(
        "What a malicious party reads, beside a curious one, with 95\u00a0% intervals",
        report.malicious,
        ("Attack", lambda result: Cell(result.attack, (f"by {result.attacker}",))),
        ("Secret", lambda result: Cell(result.secret, (f"link of {result.party}", name_of(result.metric)))),
        (number("Malicious"), lambda result: Cell(metric(result.value), (interval(result.low, result.high),))),
        (number("Curious"), lambda result: Cell(metric(result.curious), (result.curious_reader,))),
        (number("Gain"), lambda result: NOT_AVAILABLE if result.gain is None else excess(result.gain)),
        *((("Alarm", lambda result: result.alarm or NOT_AVAILABLE),) if guarded else ()),
    )
