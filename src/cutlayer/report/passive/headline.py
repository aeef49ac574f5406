"""The two sentences that the report of a passive party begins with."""

from __future__ import annotations

from cutlayer.accounting.ledger import REFUSAL_ENTRY
from cutlayer.report.passive.reach import ability_phrase, headline_results, short_knowledge_phrase
from cutlayer.report.rounding import amount, count
from cutlayer.results.passive import PassiveReport


def passive_headline(report: PassiveReport) -> str:
    """What attacks on the columns reach, and what bounds it; two sentences of 25 words at most."""
    return f"{_columns(report)} {_bound(report)}"


def _columns(report: PassiveReport) -> str:
    name, active = report.party, report.active
    if not report.features:
        return f"No attack on the columns of {name} was run: this page cannot say what {active} can read of them."
    results = headline_results(report.features)
    if not results:
        return f"No attack that was run read more than a little of the columns of {name}."
    first, *further = results
    more = "".join(f", and {short_knowledge_phrase(result)} {ability_phrase(result)}" for result in further)
    return f"{active} can {ability_phrase(first, name)} {short_knowledge_phrase(first)}{more}."


def _bound(report: PassiveReport) -> str:
    formal = [total for total in report.ledger.totals if total.protects == "features" and total.epsilon is not None]
    revealed = ""
    if report.alignment is not None and report.alignment.disclosures:
        there = report.alignment.disclosures[0]
        known = f"{'at least ' * there.at_least}{count(there.present_ids)}"
        revealed = f", and {report.active} knows {known} ids of {report.party}"
    if report.reproducible_noise and formal:
        return f"The noise key was supplied: whoever has it can remove the noise{revealed}."
    if not formal:
        return f"No theorem limits what a better attack reads{revealed}."
    epsilon = max(total.epsilon or 0.0 for total in formal)
    refuses = any(entry.protection == REFUSAL_ENTRY for entry in report.ledger.entries)
    kind = ", refusals and lower steps apart" * refuses
    kind = kind if all(total.condition == "unconditional" for total in formal) else ", under conditions"
    stated = any(total.stated_by for total in formal)
    proof = "A plugin states, and Cutlayer has not proved, a bound on" if stated else "A theorem bounds"
    return f"{proof} what is learned of each row by epsilon {amount(epsilon)}{kind}{revealed}."
