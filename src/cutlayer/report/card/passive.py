"""The privacy card of a passive party: what its own folder answers of the frameworks, the rest blank."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from cutlayer.data.forgotten import FORGOTTEN_REASON
from cutlayer.report.alignment import alignment_sentences
from cutlayer.report.card.facts import (
    DRAWN_LABELS,
    TRUST_ASSUMPTIONS,
    account_facts,
    attack_facts,
    columns_used_text,
    totals_without_theorem,
)
from cutlayer.report.card.fields import NOT_SHOWN, ROWS_FORGOTTEN, fields_of, registry_of
from cutlayer.report.evidence import feature_evidence, learned_sentences, mark_strongest
from cutlayer.report.passive.headline import passive_headline
from cutlayer.report.releases import release_words
from cutlayer.report.rounding import count, date, size
from cutlayer.report.sections.protections import REPRODUCIBLE_NOT_PRIVATE
from cutlayer.results.audit import UNMEASURED_BY_PASSIVE
from cutlayer.results.passive import PassiveReport
from cutlayer.results.privacy_card import AttackEvidence, PrivacyCard
from cutlayer.results.run_files import files_statement


def passive_card(report: PassiveReport) -> PrivacyCard:
    """The card of a passive party's report."""
    evidence = mark_strongest([*feature_evidence(report.features, report.active, report.carried)])
    facts = _facts(report, evidence)
    skipped = [f"Not run: {attack.label}: {attack.reason}" for attack in report.skipped]
    nothing = [f"No attack of this run tried: reconstruction of the columns of {report.party}."] * (not evidence)
    return PrivacyCard(
        run=report.job_digest[:12],
        name=report.name,
        job_digest=report.job_digest,
        created=report.created,
        cutlayer=report.cutlayer,
        statement=passive_headline(report),
        protected=facts.protected,
        learns=learned_sentences(evidence, "binary"),
        alignment=alignment_sentences(report.alignment),
        columns=(report.columns,),
        carried=report.carried,
        evidence=evidence,
        fields=fields_of(facts),
        registry=registry_of(facts),
        not_shown=(
            f"Files of the run: {files_statement(report.files)}.",
            *([REPRODUCIBLE_NOT_PRIVATE] * report.reproducible_noise),
            *NOT_SHOWN,
            *([ROWS_FORGOTTEN.format(party=report.party)] * (FORGOTTEN_REASON in report.rows.left_out)),
            f"{UNMEASURED_BY_PASSIVE[0].upper()}{UNMEASURED_BY_PASSIVE[1:]}.",
            *nothing,
            *skipped,
        ),
    )


def _facts(report: PassiveReport, evidence: Sequence[AttackEvidence]) -> SimpleNamespace:
    """Sentences about a passive party's part of a run."""
    rows, active, party = report.rows, report.active, report.party
    training = next(part.rows for part in report.releases if part.part == "training")
    unprotected = totals_without_theorem(report.ledger.totals)
    gradients = any(message.kind == "gradient" and message.received for message in report.messages)
    drawn = f"{DRAWN_LABELS} and " * any(message.kind == "labels" and message.received for message in report.messages)
    back = "gradients of its embeddings" if gradients else f"{drawn}no gradients"
    parts = ", ".join(f"{count(part.rows)} {part.part}" for part in report.releases)
    ratio = f"{count(training)} training rows to {count(report.parameters)} parameters"
    passives = "; ".join(f"{name} has features and a bottom model" for name in report.passives)
    seen = f"{active} receives the {release_words(report.carried, [party])}, and has the labels"
    sent = sum(message.bytes_sent for message in report.messages)
    received = sum(message.bytes_received for message in report.messages)
    return SimpleNamespace(
        **account_facts(report, rows=training, reproducible=report.reproducible_noise),
        **attack_facts(evidence, len(report.skipped)),
        exposure=columns_used_text((report.columns,)),
        unprotected="; ".join([*unprotected, f"labels and columns of {active}: in the account of {active}"]),
        bias="",
        utility="not known here: the active party has the labels",
        software=f"Cutlayer {report.cutlayer}; account by Google's dp-accounting",
        tester=f"{party}, by Cutlayer {report.cutlayer} in a run that ended {date(report.created)}",
        trust=f"{seen}; {party} receives {back}. {TRUST_ASSUMPTIONS}",
        rows_to_parameters=ratio if report.parameters else "no trained parameters here",
        rows=f"{count(rows.table)} rows in the table of {party}, {count(rows.run)} in the run; {parts}",
        parties=f"{active} has the labels and the top model; {passives}",
        messages=f"{party} sent {size(sent)} and received {size(received)}",
    )
