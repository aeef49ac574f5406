"""Who could learn what, in words, and the terms of a report."""

from __future__ import annotations

from cutlayer.report.evidence import evidence_of, learned_sentences
from cutlayer.report.section import Items, Paragraph, Section
from cutlayer.report.sections.protections import label_free_parties
from cutlayer.results.report import Report

TERMS = (
    "leak: max(AUC, 1 − AUC) of an attack's scores against the true labels; 0.5 is a guess, 1 is every label. With "
    "more than two classes the AUC is the mean over the classes of one against the rest; of values it is the share of "
    "pairs of rows that the scores order as the values do.",
    "control: what the same attack reaches without the secret or without the message; naive baseline: what is known "
    "without the system. An attack matters by what it reaches beyond both.",
    "strongest: of each threat, the attack that reaches most. It counts, not the mean of all.",
    "epsilon, delta: a formal guarantee, which a theorem gives. No measured number is one.",
    "embedding, cut gradient: what a passive party sends, and what comes back.",
    "active party, passive party: the owner of the labels and the top model; an owner of features and a bottom model.",
    "undefended: the same job and seed without protections.",
    "own columns: what a party's own columns reveal without any message; excess: what an attack reads beyond that.",
    "R²: the share of the variance of columns that a reconstruction explains; 0 is none, 1 all.",
    "95 % interval: by resampling rows of this one training; another training differs by more.",
)


def learns_section(report: Report) -> Section | None:
    """The strongest attack of each threat as a sentence; nothing where no attack was run."""
    sentences = learned_sentences(evidence_of(report), report.task.kind, label_free_parties(report))
    if not sentences:
        return None
    lead = Paragraph("By the strongest attack of each threat that was run. What no attack tried is not here.", "lead")
    return Section("learns", "Who could learn what", (lead, Items(sentences)), nav="Who learns")


def terms_section(report: Report) -> Section:
    """The words that the other sections use."""
    del report
    return Section("terms", "Terms", (Items(TERMS),), folded=True)
