"""Coded findings: what a reviewer should look at, each with a remedy; a code never changes its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.attacks.knowledge import condition
from cutlayer.attacks.malicious import TAMPERINGS, is_by_active_party
from cutlayer.audit.checks import CHECKS, Check, FindingContext, Occurrence, check
from cutlayer.audit.column_findings import COLUMN_CHECK_KINDS, column_occurrences
from cutlayer.audit.scored_rows import narrow_leaks
from cutlayer.config.aggregate import UNDATED
from cutlayer.data.column_note import ColumnNote
from cutlayer.parties.guards.numbers import NO_GRADIENT_REMEDY
from cutlayer.protections import REGISTRY as PROTECTIONS
from cutlayer.results.columns_read import is_of_columns, weakest
from cutlayer.results.completion import CompletionResult, best
from cutlayer.results.decimals import decimals
from cutlayer.results.features import FeatureResult, strongest
from cutlayer.results.finding import Finding, Severity
from cutlayer.results.leaks import LeakResult, worst_of
from cutlayer.results.metric_names import name_of
from cutlayer.results.run import RunKind

MIN_CLASS_ROWS = 50
"""Below this many rows of a class an AUC's interval is too wide to distinguish 0.5 from 0.6."""
MIN_EXPOSED_EXCESS = 0.05
"""Excess over the party's own columns, at the lower end of the interval, from which on labels count as exposed."""
MIN_HIDDEN_DIFFERENCE = 0.05
"""Difference between two attacks on the same messages above which a protection hides the label from one alone."""
_MAX_SHOWN_EPOCHS = 5
"""Epochs that a finding names."""


@check("CL101", "warning")
def _idle(context: FindingContext) -> Iterator[Occurrence]:
    """A protection changed nothing.

    Remedy: check its strength; label_dp at a large eps correctly flips nothing in a small table.
    """
    for protection in context.protections:
        if protection.sent and not protection.changed:
            yield Occurrence(
                protection.party,
                f"{protection.name} of {protection.party} covered all {protection.covered} {protection.unit}, and each "
                "of them equals the undefended one",
            )


@check("CL102", "warning")
def _powerless(context: FindingContext) -> Iterator[Occurrence]:
    """An attack has no power here.

    Remedy: read the other attacks.
    """
    undefended = context.audit.runs.get(RunKind.UNDEFENDED)
    leaks = undefended.leaks if undefended else ()
    # An attack that fails where another reads the same message is no loss: the headline takes the strongest.
    read = {(leak.party, leak.message) for leak in leaks if leak.low is None or leak.low > 0.5}
    for leak in leaks:
        if leak.low is not None and (leak.party, leak.message) not in read:
            yield Occurrence(
                context.active,
                f"{leak.label} is at chance even on the undefended baseline (leak {decimals(leak.leak)}, interval "
                f"{decimals(leak.low)} to {decimals(leak.high)}); that it fails on the defended run proves nothing",
            )


@check("CL104", "warning")
def _few_rows(context: FindingContext) -> Iterator[Occurrence]:
    """Too few rows of one class.

    Remedy: raise audit.rows, or train on more rows.
    """
    own = context.audit.runs[RunKind.THIS_RUN]
    few = [leak for leak in own.leaks if min(leak.positives, leak.rows - leak.positives) < MIN_CLASS_ROWS]
    for attempt in (*few, *own.undefined):
        yield Occurrence(
            context.active,
            f"{attempt.label} scored {attempt.positives} positive of {attempt.rows} rows; its leak says little",
        )


@check("CL105", "warning")
def _no_better_than_chance(context: FindingContext) -> Iterator[Occurrence]:
    """The model is no better than chance.

    Remedy: train longer or weaken the protections before reading the leaks.
    """
    utility = context.utility
    own, constant = utility.row(RunKind.THIS_RUN), utility.row(RunKind.CHANCE)
    value = own.metrics.get(utility.metric) if own else None
    floor = constant.metrics.get(utility.metric) if constant and utility.metric != "auc" else None
    floor = 0.5 if floor is None else floor
    if own and value is not None and (own.low is None or own.low <= floor):
        yield Occurrence(
            "",
            f"held-out {name_of(utility.metric)} {decimals(value)} is not above {decimals(floor)} beyond its interval; "
            "low leaks of a model that learned little say little, and gradients reveal labels all the same",
        )


