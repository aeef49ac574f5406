"""The fields of the frameworks that an assessment follows, filled with what a run knows.

The groups are in our words after each document: NIST SP 800-226 (Guidelines for Evaluating Differential Privacy
Guarantees), EDPB Opinion 28/2024 on AI models, ISO/IEC 27559 (privacy enhancing data de-identification framework), and
the privacy impact assessment of the CNIL after Article 35(7) of the GDPR. No paragraph is quoted: check against the
texts.
"""

from __future__ import annotations

from cutlayer.report.card.facts import CardFacts
from cutlayer.results.privacy_card import CardField, Origin

NIST, EDPB = "NIST SP 800-226", "EDPB Opinion 28/2024"
ISO, CNIL = "ISO/IEC 27559", "CNIL PIA, GDPR Article 35(7)"
_Answer = tuple[str | None, Origin]
"""The answer of a field with its origin; `None` is a blank."""
_BLANK: _Answer = (None, "for the controller")


def fields_of(facts: CardFacts) -> tuple[CardField, ...]:
    """All fields, blanks included."""
    return tuple(
        CardField(framework=framework, group=group, name=name, value=value, origin=origin)
        for framework, groups in _answers(facts).items()
        for group, entries in groups.items()
        for name, (value, origin) in entries.items()
    )


def _answers(facts: CardFacts) -> dict[str, dict[str, dict[str, _Answer]]]:
    """The answer of each field by framework and group."""

    def measured(text: str) -> _Answer:
        return text, "measured"

    def computed(text: str) -> _Answer:
        return text, "computed"

    def configured(text: str) -> _Answer:
        return text, "configured"

    return {
        NIST: {
            "The guarantee": {
                "Epsilon and delta": computed(facts.epsilon),
                "Original parameters": configured(facts.mechanisms),
                "Variant, and method of the account": computed(facts.accountants),
                "Neighbouring relation and unit of privacy": configured(facts.units),
                "Rows of one person in the table": _BLANK,
                "Delta against one over the number of rows": computed(facts.delta),
                "Other releases from the same rows without noise": computed(facts.unprotected),
            },
            "Mechanism, utility and bias": {
                "Mechanism, sensitivity and how it is enforced": configured(facts.statements),
                "Library and version": computed(facts.software),
                "Empirical audit, which is no proof": measured(facts.tested),
                "Utility with its interval": measured(facts.utility),
                "Utility by subgroup": measured(facts.bias) if facts.bias else _BLANK,
            },
            "Deployment": {
                "Query model": configured(facts.serving),
                "Trust model: who sees what": configured(facts.trust),
                "Side channels: floating point, timing, errors, settings tuned on private rows": configured(
                    facts.channels
                ),
                "Access control": _BLANK,
                "Data collection: columns used of those available": computed(facts.exposure),
            },
        },
        EDPB: {
            "Design and sources": {
                "Assessment, advice of the data protection officer": _BLANK,
                "Sources of the rows and their selection": _BLANK,
                "Measures by source": configured(facts.measures),
                "Measures over the life cycle": _BLANK,
            },
            "Tests of resistance: which, by whom, when, how, how far, result": {
                "By whom and when": measured(facts.tester),
                "How and how far": measured(facts.attacks_run),
                "Inference of labels": measured(facts.result("label inference")),
                "Inference of attributes": measured(facts.result("attribute inference")),
                "Reconstruction and inversion": measured(facts.result("reconstruction")),
                "Membership": measured(facts.result("membership")),
                "Exfiltration of the model": measured(facts.result("model completion")),
                "Rows to parameters": computed(facts.rows_to_parameters),
                "Extraction of personal data from the model insignificant?": _BLANK,
                "Extraction by queries to the model insignificant?": _BLANK,
            },
            "Handed over": {"Documents for deployers": _BLANK, "Residual risk and its acceptance": _BLANK},
        },
        ISO: {
            "Context": {
                "Recipients and what they receive": configured(facts.trust),
                "Security practices, motives and capacity of the recipients": _BLANK,
                "Transparency and possible harms": _BLANK,
            },
            "Data": {
                "Data principals and types of data": _BLANK,
                "Attributes that went in": computed(facts.exposure),
                "Properties of the data set": computed(facts.rows),
            },
            "Identifiability": {
                "Maximum or average risk": configured("maximum: the strongest attack counts, not the mean of all"),
                "Adversarial testing": measured(facts.attacks_run),
                "Mitigation": configured(facts.measures),
                "Re-evaluation": _BLANK,
            },
            "Governance": {"Before, and after the release": _BLANK, "Roles and responsibilities": _BLANK},
        },
        CNIL: {
            "Study of the context": {
                "Purpose": _BLANK,
                "Parties and their roles in this system": configured(facts.parties),
                "Controllers and processors in law": _BLANK,
                "Data, retention and recipients": _BLANK,
                "Life cycle: what crosses": computed(facts.messages),
            },
            "Principles": {
                "Lawful basis": _BLANK,
                "Minimisation": computed(facts.exposure),
                "Information and rights of the persons": _BLANK,
                "Security of the links": configured(facts.links),
            },
            "Risks: sources, impacts, severity, likelihood": {
                "Illegitimate access": measured(facts.strongest_attacks),
                "Unwanted change": _BLANK,
                "Loss": _BLANK,
                "Severity and likelihood": _BLANK,
                "Residual risk, and sign-off": _BLANK,
            },
        },
    }
