"""Evidence of each protection, formal guarantees, and guarantees tested with canaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cutlayer.accounting import LabelFree
from cutlayer.accounting.total import Total
from cutlayer.accounting.wording import conditions_text, with_bound
from cutlayer.report.rounding import amount, count, metric, setting, share, times
from cutlayer.report.section import Answer, Block, Cell, Column, Fold, Items, Paragraph, Section, Table, number, table
from cutlayer.results.guarantee import GuaranteeTest
from cutlayer.results.metric_names import name_of
from cutlayer.results.protection import ProtectionResult
from cutlayer.results.report import Report

_TESTED = "A lower bound from canaries, at the ledger's delta; one above the ledger's epsilon is a fault"
_NONE = "None: everything crossed the cut layer as it was."
REPRODUCIBLE_NOT_PRIVATE = (
    "Reproducible, not private: the noise key was supplied, so no statement about noise holds against a party that has "
    "the key."
)
"""Statement of every page on a run with a supplied key, next to those of the ledger."""


def label_free_parties(report: Report) -> tuple[str, ...]:
    """Names of the passive parties of which no message adds to what their own columns reveal of the labels.

    A split by a public column adds what that column reveals.
    """
    return tuple(dict.fromkeys(name for _, names in _label_free(report) for name in names))


def label_conditions(report: Report) -> str:
    """Conditions of the ledger's statements on those parties, after a comma; empty without conditions."""
    conditions = {condition for event, _ in _label_free(report) for condition in event.given}
    return f", {conditions_text(sorted(conditions))}" if conditions else ""


def _label_free(report: Report) -> list[tuple[LabelFree, tuple[str, ...]]]:
    """The events of releases without labels and a column that orders a split, with the receivers."""
    events = ((entry.event, entry.towards) for entry in report.ledger.entries)
    return [(event, names) for event, names in events if isinstance(event, LabelFree) and event.split_by is None]


def _without_protection(report: Report) -> str:
    if names := label_free_parties(report):
        send = "sends" if len(names) == 1 else "send"
        return (
            f"No message to {', '.join(names)} depends on a label{label_conditions(report)}. No protection changes "
            f"what {_joined(names)} {send}."
        )
    return _NONE


