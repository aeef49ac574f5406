"""Builds the privacy card of a finished run."""

from __future__ import annotations

from pathlib import Path

from cutlayer.config.load import load_closed_job
from cutlayer.data.forgotten import FORGOTTEN_REASON
from cutlayer.report.alignment import alignment_sentences
from cutlayer.report.build import build_report
from cutlayer.report.card.facts import card_facts
from cutlayer.report.card.fields import NOT_SHOWN, ROWS_FORGOTTEN, fields_of, registry_of
from cutlayer.report.card.passive import passive_card
from cutlayer.report.card.subgroups import subgroups_of
from cutlayer.report.evidence import evidence_of, learned_sentences
from cutlayer.report.headline import headline
from cutlayer.report.passive.build import build_passive
from cutlayer.report.sections import verdict
from cutlayer.report.sections.malicious import malicious_sentences
from cutlayer.report.sections.protections import REPRODUCIBLE_NOT_PRIVATE, label_free_parties
from cutlayer.report.sections.scope import untried_threats
from cutlayer.results.privacy_card import PrivacyCard
from cutlayer.results.run_files import files_statement
from cutlayer.training.folder import RunFolder


def build_card(path: Path) -> PrivacyCard:
    """Put together the card of a run folder, of either side.

    Raises:
        RunFolderError: The run has not ended.
        ConfigError, DataError: A subgroup cannot be computed.
    """
    folder = RunFolder.open(path)
    if folder.is_passive:
        return passive_card(build_passive(path))
    job, report = load_closed_job(path / "job.yaml"), build_report(path)
    evidence = evidence_of(report)
    columns = report.columns
    subgroups = subgroups_of(job, folder)
    facts = card_facts(report, evidence, columns, subgroups)
    left_out = f"Attacks of the default catalogue that this audit left out: {', '.join(report.left_out)}."
    missing = [f"No attack of this run tried: {threat}." for threat in untried_threats(report)]
    missing += [f"Not run: {reason}" for reason in report.limits] + [left_out] * bool(report.left_out)
    forgetting = (party.name for party in report.parties if FORGOTTEN_REASON in party.left_out)
    forgotten = [ROWS_FORGOTTEN.format(party=name) for name in forgetting]
    supplied = [REPRODUCIBLE_NOT_PRIVATE] * report.run.reproducible_noise
    return PrivacyCard(
        run=report.run.id,
        name=report.run.name,
        job_digest=report.run.job_digest,
        created=report.run.created,
        cutlayer=report.run.cutlayer,
        statement=f"{headline(report)}.",
        verdict=f"{verdict(report)}.",
        protected=facts.protected,
        learns=(
            *learned_sentences(evidence, report.task.kind, label_free_parties(report)),
            *malicious_sentences(report),
        ),
        alignment=alignment_sentences(report.data.alignment),
        columns=columns,
        carried=report.carried,
        evidence=evidence,
        subgroups=subgroups,
        fields=fields_of(facts),
        registry=registry_of(facts),
        not_shown=(f"Files of the run: {files_statement(report.files)}.", *supplied, *NOT_SHOWN, *missing, *forgotten),
    )
