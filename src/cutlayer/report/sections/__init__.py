"""The sections of a report, one file each: a function from a report to text, tables and charts as data."""

from __future__ import annotations

from cutlayer.attacks.knowledge import condition
from cutlayer.report.alignment import alignment_line, alignment_section
from cutlayer.report.carried import carried_section
from cutlayer.report.matrix import matrix_of
from cutlayer.report.rounding import auc, excess, times
from cutlayer.report.section import Section
from cutlayer.report.sections.completion import completion_section
from cutlayer.report.sections.departures import departures_section
from cutlayer.report.sections.features import features_section
from cutlayer.report.sections.findings import findings_section
from cutlayer.report.sections.layers import layers_section
from cutlayer.report.sections.leaks import leaks_section
from cutlayer.report.sections.malicious import malicious_section
from cutlayer.report.sections.pilot import pilot_section
from cutlayer.report.sections.protections import (
    guarantee_tests_section,
    guarantees_section,
    label_free_parties,
    protections_section,
)
from cutlayer.report.sections.quality import quality_section
from cutlayer.report.sections.run import job_section, parties_section
from cutlayer.report.sections.training import training_section
from cutlayer.report.sections.utility import against_undefended, further_labels_section, utility_section
from cutlayer.report.sections.words import learns_section, terms_section
from cutlayer.report.sections.worth import worth_of_partners, worth_section
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind


def sections_of(report: Report) -> tuple[Section, ...]:
    """All sections of a report in the order of the page, without those that have nothing to show."""
    sections = (
        learns_section(report),
        findings_section(report),
        pilot_section(report),
        utility_section(report),
        further_labels_section(report),
        worth_section(report),
        quality_section(report),
        departures_section(report),
        leaks_section(report),
        completion_section(report),
        features_section(report),
        carried_section(report.carried),
        malicious_section(report),
        layers_section(report),
        protections_section(report),
        guarantees_section(report),
        guarantee_tests_section(report.guarantees),
        training_section(report),
        parties_section(report),
        alignment_section(report.data.alignment),
        job_section(report),
        terms_section(report),
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
