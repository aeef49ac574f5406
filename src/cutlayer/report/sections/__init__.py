"""The sections of a report, one file each: a function from a report to text, tables and charts as data."""

from __future__ import annotations

from cutlayer.attacks.knowledge import condition
from cutlayer.report.alignment import alignment_line, alignment_section
from cutlayer.report.carried import carried_section
from cutlayer.report.matrix import matrix_of
from cutlayer.report.rounding import auc, excess, times
from cutlayer.report.section import Section
from cutlayer.report.sections.completion import completion
from cutlayer.report.sections.departures import departures
from cutlayer.report.sections.features import features
from cutlayer.report.sections.findings import findings
from cutlayer.report.sections.layers import layers
from cutlayer.report.sections.leaks import leaks
from cutlayer.report.sections.malicious import malicious
from cutlayer.report.sections.pilot import pilot
from cutlayer.report.sections.protections import guarantee_tests, guarantees, label_free_parties, protections
from cutlayer.report.sections.quality import quality
from cutlayer.report.sections.run import job, parties
from cutlayer.report.sections.training import training
from cutlayer.report.sections.utility import against_undefended, further_labels, utility
from cutlayer.report.sections.words import learns, terms
from cutlayer.report.sections.worth import worth, worth_of_partners
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind


def sections_of(report: Report) -> tuple[Section, ...]:
    """All sections of a report in the order of the page, without those that have nothing to show."""
    sections = (
        learns(report),
        findings(report),
        pilot(report),
        utility(report),
        further_labels(report),
        worth(report),
        quality(report),
        departures(report),
        leaks(report),
        completion(report),
        features(report),
        carried_section(report.carried),
        malicious(report),
        layers(report),
        protections(report),
        guarantees(report),
        guarantee_tests(report.guarantees),
        training(report),
        parties(report),
        alignment_section(report.data.alignment),
        job(report),
        terms(report),
    )
    return tuple(section for section in sections if section is not None)


def verdict(report: Report) -> str:
    """Sentences below the headline: worst leak, utility against the undefended run, partners' worth, alignment."""
    aligned = alignment_line(report.data.alignment).removesuffix(".")
    sentences = (_worst(report), against_undefended(report), worth_of_partners(report), aligned)
    return ". ".join(sentence for sentence in sentences if sentence)


def _worst(report: Report) -> str:
    matrix = matrix_of(report)
    worst, baseline = matrix.worst(RunKind.THIS_RUN), matrix.worst(RunKind.UNDEFENDED)
    if worst is None:
        return "No leak of labels was measured in this run"
    label_free = {*worst.parties} <= {*label_free_parties(report)}
    how = "compute from their" if worst.together else "computes from its"
    needed = condition(worst.knowledge)
    columns = f", read from what {worst.attacker} {how} own columns alone" if label_free else ""
    sentence = f"Worst leak {auc(worst.leak)}{f', with {needed}' if needed else ''}{columns}"
    if report.left_out:
        sentence = (
            f"Partial audit, {times(len(report.left_out), 'attack')} left out: {sentence[0].lower()}{sentence[1:]}"
        )
    if baseline is not None:
        sentence += f" (undefended {auc(baseline.leak)})"
    elif not report.protections and not label_free:
        sentence += " and no protection" if needed else ", with no protection"
    if matrix.excesses and not label_free:
        largest = round(max(matrix.excesses), 3)
        where = f"{auc(-largest)} below" if largest < 0 else f"up to {excess(largest)} above"
        sentence += f", {where} a party's own columns"
    return sentence