@check("CL106", "warning")
def _nothing(context: FindingContext) -> Iterator[Occurrence]:
    """Nothing was audited.

    Remedy: choose attacks that fit the task, where it has some, and audit.every: epoch or end.
    """
    own = context.audit.runs[RunKind.THIS_RUN]
    results = (own.leaks, own.undefined, _completions(context), _features(context))
    if not any(results):
        yield Occurrence("", "no attack ran on this run's messages; what leaked is unknown")


@check("CL107", "note")
def _skipped(context: FindingContext) -> Iterator[Occurrence]:
    """An attack could not be run.

    Remedy: see the reason.
    """
    for skipped in context.audit.runs[RunKind.THIS_RUN].skipped:
        # The reason may name a column of the attacked party.
        kind = ATTACKS.get(skipped.attack)
        of_labels = (skipped.attack in TAMPERINGS and not is_by_active_party(skipped.attack)) or (
            kind is not None and not issubclass(kind, FeatureAttack)
        )
        yield Occurrence(context.active if of_labels else skipped.party, f"{skipped.label}: {skipped.reason}")


@check("CL108", "warning")
def _completed(context: FindingContext) -> Iterator[Occurrence]:
    """A departed party keeps more than its own data.

    Remedy: add a protection that keeps labels out of that party's model, or agree on what it may do with it once it
    leaves.
    """
    metric = name_of(context.utility.metric)
    for result in _completions(context):
        own, scratch = best(result.variants), best(result.scratch)
        if result.gains and own and scratch:
            labels = f"{'all' if result.all_labels else 'only'} {result.labels:,} labels"
            yield Occurrence(
                context.active,
                f"{result.attack} with {labels} makes the bottom model of {result.party} from {result.run} predict "
                f"with {metric} {decimals(own.value)} ({decimals(own.low)} to {decimals(own.high)}, the strongest of "
                f"{len(result.variants)} variants, picked after the fact); from scratch on the same labels it reaches "
                f"{decimals(scratch.value)} ({decimals(scratch.low)} to {decimals(scratch.high)})",
            )


@check("CL109", "error")
def _exceeded(context: FindingContext) -> Iterator[Occurrence]:
    """A guarantee does not hold.

    Remedy: do not rely on the ledger's epsilon; look for noise that is too small, or labels drawn again in every epoch.
    """
    for test in context.audit.guarantees:
        if test.exceeded:
            yield Occurrence(
                test.party,
                f"{test.canaries:,} canaries show that {test.protection} of {test.party} spends an epsilon of at least "
                f"{test.lower_bound:.3g} at delta {test.delta:g} (confidence {100 * test.confidence:g} %); its ledger "
                "has less",
            )


@check("CL110", "warning")
def _recovered(context: FindingContext) -> Iterator[Occurrence]:
    """Releases reveal features.

    Remedy: add a protection of that passive party's features, or a stronger one, or a narrower cut.
    """
    found = strongest(_features(context))
    # Of attacks on all columns of a party the one that counts: it knows least, and reaches nearly as far as any.
    counting = weakest(found)
    for result in found:
        if is_of_columns(result) and counting[result.party] is not result:
            continue
        needed = condition(result.knowledge, result.known)
        given = f", with {needed}," if needed else ""
        bounds = f"({decimals(result.low)} to {decimals(result.high)})"
        about = f" of {result.column}, the column inferred best" if result.column else ""
        sent = "grades" if result.party in context.graded else "embeddings"
        yield Occurrence(
            result.party,
            f"{result.attack} on the {sent} of {result.party} ({result.release}){given} reaches "
            f"{name_of(result.metric)} {decimals(result.value)}{about} {bounds}; "
            f"without them it is {decimals(result.without)}",
        )


