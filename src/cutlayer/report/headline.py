"""What a reviewer must know, in words and at the top of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutlayer.report.completions import kept_said
from cutlayer.report.features import told_said
from cutlayer.report.matrix import Matrix, column_of, covers_chance, matrix_of
from cutlayer.report.quitting import said
from cutlayer.report.rounding import auc, count, interval, metric, name_of, share, times
from cutlayer.results.leaks import LeakResult
from cutlayer.results.protection import ProtectionResult
from cutlayer.results.report import THIS_RUN, UNDEFENDED, Report
from cutlayer.results.utility import ModelUtility

Tone = Literal["good", "bad", "plain"]


@dataclass(frozen=True)
class Answer:
    """One question of the reviewer and its answer."""

    question: str
    text: str
    tone: Tone = "plain"


def verdict(report: Report) -> str:
    """Worst leak and utility of this run, each with the undefended baseline's where there is one."""
    matrix = matrix_of(report)
    worst, baseline = matrix.worst(THIS_RUN), matrix.worst(UNDEFENDED)
    if worst is None:
        return "No leak was measured in this run"
    sentence = f"Worst leak {auc(worst.leak)}"
    if baseline is not None:
        sentence += f" (undefended {auc(baseline.leak)})"
    elif not report.protections:
        sentence += ", with no protection"
    utility = {row.name: row.metrics.get(report.utility.metric) for row in report.utility.rows}
    own, undefended = utility.get(THIS_RUN), utility.get(UNDEFENDED)
    if own is None:
        return sentence
    beside = "" if undefended is None else f" (undefended {metric(undefended)})"
    return f"{sentence}, test {name_of(report.utility.metric)} {metric(own)}{beside}"


def answers(report: Report) -> tuple[Answer, ...]:
    """The reviewer's questions in the order they are asked."""
    found = [_gates(report), _leak(report), _utility(report), _protections(report), _findings(report)]
    left = said(report)
    if left:
        found.insert(3, Answer("If parties leave", left))
    kept = kept_said(report)
    if kept:
        found.insert(-1, Answer("What a quitter keeps", kept))
    told = told_said(report)
    if told:
        found.insert(-1, Answer("What embeddings tell of features", told))
    if report.run.reproducible_noise:
        text = "The noise key was supplied: this run is reproducible, not private. Whoever has the key can remove it."
        found.append(Answer("Noise", text, "bad"))
    return tuple(found)


def _gates(report: Report) -> Answer:
    failed = [gate for gate in report.gates if not gate.passed]
    if not report.gates:
        return Answer("Gates", "None was set: no leak can fail this run.")
    if not failed:
        return Answer("Gates", f"Passed: {times(len(report.gates), 'gate')} held.", "good")
    said = "; ".join(
        f"{gate.name} is {metric(gate.worst)} ({gate.where}), limit {metric(gate.limit)}" for gate in failed
    )
    return Answer("Gates", f"Failed, {len(failed)} of {len(report.gates)}: {said}.", "bad")


def _leak(report: Report) -> Answer:
    matrix = matrix_of(report)
    worst = matrix.worst(THIS_RUN)
    if worst is None:
        why = report.limits[0] if report.limits else "no attack was run."
        return Answer("Worst leak", f"Nothing was measured: {why}")
    text = (
        f"{worst.attack} on the {worst.message}s of {worst.party}, read at its worst of "
        f"{times(worst.epochs_seen, 'epoch')} (epoch {worst.epoch}): "
        f"{auc(worst.leak)}, 95\u00a0% interval {interval(worst.low, worst.high)}; 0.5 is chance."
    )
    if covers_chance(worst):
        text += " The interval includes chance."
    baseline = matrix.cell(UNDEFENDED, column_of(worst))
    if baseline is not None:
        text += f" On the undefended run the same attack reaches {auc(baseline.leak)}."
    return Answer("Worst leak", f"{text}{_other_worst(matrix, worst)}")


def _other_worst(matrix: Matrix, worst: LeakResult) -> str:
    """The undefended run may leak most elsewhere; say so."""
    other = matrix.worst(UNDEFENDED)
    if other is None or column_of(other) == column_of(worst):
        return ""
    where = f"{other.attack} on the {other.message}s of {other.party}"
    return f" The undefended run leaks most to {where}: {auc(other.leak)}."


def _utility(report: Report) -> Answer:
    utility = report.utility
    own = next((row for row in utility.rows if row.name == THIS_RUN), None)
    value = own.metrics.get(utility.metric) if own else None
    if own is None or value is None:
        return Answer("Utility", "Not measured.")
    bounds = "" if own.low is None else f" (95\u00a0% interval {interval(own.low, own.high)})"
    text = f"Test {name_of(utility.metric)} {metric(value)}{bounds}"
    others = [_against(row, utility.metric, value) for row in utility.rows if row is not own]
    said = ", ".join(other for other in others if other)
    better = "" if utility.higher_is_better else " Lower is better."
    return Answer("Utility", (f"{text}: {said}." if said else f"{text}.") + better)


def _against(row: ModelUtility, name: str, value: float) -> str:
    other = row.metrics.get(name)
    if other is None:
        return ""
    gap = metric(abs(value - other))
    if gap == metric(0.0):
        return f"equal to {row.name}"
    return f"{gap} {'above' if value > other else 'below'} {row.name}"


def _protections(report: Report) -> Answer:
    if not report.protections:
        return Answer("Protections", "None: everything crossed the cut layer as it was.")
    said = "; ".join(_acted(one) for one in report.protections)
    idle = any(one.changed == 0 or one.covered < one.sent for one in report.protections)
    return Answer("Protections", f"{said}.", "bad" if idle else "plain")


def _acted(one: ProtectionResult) -> str:
    covered = "all" if one.covered == one.sent else f"only {count(one.covered)} of"
    return (
        f"{one.name} ({one.party}) covered {covered} {count(one.sent)} {one.unit} "
        f"and changed {share(one.changed, one.covered)}"
    )


def _findings(report: Report) -> Answer:
    if not report.findings:
        return Answer("Findings", "None.")
    numbers = {kind: sum(one.severity == kind for one in report.findings) for kind in ("error", "warning", "note")}
    said = ", ".join(times(number, kind) for kind, number in numbers.items() if number)
    return Answer("Findings", f"{said}.", "bad" if numbers["error"] else "plain")
