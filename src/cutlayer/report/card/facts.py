"""Answers of a run to the questions of the frameworks, as sentences by the names that `fields.yaml` has for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, get_args

from cutlayer.accounting import DPSGD, GaussianRelease, LabelFree, RandomizedGrade
from cutlayer.accounting.plan import PrivateFit
from cutlayer.accounting.total import Total
from cutlayer.config.party import LABEL_FREE
from cutlayer.report.releases import release_words
from cutlayer.report.rounding import amount, auc, count, date, metric, setting, size, times
from cutlayer.report.sections.protections import REPRODUCIBLE_NOT_PRIVATE, label_free_parties, without_total
from cutlayer.results.metric_names import name_of
from cutlayer.results.passive import PassiveReport
from cutlayer.results.privacy_card import AttackEvidence, PartyColumns, SubgroupUtility, Threat
from cutlayer.results.report import Report
from cutlayer.results.run import PartyInfo, RunKind

TRUST_ASSUMPTIONS = "No party is trusted with the rows of another; parties are assumed to follow the protocol"
DRAWN_LABELS = "a drawn label of each training row, once,"
_NONE = "none: no theorem holds for any message of this run"


def card_facts(
    report: Report,
    evidence: Sequence[AttackEvidence],
    columns: Sequence[PartyColumns],
    subgroups: Sequence[SubgroupUtility],
) -> SimpleNamespace:
    """Sentences about a run.

    Args:
        report: Report of the run.
        evidence: All attacks on it.
        columns: Columns that went in, by party.
        subgroups: Metrics by subgroup.
    """
    not_run = len(report.limits) + len(report.left_out)
    return SimpleNamespace(
        **account_facts(report, rows=report.data.train, reproducible=report.run.reproducible_noise),
        **attack_facts(evidence, not_run),
        exposure=columns_used_text(columns),
        unprotected=_unprotected(report),
        bias=_bias(report.utility.metric, subgroups),
        **_run_facts(report),
    )


def account_facts(report: Report | PassiveReport, *, rows: int, reproducible: bool) -> dict[str, Any]:
    """Sentences that follow from the account and the protections of either side.

    Args:
        report: Report of the side.
        rows: Number of training rows.
        reproducible: Whether the noise key was supplied.
    """
    entries = report.ledger.entries
    formal = [total for total in report.ledger.totals if total.epsilon is not None]
    units = [
        "one row's features, replaced" if isinstance(entry.event, GaussianRelease) else entry.statement
        for entry in entries
        if entry.formal
    ]
    deltas = dict.fromkeys(total.delta for total in formal if total.delta)
    compared = (f"{delta:g}, where 1/n is {1 / rows:.2g} and 1/n² {1 / rows**2:.2g}" for delta in deltas)
    gaussian = bool(_fits(report)) or any(isinstance(entry.event, GaussianRelease | DPSGD) for entry in entries)
    return {
        "epsilon": _joined(map(_epsilon, formal), _NONE)
        + f". {REPRODUCIBLE_NOT_PRIVATE}" * (reproducible and bool(formal)),
        "accountants": _joined((f"{total.accountant}, {total.condition}" for total in formal), _NONE),
        "statements": "; ".join(entry.statement for entry in entries) or _NONE,
        "units": f"{_joined(units, '')}. The unit is a row" if units else _NONE,
        "delta": _joined(compared, "delta is 0" if formal else _NONE),
        "tested": _tested(report),
        "channels": "Gaussian noise is on a lattice; "
        * gaussian
        + "times of messages and the number of epochs are visible to all parties; settings that were chosen on the "
        "same rows are not in the account",
        **_protection_facts(report),
    }


def attack_facts(evidence: Sequence[AttackEvidence], not_run: int) -> dict[str, Any]:
    """Sentences about attacks: which were run, the strongest of each threat by pair of parties, and of all.

    Args:
        evidence: All attacks.
        not_run: Number of attacks that were not run or left out.
    """
    names = ", ".join(dict.fromkeys(result.attack for result in evidence)) or "no attack"
    strongest = [result for result in evidence if result.strongest]
    by_threat = {
        threat: "; ".join(
            f"{result.attacker} on {result.owner}: {reached_text(result)} by {result.attack}, "
            f"control {value_text(result, result.control)}, naive baseline {value_text(result, result.naive)}"
            for result in strongest
            if result.threat == threat
        )
        for threat in get_args(Threat)
    }
    sentences = [f"{result.threat} by {result.attacker}: {reached_text(result)}" for result in strongest]
    left_out = times(not_run, "attack")
    return {
        "attacks_run": f"{names}, on the messages that were sent; not run or left out: {left_out}",
        "results": {threat: text or "not tested in this run" for threat, text in by_threat.items()},
        "strongest_attacks": "; ".join(sentences) or "no attack was run",
    }


def columns_used_text(columns: Sequence[PartyColumns]) -> str:
    """Columns used of those available."""
    return "; ".join(
        f"{party.party}: {'not known here' if party.used is None else len(party.used)}"
        + ("" if party.available is None else f" of {party.available} columns besides id and label")
        for party in columns
    )


def totals_without_theorem(totals: Iterable[Total]) -> list[str]:
    """What no theorem covers towards somebody, and why."""
    return [
        f"{total.protects} of {total.party} towards {', '.join(total.towards)}: {total.why}"
        for total in totals
        if total.epsilon is None
    ]


def _joined(texts: Iterable[str], otherwise: str) -> str:
    return "; ".join(dict.fromkeys(texts)) or otherwise


def _epsilon(total: Total) -> str:
    """Epsilon and delta of the whole run of one asset and receiver."""
    delta = f" at delta {total.delta:g}" if total.delta else ", pure"
    condition = f", {total.condition}" if total.protects == "labels" or total.stated_by else ""
    towards = ", ".join(total.towards)
    return f"{total.protects} of {total.party} towards {towards}: epsilon {amount(total.epsilon)}{delta}{condition}"


def _tested(report: Report | PassiveReport) -> str:
    """Guarantees that canaries tested."""
    tests = [
        f"{test.protection} of {test.party}: at least {amount(test.lower_bound)} of epsilon {amount(test.epsilon)}"
        for test in report.guarantees
    ]
    noisy = any(entry.formal and not isinstance(entry.event, LabelFree) for entry in report.ledger.entries)
    untested = "not run; cutlayer audit RUN --empirical-epsilon" if noisy else "none: no mechanism draws at random"
    return "; ".join(tests) or untested


def _protection_facts(report: Report | PassiveReport) -> dict[str, Any]:
    """Protections with their settings and by owner; releases without labels change no message, and have no evidence."""
    label_free = [
        f"{entry.party}: {entry.protection} (protects {entry.protects}) towards {', '.join(entry.towards)}, "
        "by a single release before training"
        for entry in report.ledger.entries
        if entry.protection == LABEL_FREE
    ]
    settings = [", ".join(f"{name} {setting(value)}" for name, value in p.settings.items()) for p in report.protections]
    mechanisms = [
        f"{part.name} of {part.party}" + (f" ({stated})" if stated else "")
        for part, stated in zip(report.protections, settings, strict=True)
    ]
    mechanisms += [f"fit of {name} (epsilon {fit.epsilon:g}, delta {fit.delta:g})" for name, fit in _fits(report)]
    owned = [f"{part.party}: {part.name} (protects {part.protects})" for part in report.protections]
    return {
        "mechanisms": "; ".join([*mechanisms, *label_free]) or "no protection",
        "measures": "; ".join([*owned, *label_free]) or "none beyond that rows and labels stay with their owners",
        "protected": bool(owned or label_free),
    }


def _fits(report: Report | PassiveReport) -> list[tuple[str, PrivateFit]]:
    """Private fits of models, each with its party."""
    graded = [(entry.party, entry.event) for entry in report.ledger.entries if isinstance(entry.event, RandomizedGrade)]
    return [(party, event.fit) for party, event in graded if event.fit is not None]


def _run_facts(report: Report) -> dict[str, Any]:
    run, data, active = report.run, report.data, report.active.name
    passives = [party for party in report.parties if party.role == "passive"]
    sees = [f"{active} receives the {release_words(report.carried, report.passives)}, and has the labels"]
    sees += [f"{party.name} receives {_received(party)}" for party in passives]
    ratios = [
        f"{party.name}: {count(data.train)} training rows to {count(party.parameters)} parameters"
        for party in report.parties
        if party.parameters
    ]
    common = f"{count(data.common)} rows in common"
    if data.held:
        has = "released" if report.pilot else "has"
        each = ", ".join(f"{name} {has} {count(rows)}" for name, rows in data.held.items())
        common = f"{count(data.common)} rows of {active}, of which {each}"
    parts = {"train": data.train, "validate": data.validation, "test": data.test}
    roles = {"active": "has the labels and the top model", "passive": "has features and a bottom model"}
    return {
        "software": f"Cutlayer {run.cutlayer}, PyTorch {run.torch}, Python {run.python}; account by Google's "
        "dp-accounting",
        "utility": _utility(report),
        "trust": f"{'; '.join(sees)}. {TRUST_ASSUMPTIONS}",
        "tester": f"Cutlayer {run.cutlayer} in run {run.id} of {date(run.created)}; the person who ran it: for the "
        "controller",
        "rows_to_parameters": "; ".join(ratios) or "not known here",
        "rows": f"{common}; {', '.join(f'{count(rows)} {part}' for part, rows in parts.items())}",
        "parties": "; ".join(f"{party.name} {roles[party.role]}" for party in report.parties),
        "messages": "; ".join(
            f"{party.name} sent {size(party.bytes_sent)} and received {size(party.bytes_received)}"
            for party in report.parties
        ),
    }


def _utility(report: Report) -> str:
    """Headline metric of this run, with its interval."""
    row, name = report.utility.row(RunKind.THIS_RUN), report.utility.metric
    if row is None:
        return "not measured"
    rows, which = report.data.reported
    bounds = "" if row.low is None else f" ({metric(row.low)} to {metric(row.high)})"
    return f"{name_of(name)} {metric(row.metrics.get(name))}{bounds} on {count(rows)} {which}"


def _unprotected(report: Report) -> str:
    """Assets that no theorem covers towards somebody."""
    active, totals = report.active.name, report.ledger.totals
    names = totals_without_theorem(totals)
    labels, columns = without_total(report, totals)
    if labels:
        names.append(f"labels of {active} towards {', '.join(labels)}: the ledger has no entry")
    if columns:
        names.append(f"features of {', '.join(columns)} towards {active}: the ledger has no entry")
    passives = [party for party in report.parties if party.role == "passive"]
    # Where every passive party releases once, none of them sees the end of the run.
    seen = any(not party.released_once or _warmed_up(party) for party in passives)
    free = label_free_parties(report)
    if seen and (others := [party.name for party in passives if party.name not in free]):
        held_out = "labels of held-out rows, as far as the end of the run or its best epoch depends on them"
        names.append(f"{held_out}, towards {', '.join(others)}")
    return "; ".join(names) or "none"


def _bias(name: str, subgroups: Sequence[SubgroupUtility]) -> str:
    """The smallest and the largest headline metric by subgroup."""
    by_column: dict[str, list[tuple[float, str]]] = {}
    for group in subgroups:
        if (value := group.metrics.get(name)) is not None:
            by_column.setdefault(f"{group.column} of {group.party}", []).append((value, group.group))
    ends = {column: (min(values), max(values)) for column, values in by_column.items()}
    return "; ".join(
        f"{column}: {name_of(name)} {metric(least)} ({where}) to {metric(most)} ({elsewhere})"
        for column, ((least, where), (most, elsewhere)) in ends.items()
    )


def _received(party: PartyInfo) -> str:
    """Messages that a passive party received in training."""
    if not party.released_once:
        return "cut gradients of its embeddings"
    if _warmed_up(party):
        return "cut gradients in the warm-up epochs alone, since after them it releases each row once"
    drawn = f"{DRAWN_LABELS} and " if party.traffic.get("labels", (0, 0))[1] else ""
    return f"{drawn}no cut gradients, since it releases each row once"


def _warmed_up(party: PartyInfo) -> bool:
    """Whether it was sent gradients, of a party that releases once."""
    return party.traffic.get("gradient", (0, 0))[1] > 0


def reached_text(result: AttackEvidence) -> str:
    """The metric of an attack and its value."""
    return f"{name_of(result.metric)} {value_text(result, result.value)}"


def value_text(result: AttackEvidence, value: float | None) -> str:
    """A value of an attack's metric."""
    return auc(value) if result.metric == "leak" else metric(value)
