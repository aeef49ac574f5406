"""Findings and gates."""

from __future__ import annotations

from cutlayer.report.rounding import times, value_and_limit
from cutlayer.report.section import Answer, Block, Cell, Findings, Paragraph, Section, number, table
from cutlayer.results.finding import Gate
from cutlayer.results.report import Report

_SEVERITIES = ("error", "warning", "note")


def findings_section(report: Report) -> Section:
    """Findings of the audit, and results of the gates."""
    listed = tuple(sorted(report.findings, key=lambda finding: _SEVERITIES.index(finding.severity)))
    gates = table(
        "Gates: a run that crosses a limit fails",
        report.gates,
        ("Gate", lambda gate: Cell(gate.name, (gate.where,))),
        ("Result", _result),
        (number("Worst"), lambda gate: value_and_limit(gate.worst, gate.limit)[0]),
        (number("Limit"), lambda gate: value_and_limit(gate.worst, gate.limit)[1]),
        layout="stack",
    )
    # The terminal ends with the findings, where they stay in sight.
    brief: list[Block] = [*([gates] if gates.rows else []), *([Findings(listed)] if listed else [])]
    blocks = brief[::-1] if listed else [Paragraph("The checks found nothing to report."), *brief]
    answers = (_gates_answer(report), _findings_answer(report))
    return Section("findings", "Findings and gates", blocks, brief, "Findings", answers)


def _result(gate: Gate) -> Cell:
    if gate.passed:
        return Cell("✓ passed", tone="good")
    return Cell("✕ NOT DECIDED" if gate.undecided else "✕ FAILED", tone="bad")


def _gates_answer(report: Report) -> Answer:
    failed = [gate for gate in report.gates if not gate.passed]
    if not report.gates:
        return Answer("Gates", "None was set: no leak can fail this run.")
    if not failed:
        return Answer("Gates", f"Passed: {times(len(report.gates), 'gate')} held.", "good")
    reasons = [
        f"{gate.name} is {worst} ({gate.where}), limit {limit}"
        for gate in failed
        for worst, limit in [value_and_limit(gate.worst, gate.limit)]
    ]
    if all(gate.undecided for gate in failed):
        return Answer(
            "Gates", f"Not decided, {times(len(report.left_out), 'attack')} left out: {'; '.join(reasons)}.", "bad"
        )
    return Answer("Gates", f"Failed, {len(failed)} of {len(report.gates)}: {'; '.join(reasons)}.", "bad")


def _findings_answer(report: Report) -> Answer:
    counts = {kind: sum(finding.severity == kind for finding in report.findings) for kind in _SEVERITIES}
    text = ", ".join(times(total, kind) for kind, total in counts.items() if total)
    return Answer("Findings", f"{text}." if text else "None.", "bad" if counts["error"] else "plain")