@check("CL111", "warning")
def _exposed(context: FindingContext) -> Iterator[Occurrence]:
    """Labels are exposed.

    Remedy: protect the labels, or lower `label_dp.eps`: `cutlayer list protections` names the ways,
    docs/how-to/which-protection.md compares them.
    """
    own = context.audit.runs[RunKind.THIS_RUN]
    for party in dict.fromkeys(leak.party for leak in own.leaks):
        worst = worst_of(leak for leak in own.leaks if leak.party == party)
        if worst is not None and {*worst.parties} <= context.label_free:
            continue  # whatever is read, the columns reveal: it would be the same with other labels
        baseline = own.baseline(party)
        columns = baseline.own_columns if baseline else None
        floor = max(columns or 0.5, (baseline.chance if baseline else None) or 0.5)
        if worst is not None and worst.low is not None and worst.low > floor + MIN_EXPOSED_EXCESS:
            whose = "their" if worst.together else "its"
            against = "chance is 0.5" if columns is None else f"{whose} own columns reach {decimals(columns)}"
            reading = f"{decimals(worst.leak)} ({decimals(worst.low)} to {decimals(worst.high)})"
            yield Occurrence(context.active, f"{worst.label} reads {reading} of the labels{_given(worst)}; {against}")


@check("CL112", "warning")
def _hidden_from_one(context: FindingContext) -> Iterator[Occurrence]:
    """Hidden from one attack only.

    Remedy: judge the protection by the strongest attack; choose one that lowers it.
    """
    own = context.audit.runs[RunKind.THIS_RUN]
    for name in own.protections:
        protection = PROTECTIONS.get(name)
        for message, attack in protection.published_against if protection else ():
            for party in dict.fromkeys(leak.party for leak in own.leaks):
                leaks = [leak for leak in own.leaks if (leak.party, leak.message) == (party, message)]
                aimed = [leak.leak for leak in leaks if leak.attack == attack]
                worst = worst_of(leaks)
                if aimed and worst is not None and worst.leak > aimed[0] + MIN_HIDDEN_DIFFERENCE:
                    yield Occurrence(
                        context.active,
                        f"{name} was published against {attack}, which reads {decimals(aimed[0])} of the {message}s of "
                        f"{party}; {worst.attack} reads {decimals(worst.leak)} of the same messages{_given(worst)}",
                    )


@check("CL113", "note")
def _below_own_columns(context: FindingContext) -> Iterator[Occurrence]:
    """No attack reads more than the party's own columns reveal.

    Remedy: read the excess, not the leak; the columns reveal as much without any message.
    """
    own = context.audit.runs[RunKind.THIS_RUN]
    for baseline in own.baselines:
        leaks = [leak.leak for leak in own.leaks if leak.party == baseline.party]
        if leaks and baseline.own_columns is not None and max(leaks) < baseline.own_columns:
            whose = "their" if baseline.together else "the party's"
            yield Occurrence(
                context.active,
                f"no attack on the messages of {baseline.attacker} reads more than {decimals(max(leaks))}; {whose} "
                f"own columns reach {decimals(baseline.own_columns)} ({baseline.model} on all labels)",
            )


@check("CL114", "warning")
def _few_scored(context: FindingContext) -> Iterator[Occurrence]:
    """The strongest attack scored few of the rows.

    Remedy: read the leak as that of the rows which the attack chose to score, beside that of an attack which scored
    more.
    """
    for worst, wider in narrow_leaks(context.audit.runs[RunKind.THIS_RUN].leaks):
        reach = f"{decimals(worst.leak)} of {worst.rows:,} of {worst.rows_recorded:,} recorded rows{_given(worst)}"
        most = f"{wider.attack} reads {decimals(wider.leak)}{_given(wider)}" if wider else "there is none"
        yield Occurrence(context.active, f"{worst.label} reads {reach}; of attacks that scored half of them, {most}")