def _joined(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> _joined(["telco"]), _joined(["shop", "telco", "census"])
    ('telco', 'shop, telco and census')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def protections_section(report: Report) -> Section:
    """Coverage of each protection, and its changes to the messages."""
    evidence = evidence_table(report.protections)
    lead = Paragraph("Counted during the run: what the protection was applied to, and what it changed.", "lead")
    idle = any(part.changed == 0 or part.covered < part.sent for part in report.protections)
    text = "; ".join(map(_summary, report.protections))
    answer = Answer("Protections", f"{text}." if text else _without_protection(report), "bad" if idle else "plain")
    blocks = (lead, evidence) if report.protections else (Paragraph(_without_protection(report)),)
    return Section(
        "protections", "Evidence of each protection", blocks, nav="Protections", answers=(answer,), folded=True
    )


def guarantees_section(report: Report) -> Section:
    """Formal guarantees of each protection, and of all releases together."""
    blocks: list[Block] = [Paragraph("None: no protection was configured.")]
    totals = report.ledger.totals
    if report.protections or totals:
        lead = (
            "What is proved for the whole run, for any attacker. It is independent of the measured leaks: these "
            "compare rows whose columns differ, and a bound is of two values of one row."
        )
        blocks = [Paragraph(lead, "lead")]
        if totals:
            text = "All releases together, over every epoch and evaluation. A total holds for each receiver."
            blocks += [Paragraph(text), totals_table(totals)]
        if report.protections:
            blocks.append(Fold("Formal guarantee of each protection", (formal_table(report.protections),)))
    statements = {total.statement for total in totals}
    alternatives = [
        f"{name}: {text}" for name, texts in report.alternatives.items() for text in texts if text not in statements
    ]
    if unproved := _unproved(report):
        blocks.append(Paragraph(unproved))
    if alternatives:
        blocks.append(Items(tuple(alternatives), "What the ledger states of the alternatives"))
    proved = "; ".join(map(with_bound, (total for total in totals if total.epsilon is not None)))
    sentences = [f"{proved[:1].upper()}{proved[1:]}." if proved else "None.", unproved]
    sentences += [f"Alternative {text}." for text in alternatives]
    answers: tuple[Answer, ...] = (Answer("Formal guarantees", " ".join(filter(None, sentences))),)
    if report.run.reproducible_noise:
        blocks.append(Paragraph(REPRODUCIBLE_NOT_PRIVATE, "warn"))
        text = "The noise key was supplied: this run is reproducible, not private. A party with the key can remove it."
        answers = (*answers, Answer("Noise", text, "bad"))
    stated = Items(tuple(total.statement for total in totals))
    brief: list[Block] = [Paragraph("Formal privacy cost of the whole run"), stated] if totals else []
    if alternatives:
        brief += [Paragraph("The same of its alternatives"), Items(tuple(alternatives))]
    return Section("guarantees", "Formal guarantees", blocks, brief, "Guarantees", answers)


def without_total(report: Report, totals: Iterable[Total]) -> tuple[list[str], list[str]]:
    """The passive parties towards which none of some totals is of labels, and those of whose columns none is."""
    receivers = {name for total in totals if total.protects == "labels" for name in total.towards}
    owners = {total.party for total in totals if total.protects == "features"}
    passives = report.passives
    return [name for name in passives if name not in receivers], [name for name in passives if name not in owners]


def _unproved(report: Report) -> str:
    """For which labels and columns the ledger has no total with an epsilon, towards or of whom."""
    labels, columns = without_total(report, [total for total in report.ledger.totals if total.epsilon is not None])
    elsewhere = [party.name for party in report.parties if party.name in columns and party.columns is None]
    here = [name for name in columns if name not in elsewhere]
    parts = [f"the labels towards {', '.join(labels)}"] if labels else []
    parts += [f"the columns of {', '.join(here)}"] if here else []
    unproved = f"This report states no guarantee for {' or '.join(parts)}. " if parts else ""
    if elsewhere:
        unproved += f"What is proved for the columns of {', '.join(elsewhere)} is in reports of their own."
    return unproved.strip()


def guarantee_tests_section(tests: Sequence[GuaranteeTest]) -> Section | None:
    """Tests of the ledger's guarantees on canaries; `None` if none was tested."""

    def tone(test: GuaranteeTest) -> str:
        return "bad" if test.exceeded else ""

    tested = table(
        "What the ledger states, and what canaries show of the same mechanism",
        tests,
        ("Mechanism", lambda test: Cell(test.protection, (f"{test.protects} of {test.party}",))),
        (number("Ledger's epsilon"), lambda test: Cell(metric(test.epsilon), (f"delta {setting(test.delta)}",))),
        (
            number("Lower bound"),
            lambda test: Cell(metric(test.lower_bound), (f"{100 * test.confidence:g} %",), tone=tone(test)),
        ),
        (number("Detectable"), lambda test: metric(test.detectable)),
        (
            number("Canaries", page_only=True),
            lambda test: Cell(count(test.canaries), (f"{times(test.releases, 'release')} each",)),
        ),
        ("Verdict", lambda test: Cell(_verdict(test), tone=tone(test))),
        layout="stack",
    )
    lead = Paragraph(f"{_TESTED}. One below it shows only that this test found none.", "lead")
    title = "Guarantees tested with canaries"
    brief = (Paragraph(_TESTED), tested)
    return Section("tested", title, (lead, tested), brief, "Canaries") if tests else None


def _pairs(values: Mapping[str, str]) -> Cell:
    return Cell("" if values else "none", pairs=tuple(values.items()))


def _covered(part: ProtectionResult) -> Cell:
    missing = part.covered < part.sent
    notes = [f"{part.unit}, {share(part.covered, part.sent)}{' ✕ not all' if missing else ''}"]
    if len(part.kinds) > 1:
        notes.append(", ".join(f"{count(covered)} {kind}" for kind, covered in part.kinds.items()))
    return Cell(f"{count(part.covered)} of {count(part.sent)}", tuple(notes), tone="bad" if missing else "")


def _changed(part: ProtectionResult) -> Cell:
    note = share(part.changed, part.covered) + (" ✕ nothing" if part.changed == 0 else "")
    return Cell(count(part.changed), (note,), tone="bad" if part.changed == 0 else "")


def _summary(part: ProtectionResult) -> str:
    covered = "all" if part.covered == part.sent else f"only {count(part.covered)} of"
    unit = f"messages of {part.unit}" if part.unit in ("embeddings", "gradients") else part.unit
    expected = part.metrics.get("expected_share_changed")
    drawn = "" if expected is None else f"; of their rows, {100 * expected:.2g}\u00a0% are expected to change"
    changed = share(part.changed, part.covered)
    return f"{part.name} ({part.party}) covered {covered} {count(part.sent)} {unit} and changed {changed}{drawn}"


def evidence_table(protections: Sequence[ProtectionResult]) -> Table:
    """What each protection was applied to, and what it changed."""
    return table(
        "Evidence of each protection in this run",
        protections,
        ("Protection", lambda part: Cell(part.name, (part.reference,))),
        ("Owner", lambda part: Cell(part.party, (f"protects {part.protects}",))),
        ("Settings", lambda part: _pairs({name: setting(value) for name, value in part.settings.items()})),
        (number("Covered"), _covered),
        (number("Changed"), _changed),
        ("Metrics", lambda part: _pairs({name_of(name): amount(value) for name, value in part.metrics.items()})),
        layout="stack",
    )


def formal_table(protections: Sequence[ProtectionResult]) -> Table:
    """What is proved of each protection."""
    return table(
        "Formal guarantee of each protection",
        protections,
        ("Protection", lambda part: part.name),
        ("Owner", lambda part: part.party),
        ("Formal", lambda part: "yes" if part.formal else "none"),
        (Column("Statement", "statement"), lambda part: part.statement),
        layout="stack",
    )


def totals_table(totals: Sequence[Total]) -> Table:
    """What is proved of all releases together."""
    return table(
        "Total privacy cost by party and asset",
        totals,
        ("About", lambda total: Cell(f"{total.protects} of {total.party}", (f"towards {', '.join(total.towards)}",))),
        (number("Epsilon"), lambda total: "none" if total.epsilon is None else amount(total.epsilon)),
        (number("Delta"), lambda total: "none" if total.epsilon is None else setting(total.delta)),
        ("Account", lambda total: total.accountant or "none"),
        (Column("Statement", "statement"), lambda total: total.statement),
        layout="stack",
    )


def _verdict(test: GuaranteeTest) -> str:
    if test.exceeded:
        return "DOES NOT HOLD ✕"
    return "no fault found" if test.conclusive else "too few canaries"
