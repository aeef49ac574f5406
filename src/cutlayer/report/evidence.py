"""Every attack of a report with its control and its naive baseline, and who could learn what in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from cutlayer.attacks import REGISTRY
from cutlayer.attacks.knowledge import condition, in_words
from cutlayer.report.columns_read import columns_read_phrase
from cutlayer.report.grading import NEGLIGIBLE_EXCESS, leak_phrase
from cutlayer.report.releases import ONLY_RELEASE, release_of
from cutlayer.report.rounding import metric, share
from cutlayer.results.columns_read import is_of_columns, weakest
from cutlayer.results.completion import best
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import LeakResult
from cutlayer.results.metric_names import name_of
from cutlayer.results.privacy_card import AttackEvidence, Threat
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

_COMPARED = {
    "binary": ("which of two rows with different labels has which label", ""),
    "multiclass": ("a row of a class from a row of another", ", on average over the classes"),
    "regression": ("which of two rows has the larger label", ""),
}
"""Comparison that a leak is a share of, by the kind of the labels."""


def evidence_of(report: Report) -> tuple[AttackEvidence, ...]:
    """All attacks on this run; of each threat to each party the strongest is marked and comes first.

    Of those on all columns of a party it is the one that knows least, where it reads nearly as much as any.
    """
    return mark_strongest(
        [
            *_labels(report),
            *feature_evidence(report.features, report.active.name, report.carried),
            *_completions(report),
        ]
    )


def mark_strongest(results: Sequence[AttackEvidence]) -> tuple[AttackEvidence, ...]:
    """Attacks with what they do; of each threat to each party the strongest is marked and comes first."""
    marked: list[AttackEvidence] = []
    for group in dict.fromkeys((result.threat, result.owner, result.attacker) for result in results):
        group_results = [result for result in results if (result.threat, result.owner, result.attacker) == group]
        group_results = [result.model_copy(update={"attack_does": _purpose(result)}) for result in group_results]
        first = next((result for result in group_results if result.strongest), max(group_results, key=_excess))
        marked.append(first.model_copy(update={"strongest": True}))
        marked += sorted((result for result in group_results if result is not first), key=_excess, reverse=True)
    return tuple(marked)


def _excess(result: AttackEvidence) -> float:
    """Value that results are ranked by: a leak itself, another metric less its control."""
    value = -1.0 if result.value is None else result.value
    return value if result.metric == "leak" else value - (result.control or 0.0)


def _purpose(result: AttackEvidence) -> str:
    """Purpose of the attack; where rows were released once, with the remark that all epochs have one release."""
    if result.attack not in REGISTRY:
        return ""
    purpose = REGISTRY[result.attack].purpose()
    once = "epochs" in purpose and result.subject.endswith(ONLY_RELEASE)
    return f"{purpose} Here each row has one release, which every epoch uses." if once else purpose


def _labels(report: Report) -> Iterator[AttackEvidence]:
    baselines = {baseline.party: baseline for baseline in report.baselines}
    undefended = {leak.label: leak.leak for leak in report.leaks if leak.run == RunKind.UNDEFENDED}
    for leak in report.leaks:
        if leak.run != RunKind.THIS_RUN:
            continue
        baseline = baselines.get(leak.party)
        yield AttackEvidence(
            threat="label inference",
            owner=report.active.name,
            attacker=leak.attacker,
            together=leak.together,
            subject=f"{leak.message}s, {release_of(report, leak)}",
            attack=leak.attack,
            knowledge=in_words(leak.knowledge),
            given=condition(leak.knowledge),
            metric="leak",
            value=leak.leak,
            low=leak.low,
            high=leak.high,
            control=baseline.chance if baseline else None,
            control_is="the strongest attack on permuted labels",
            naive=baseline.own_columns if baseline else None,
            naive_is=_own_columns(leak),
            undefended=undefended.get(leak.label),
            rows=leak.rows,
        )


def feature_evidence(
    results: Sequence[FeatureResult], active: str, carried: Collection[str]
) -> Iterator[AttackEvidence]:
    """Attacks on features in this run.

    Args:
        results: Results of all runs.
        active: Name of the active party, which attacks.
        carried: Names of the parties that released grades.
    """
    others = [result for result in results if result.run == RunKind.UNDEFENDED]
    counting = weakest(result for result in results if result.run == RunKind.THIS_RUN)
    for result in results:
        if result.run != RunKind.THIS_RUN:
            continue
        same = (result.party, result.attack, result.column)
        undefended = [other.value for other in others if (other.party, other.attack, other.column) == same]
        member = _threat(result) == "membership"
        yield AttackEvidence(
            threat=_threat(result),
            owner=result.party,
            attacker=active,
            subject=f"{'grades' if result.party in carried else 'embeddings'}, {result.release}"
            + (f"; column {result.column}" if result.column else ""),
            attack=result.attack,
            knowledge=in_words(result.knowledge, result.known),
            given=condition(result.knowledge, result.known),
            metric=result.metric,
            value=result.value,
            low=result.low,
            high=result.high,
            control=result.baseline,
            control_is="a guess" if member else "the best constant answer",
            naive=result.other_columns,
            naive_is="no columns reveal which rows were trained on"
            if member
            else "what other parties' columns already reveal",
            undefended=undefended[0] if undefended else None,
            rows=result.rows,
            reads=columns_read_phrase(result) if is_of_columns(result) else "",
            strongest=counting.get(result.party) is result,
        )


def _threat(result: FeatureResult) -> Threat:
    if result.metric in ("r2", "exact"):
        return "reconstruction"
    return "attribute inference" if result.column else "membership"


def _completions(report: Report) -> Iterator[AttackEvidence]:
    for result in report.completions:
        completed, scratch = best(result.variants), best(result.scratch)
        if result.run != RunKind.THIS_RUN or completed is None:
            continue
        yield AttackEvidence(
            threat="model completion",
            owner=report.active.name,
            attacker=result.party,
            subject=f"its bottom model after leaving, with {result.labels:,} labels",
            attack=result.attack,
            knowledge=in_words(result.knowledge),
            metric=report.utility.metric,
            value=completed.value,
            low=completed.low,
            high=completed.high,
            control=scratch.value if scratch else None,
            control_is="the same training from an untrained model",
            naive=None,
            naive_is="its own columns are in both",
        )


def learned_sentences(
    evidence: Iterable[AttackEvidence], task: str, label_free: Collection[str] = ()
) -> tuple[str, ...]:
    """Who could learn what, by the strongest attack of each threat.

    Args:
        evidence: All attacks.
        task: Kind of the labels.
        label_free: Parties that are sent no message which depends on a label.
    """
    counting = [result for result in evidence if result.strongest and result.value is not None]
    return tuple(
        _label_sentence(result, task, is_label_free={*(result.together or (result.attacker,))} <= {*label_free})
        if result.threat == "label inference"
        else _SENTENCES[result.threat](result)
        for result in counting
    )


def _label_sentence(result: AttackEvidence, task: str, *, is_label_free: bool) -> str:
    """Sentence on an attacker's leak about labels, and on its knowledge without any message."""
    leak = result.value or 0.5
    what, over = _COMPARED[task]
    accuracy = f"tells {what} in {share(leak, 1)} of the cases{over}"
    given = f" with {result.given}" if result.given else ""
    several = bool(result.together)
    its = "their" if several else "its"
    if result.naive is not None and (is_label_free or leak - result.naive <= NEGLIGIBLE_EXCESS):
        return (
            f"{result.attacker} {_no_more(result, leak - result.naive, is_label_free=is_label_free)}: an attack{given} "
            f"{accuracy}, {its} own columns alone in {share(result.naive, 1)}; a guess is right in 50\u00a0%."
        )
    if is_label_free:
        return (
            f"{result.attacker} {_nothing(result)}: an attack{given} {accuracy}, by what {result.attacker} "
            f"{'compute' if several else 'computes'} from {its} own columns alone; a guess is right in 50\u00a0%."
        )
    known = "" if result.naive is None else f", {its} own columns alone in {share(result.naive, 1)}"
    what = "the attack" if several else "it"
    phrase = leak_phrase(leak, result.owner)
    return f"{_attacker(result)} {phrase}: {what} {accuracy}{known}; a guess is right in 50\u00a0%."