@check("CL115", "warning", remedy=NO_GRADIENT_REMEDY)
def _untrained(context: FindingContext) -> Iterator[Occurrence]:
    """Nothing was trained."""
    if context.idle_epochs:
        numbers = ", ".join(map(str, context.idle_epochs[:_MAX_SHOWN_EPOCHS]))
        more = (
            f" and {len(context.idle_epochs) - _MAX_SHOWN_EPOCHS:,} more"
            if len(context.idle_epochs) > _MAX_SHOWN_EPOCHS
            else ""
        )
        detail = f"all gradients were exactly zero in epoch {numbers}{more}: no model learned anything there"
        yield Occurrence("", detail)


@check("CL116", "warning")
def _one_class(context: FindingContext) -> Iterator[Occurrence]:
    """The held-out rows are of one class.

    Remedy: provide more rows, raise train.split.test, or let train.split stratify.
    """
    own = context.utility.row(RunKind.THIS_RUN)
    metric = context.utility.metric
    if own is not None and metric != "r2" and own.metrics.get(metric) is None:
        yield Occurrence("", f"{name_of(metric)} is not defined on them, and the accuracy of a constant answer is 1")


@check("CL117", "warning")
def _no_common_row(context: FindingContext) -> Iterator[Occurrence]:
    """No training row is with every party.

    Remedy: provide rows that all parties have, or run the job with each partner alone.
    """
    if context.no_common_row:
        yield Occurrence(
            context.active, "attacks on labels read messages of rows that all parties have; what they reveal is unknown"
        )


@check("CL118", "warning")
def _alarmed(context: FindingContext) -> Iterator[Occurrence]:
    """A guard raised the alarm.

    Remedy: ask the partner what it sends; docs/how-to/guard.md says what an alarm shows and what it does not.
    """
    for alarm in context.alarms:
        yield Occurrence(alarm.party, f"{alarm.party} about {alarm.peer} in {alarm.when}: {alarm.detail}")


@check("CL122", "warning")
def _undated(context: FindingContext) -> Iterator[Occurrence]:
    """Events of the future may count.

    Remedy: name the column of the time before which events count, by table.aggregate.as_of; docs/how-to/tables.md says
    how.
    """
    for party in context.undated:
        yield Occurrence(party, f"{party} aggregates {UNDATED}")


def findings_of(context: FindingContext) -> tuple[Finding, ...]:
    """All findings of a run, errors first, then warnings, then notes."""
    return tuple(_finding(kind, occurrence) for kind in _ordered(CHECKS) for occurrence in kind.find(context))


def column_findings(notes: Mapping[str, tuple[ColumnNote, ...]]) -> tuple[Finding, ...]:
    """The findings about columns alone, in the folder of a passive party, which has no label and no metric."""
    of_columns = [kind for kind in _ordered(CHECKS) if kind.code in COLUMN_CHECK_KINDS]
    return tuple(
        _finding(kind, each)
        for kind in of_columns
        for each in column_occurrences(notes, *COLUMN_CHECK_KINDS[kind.code])
    )


def _ordered(checks: Iterable[Check]) -> list[Check]:
    order: tuple[Severity, ...] = ("error", "warning", "note")
    return sorted(checks, key=lambda kind: (order.index(kind.severity), kind.code))


def _finding(of: Check, occurrence: Occurrence) -> Finding:
    return Finding(code=of.code, severity=of.severity, title=of.title, remedy=of.remedy, **vars(occurrence))


def _given(leak: LeakResult) -> str:
    """Knowledge of rows that the attacker needs, as a phrase to append; empty if it needs none."""
    needed = condition(leak.knowledge)
    return f" with {needed}" if needed else ""


def _completions(context: FindingContext) -> list[CompletionResult]:
    """Model completion in this run and in the malicious result."""
    kinds = (RunKind.THIS_RUN, RunKind.MALICIOUS)
    labels = [row.name for row in context.utility.rows if row.run_kind in kinds]
    return [result for result in context.audit.completions if result.run in labels]


def _features(context: FindingContext) -> list[FeatureResult]:
    """Attacks on features in this run."""
    return [result for result in context.audit.features if result.run == RunKind.THIS_RUN]
