"""The two sentences that a report begins with, for readers who know none of its terms."""

from __future__ import annotations

import re

from cutlayer.attacks.knowledge import condition
from cutlayer.report.columns_read import columns_read_phrase, knowledge_phrase
from cutlayer.report.grading import NEGLIGIBLE_EXCESS, SMALL_EXCESS, leak_phrase
from cutlayer.report.matrix import Matrix, matrix_of
from cutlayer.report.rounding import times
from cutlayer.report.sections.protections import label_conditions, label_free_parties
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
    found = _label_free(report) or (_labels(report, matrix, worst) if worst is not None else "")
    if not found and not report.features:
        return ("No attack was run, so this report says nothing about what leaks",)
    labels = "No attack on labels was run, so this report says nothing about what leaks of them"
    if found:
        labels = f"In a partial audit, {found}" if report.left_out else re.sub("^the ", "The ", found)
    return labels, _columns(report)


def _learn(report: Report, more: str) -> str:
    """What all partners learn; the sentence is about each of them."""
    passives = report.passives
    who, its = ("the partners learn", "their") if len(passives) != 1 else (f"{passives[0]} learns", "its")
    return f"{who} {more} about the labels of {report.active.name} than {its} own columns reveal"


def _label_free(report: Report) -> str:
    """Where no partner is sent what depends on a label, whether or not it was attacked; else empty."""
    if not {*report.passives} <= {*label_free_parties(report)}:
        return ""
    return f"{_learn(report, 'no more')}{label_conditions(report)}"


def _labels(report: Report, matrix: Matrix, worst: LeakResult) -> str:
    owner, passives = report.active.name, report.passives
    who = "the partners" if len(passives) != 1 else passives[0]
    compared = {name for name, baseline in matrix.baselines.items() if baseline.own_columns is not None}
    if {leak.party for leak in report.leaks if leak.run == RunKind.THIS_RUN} <= compared and (
        max(matrix.excesses) <= SMALL_EXCESS
    ):
        return _learn(report, "hardly more" if max(matrix.excesses) <= NEGLIGIBLE_EXCESS else "a little more")
    words, needed = leak_phrase(worst.leak, owner), condition(worst.knowledge)
    if words == leak_phrase(0.5, owner):
        return f"{who} {words}"
    # Known labels are left out where an attack without any does as well.
    free = [leak.leak for leak in matrix.cells.values() if leak.run == worst.run and not condition(leak.knowledge)]
    known = f" with {needed}" if needed and words != leak_phrase(max(free, default=0.5), owner) else ""
    return f"{f'{len(worst.together)} partners together' if worst.together else worst.party} {words}{known}"


def strongest_on_columns(report: Report, run: str) -> FeatureResult | None:
    """Of each party the attack of `weakest` on its columns in a run; of these the one that reads most."""
    found = weakest(result for result in report.features if result.run == run)
    return max(found.values(), key=reach, default=None)


def _columns(report: Report) -> str:
    most = strongest_on_columns(report, RunKind.THIS_RUN)
    owners = report.passives
    if most is None:
        return f"No attack that reads the columns of {owners[0] if len(owners) == 1 else 'the partners'} was run"
    sentence = f"{report.active.name}, {knowledge_phrase(most)}, {columns_read_phrase(most)}"
    tried = {result.party for result in report.features if result.run == RunKind.THIS_RUN and is_of_columns(result)}
    untried = [name for name in owners if name not in tried]
    if untried:
        of = f"{untried[0]} was" if len(untried) == 1 else f"{len(untried)} others were"
        return f"{sentence}; {of} not attacked"
    return f"{sentence}, the most of {times(len(owners), 'partner')}" if len(owners) > 1 else sentence