def _no_more(result: AttackEvidence, excess: float, *, is_label_free: bool) -> str:
    """That messages add nothing: proved where none depends on a label, else as far as the attacks that were run."""
    if is_label_free:
        return _nothing(result)
    words = "no" if excess <= 0 else "hardly"
    was, its = ("were", "their") if result.together else ("was", "its")
    return f"{was} found to learn {words} more about the labels of {result.owner} than {its} own columns reveal"


def _nothing(result: AttackEvidence) -> str:
    return f"learn{'' if result.together else 's'} nothing about the labels of {result.owner} from the messages"


def _own_columns(leak: LeakResult) -> str:
    columns = f"the own columns of {leak.attacker}" if leak.together else f"{leak.party}'s own columns"
    return f"what {columns} reveal, without a message"


def _attacker(result: AttackEvidence) -> str:
    """Who attacks, and what it must know of single rows."""
    return f"{result.attacker}, with {result.given}," if result.given else result.attacker


def _rebuilt_sentence(result: AttackEvidence) -> str:
    knowing = f"with {result.given}" if result.given else "without a known row"
    able = f"{result.attacker}, {knowing}, {result.reads} from its {_sent(result)}"
    return f"{able}{'' if _gains(result) else ', no more than without them'}: {_details(result)}."


def _inferred_sentence(result: AttackEvidence) -> str:
    able = "can infer" if _gains(result) else "was not found to infer"
    columns = f"a column of {result.owner} from its {_sent(result)} better than without them"
    return f"{_attacker(result)} {able} {columns}: {_details(result)}."


def _sent(result: AttackEvidence) -> str:
    return result.subject.partition(",")[0]


def _gains(result: AttackEvidence) -> bool:
    """Whether the whole interval is above the control and the naive baseline."""
    return result.low is not None and result.low > max(
        result.control or 0.0, -1.0 if result.naive is None else result.naive
    )


def _details(result: AttackEvidence) -> str:
    naive = "not measured here" if result.naive is None else metric(result.naive)
    return (
        f"{name_of(result.metric)} {metric(result.value)} ({result.attack}, {result.subject}); "
        f"a constant answer gives {metric(result.control)}, other parties' columns {naive}"
    )


def _member_sentence(result: AttackEvidence) -> str:
    return (
        f"{_attacker(result)} can identify which rows of {result.owner} were trained on "
        f"with AUC {metric(result.value)} ({result.attack}); a guess is 0.500."
    )


def _completion_sentence(result: AttackEvidence) -> str:
    return (
        f"After leaving, {result.attacker} can predict alone with {name_of(result.metric)} {metric(result.value)} "
        f"({result.subject}); an untrained model on the same labels reaches {metric(result.control)}."
    )


_SENTENCES = {
    "reconstruction": _rebuilt_sentence,
    "attribute inference": _inferred_sentence,
    "membership": _member_sentence,
    "model completion": _completion_sentence,
}
