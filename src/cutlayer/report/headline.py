"""The two sentences that a report begins with, for readers who know none of its terms."""

from __future__ import annotations

from cutlayer.attacks.knowledge import condition
from cutlayer.report.columns_read import knowing, reads_columns
from cutlayer.report.grading import LITTLE, SMALL, reading
from cutlayer.report.matrix import Matrix, matrix_of
from cutlayer.report.rounding import times
from cutlayer.report.sections.protections import given_of_labels, label_free_parties
from cutlayer.results.columns_read import is_of_columns, reach, weakest
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import LeakResult
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind


def headline(report: Report) -> str:
    """What leaks of the labels and of the columns, without the last full stop; figures stand below it."""
    return ". ".join(headline_sentences(report))


def headline_sentences(report: Report) -> tuple[str, ...]:
    """A sentence on the active party's labels and one on the passive parties' columns, of 25 words at most each."""
    matrix = matrix_of(report)
    worst = matrix.worst(RunKind.THIS_RUN)
    if worst is None and not report.features:
        return ("No attack was run, so this report says nothing about what leaks",)
    labels = "No attack on labels was run, so this report says nothing about what leaks of them"
    if worst is not None:
        labels = _labels(report, matrix, worst)
        if report.left_out:
            labels = f"In a partial audit, {labels}"
        elif labels.startswith("the "):
            labels = f"T{labels[1:]}"
    return labels, _columns(report)


def _labels(report: Report, matrix: Matrix, worst: LeakResult) -> str:
    owner, passives = report.active.name, report.passives
    several = len(passives) != 1
    who, its = ("the partners", "their") if several else (passives[0], "its")
    # The sentence is about all partners: each must be sent nothing that depends on a label, or have been compared.
    nothing = f"about the labels of {owner} than {its} own columns reveal"
    if {*passives} <= {*label_free_parties(report)}:
        return f"{who} {'learn' if several else 'learns'} no more {nothing}{given_of_labels(report)}"
    compared = {name for name, baseline in matrix.baselines.items() if baseline.own_columns is not None}
    if {leak.party for leak in report.leaks if leak.run == RunKind.THIS_RUN} <= compared and (
        max(matrix.excesses) <= LITTLE
    ):
        more = "hardly more" if max(matrix.excesses) <= SMALL else "a little more"
        return f"{who} {'learn' if several else 'learns'} {more} {nothing}"
    words, needed = reading(worst.leak, owner), condition(worst.knowledge)
    if words == reading(0.5, owner):
        return f"{who} {words}"
    # Known labels are left out where an attack without any does as well.
    free = [leak.leak for leak in matrix.cells.values() if leak.run == worst.run and not condition(leak.knowledge)]
    known = f" with {needed}" if needed and words != reading(max(free, default=0.5), owner) else ""
    return f"{f'{len(worst.together)} partners together' if worst.together else worst.party} {words}{known}"


def read_most(report: Report, run: str) -> FeatureResult | None:
    """Of each party the attack of `weakest` on its columns in a run; of these the one that reads most."""
    found = weakest(result for result in report.features if result.run == run)
    return max(found.values(), key=reach, default=None)


def _columns(report: Report) -> str:
    most = read_most(report, RunKind.THIS_RUN)
    owners = report.passives
    if most is None:
        return f"No attack that reads the columns of {owners[0] if len(owners) == 1 else 'the partners'} was run"
    sentence = f"{report.active.name}, {knowing(most)}, {reads_columns(most)}"
    tried = {result.party for result in report.features if result.run == RunKind.THIS_RUN and is_of_columns(result)}
    untried = [name for name in owners if name not in tried]
    if untried:
        of = f"{untried[0]} was" if len(untried) == 1 else f"{len(untried)} others were"
        return f"{sentence}; {of} not attacked"
    return f"{sentence}, the most of {times(len(owners), 'partner')}" if len(owners) > 1 else sentence
