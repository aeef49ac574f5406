"""The sentence that a report begins with, for readers who know none of its terms."""

from __future__ import annotations

from cutlayer.attacks.knowledge import condition
from cutlayer.report.grading import SMALL, is_rebuilt, reading, rebuilding
from cutlayer.report.matrix import Matrix, matrix_of
from cutlayer.report.rounding import count, interval, metric
from cutlayer.report.sections.protections import given_of_labels, label_free_parties
from cutlayer.report.sections.worth import worth_of_partners
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import LeakResult
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind


def headline(report: Report) -> str:
    """Summary of a run: leak about labels, its price, gain from partners, and leak about features."""
    matrix = matrix_of(report)
    worst, before = matrix.worst(RunKind.THIS_RUN), matrix.worst(RunKind.UNDEFENDED)
    if worst is None:
        if not report.features:
            return f"No attack was run, so this report says nothing about what leaks{_worth(report)}"
        nothing = "No attack on labels was run, so this report says nothing about what leaks of them"
        return f"{nothing}{_worth(report)}{_features(report)}"
    now = _now(report, matrix, worst)
    sentence = f"the partners {now}"
    if before is not None:
        sentence = f"without protection the partners {_read(matrix, before)}; with it they {now}"
    if report.left_out:
        sentence = f"by a part of the attacks alone ({len(report.left_out)} left out), {sentence}"
    sentence = f"{sentence[0].upper()}{sentence[1:]}{_price(report)}"
    return f"{sentence}{_worth(report)}{_features(report)}"


def _now(report: Report, matrix: Matrix, worst: LeakResult) -> str:
    # The sentence is about all partners: each must be sent nothing that depends on a label, or have been compared.
    if {*report.passives} <= {*label_free_parties(report)}:
        return f"learn no more about labels than their own columns reveal{given_of_labels(report)}"
    compared = {name for name, baseline in matrix.baselines.items() if baseline.own_columns is not None}
    if {leak.party for leak in report.leaks if leak.run == RunKind.THIS_RUN} <= compared and (
        max(matrix.excesses) <= SMALL
    ):
        return "learn hardly more about labels than their own columns reveal"
    return _read(matrix, worst)


def _read(matrix: Matrix, worst: LeakResult) -> str:
    """Reading of a run's worst leak, with the required knowledge of rows where attacks without any do worse."""
    words, needed = reading(worst.leak), condition(worst.knowledge)
    free = [leak.leak for leak in matrix.cells.values() if leak.run == worst.run and not condition(leak.knowledge)]
    if not needed or words in (reading(0.5), reading(max(free, default=0.5))):
        return words
    return f"{words} with {needed}"


def _price(report: Report) -> str:
    """Utility of the model against the undefended one."""
    this = report.utility.row(RunKind.THIS_RUN)
    before = report.utility.row(RunKind.UNDEFENDED)
    value = this.metrics.get(report.utility.metric) if this else None
    undefended = before.metrics.get(report.utility.metric) if before else None
    if this is None or value is None:
        return ""
    name = name_of(report.utility.metric)
    if undefended is None:
        return f", at a test {name} of {metric(value)}"
    if this.low is None or this.high is None:
        size, rows = report.data.reported
        few = f", and {count(size)} {rows} are too few to compare predictions"
        return f"{few} (test {name} {metric(value)}, undefended {metric(undefended)})"
    lost = (undefended - value) * (1 if report.utility.higher_is_better else -1)
    words, between = "predicts as well" if lost <= SMALL else "predicts worse", ""
    if lost > SMALL and this.low <= undefended <= this.high:
        words = "may predict worse"
        between = f", 95 % interval {interval(this.low, this.high)}"
    return f", and the model {words} (test {name} {metric(value)}{between}, undefended {metric(undefended)})"


def _worth(report: Report) -> str:
    words = worth_of_partners(report)
    return f"; {words}" if words else ""


def rebuilt(report: Report, run: str) -> FeatureResult | None:
    """The reconstruction of a run with the largest R²; of equal ones that of the last release, not of their mean."""
    reconstructions = [result for result in report.features if result.run == run and result.metric == "r2"]
    defined = [result for result in reconstructions if result.value is not None]
    return max(defined, key=lambda result: result.value or 0.0, default=None)


def _features(report: Report) -> str:
    worst = rebuilt(report, RunKind.THIS_RUN)
    if worst is None or worst.value is None:
        return ""
    words = rebuilding(worst.value)
    needed = condition(worst.knowledge, worst.known)
    who = f"{report.active.name}, with {needed}," if needed else report.active.name
    can = f"{who} can rebuild {words} of the columns of {worst.party} (R\u00b2 {metric(worst.value)})"
    return f"; {'but ' if is_rebuilt(worst.value) else ''}{can}"
