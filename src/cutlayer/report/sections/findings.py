"""Findings and gates."""

from __future__ import annotations

from cutlayer.report.rounding import metric, times
from cutlayer.report.section import Answer, Block, Cell, Findings, Paragraph, Section, number, table
from cutlayer.results.report import Report

_SEVERITIES = ("error", "warning", "note")


def findings(report: Report) -> Section:
    """Findings of the audit, and results of the gates."""
    listed = tuple(sorted(report.findings, key=lambda finding: _SEVERITIES.index(finding.severity)))
    gates = table(
        "Gates: a run that crosses a limit fails",
        report.gates,
        ("Gate", lambda gate: Cell(gate.name, (gate.where,))),
        ("Result", lambda gate: Cell("✓ passed", tone="good") if gate.passed else Cell("✕ FAILED", tone="bad")),
        (number("Worst"), lambda gate: metric(gate.worst)),
        (number("Limit"), lambda gate: metric(gate.limit)),
        layout="stack",
    )
    # The terminal ends with the findings, where they stay in sight.
    brief: list[Block] = [*([gates] if gates.rows else []), *([Findings(listed)] if listed else [])]
    blocks = brief[::-1] if listed else [Paragraph("The checks found nothing to report."), *brief]
    answers = (_gates_answer(report), _findings_answer(report))
    return Section("findings", "Findings and gates", blocks, brief, "Findings", answers)


def _gates_answer(report: Report) -> Answer:
    failed = [gate for gate in report.gates if not gate.passed]
    if not report.gates:
        return Answer("Gates", "None was set: no leak can fail this run.")
    if not failed:
        return Answer("Gates", f"Passed: {times(len(report.gates), 'gate')} held.", "good")
    reasons = [f"{gate.name} is {metric(gate.worst)} ({gate.where}), limit {metric(gate.limit)}" for gate in failed]
    return Answer("Gates", f"Failed, {len(failed)} of {len(report.gates)}: {'; '.join(reasons)}.", "bad")


def _findings_answer(report: Report) -> Answer:
    counts = {kind: sum(finding.severity == kind for finding in report.findings) for kind in _SEVERITIES}
    text = ", ".join(times(total, kind) for kind, total in counts.items() if total)
    return Answer("Findings", f"{text}." if text else "None.", "bad" if counts["error"] else "plain")
