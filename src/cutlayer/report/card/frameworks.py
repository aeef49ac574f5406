"""The fields of the frameworks that an assessment follows, filled with what a run knows.

The groups are in our words after each document: NIST SP 800-226 (Guidelines for Evaluating Differential Privacy
Guarantees), EDPB Opinion 28/2024 on AI models, ISO/IEC 27559 (privacy enhancing data de-identification framework), and
the privacy impact assessment of the CNIL after Article 35(7) of the GDPR. No paragraph is quoted: check against the
texts.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutlayer.report.card.facts import CardFacts
from cutlayer.results.privacy_card import CardField

NIST, EDPB = "NIST SP 800-226", "EDPB Opinion 28/2024"
ISO, CNIL = "ISO/IEC 27559", "CNIL PIA, GDPR Article 35(7)"
_Group = dict[str, tuple[str, str] | None]
"""The answer of each field with its origin; `None` is a blank."""


def fields_of(facts: CardFacts) -> tuple[CardField, ...]:
    """All fields, blanks included."""
    frameworks = {NIST: _nist(facts), EDPB: _edpb(facts), ISO: _iso(facts), CNIL: _cnil(facts)}
    return tuple(
        CardField(framework=framework, group=group, name=name, value=None, origin="for the controller")
        if answer is None
        else CardField.model_validate(
            {"framework": framework, "group": group, "name": name, "value": answer[0], "origin": answer[1]}
        )
        for framework, groups in frameworks.items()
        for group, entries in groups
        for name, answer in entries.items()
    )


def _measured(text: str) -> tuple[str, str]:
    return text, "measured"


def _computed(text: str) -> tuple[str, str]:
    return text, "computed"


def _configured(text: str) -> tuple[str, str]:
    return text, "configured"


def _nist(facts: CardFacts) -> Iterator[tuple[str, _Group]]:
    yield (
        "The guarantee",
        {
            "Epsilon and delta": _computed(facts.epsilon),
            "Original parameters": _configured(facts.mechanisms),
            "Variant, and method of the account": _computed(facts.accountants),
            "Neighbouring relation and unit of privacy": _configured(facts.units),
            "Rows of one person in the table": None,
            "Delta against one over the number of rows": _computed(facts.delta),
            "Other releases from the same rows without noise": _computed(facts.unprotected),
        },
    )
    yield (
        "Mechanism, utility and bias",
        {
            "Mechanism, sensitivity and how it is enforced": _configured(facts.statements),
            "Library and version": _computed(facts.software),
            "Empirical audit, which is no proof": _measured(facts.tested),
            "Utility with its interval": _measured(facts.utility),
            "Utility by subgroup": _measured(facts.bias) if facts.bias else None,
        },
    )
    yield (
        "Deployment",
        {
            "Query model": _configured(facts.serving),
            "Trust model: who sees what": _configured(facts.trust),
            "Side channels: floating point, timing, errors, settings tuned on private rows": _configured(
                facts.channels
            ),
            "Access control": None,
            "Data collection: columns used of those available": _computed(facts.exposure),
        },
    )


def _edpb(facts: CardFacts) -> Iterator[tuple[str, _Group]]:
    yield (
        "Design and sources",
        {
            "Assessment, advice of the data protection officer": None,
            "Sources of the rows and their selection": None,
            "Measures by source": _configured(facts.measures),
            "Measures over the life cycle": None,
        },
    )
    yield (
        "Tests of resistance: which, by whom, when, how, how far, result",
        {
            "By whom and when": _measured(facts.tester),
            "How and how far": _measured(facts.attacks_run),
            "Inference of labels": _measured(facts.result("label inference")),
            "Inference of attributes": _measured(facts.result("attribute inference")),
            "Reconstruction and inversion": _measured(facts.result("reconstruction")),
            "Membership": _measured(facts.result("membership")),
            "Exfiltration of the model": _measured(facts.result("model completion")),
            "Rows to parameters": _computed(facts.rows_to_parameters),
            "Extraction of personal data from the model insignificant?": None,
            "Extraction by queries to the model insignificant?": None,
        },
    )
    yield ("Handed over", {"Documents for deployers": None, "Residual risk and its acceptance": None})


def _iso(facts: CardFacts) -> Iterator[tuple[str, _Group]]:
    yield (
        "Context",
        {
            "Recipients and what they receive": _configured(facts.trust),
            "Security practices, motives and capacity of the recipients": None,
            "Transparency and possible harms": None,
        },
    )
    yield (
        "Data",
        {
            "Data principals and types of data": None,
            "Attributes that went in": _computed(facts.exposure),
            "Properties of the data set": _computed(facts.rows),
        },
    )
    yield (
        "Identifiability",
        {
            "Maximum or average risk": _configured("maximum: the strongest attack counts, not the mean of all"),
            "Adversarial testing": _measured(facts.attacks_run),
            "Mitigation": _configured(facts.measures),
            "Re-evaluation": None,
        },
    )
    yield ("Governance", {"Before, and after the release": None, "Roles and responsibilities": None})


def _cnil(facts: CardFacts) -> Iterator[tuple[str, _Group]]:
    yield (
        "Study of the context",
        {
            "Purpose": None,
            "Parties and their roles in this system": _configured(facts.parties),
            "Controllers and processors in law": None,
            "Data, retention and recipients": None,
            "Life cycle: what crosses": _computed(facts.messages),
        },
    )
    yield (
        "Principles",
        {
            "Lawful basis": None,
            "Minimisation": _computed(facts.exposure),
            "Information and rights of the persons": None,
            "Security of the links": _configured(facts.links),
        },
    )
    yield (
        "Risks: sources, impacts, severity, likelihood",
        {
            "Illegitimate access": _measured(facts.strongest_attacks),
            "Unwanted change": None,
            "Loss": None,
            "Severity and likelihood": None,
            "Residual risk, and sign-off": None,
        },
    )
