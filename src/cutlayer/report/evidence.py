"""Every attack of a report with its control and its naive baseline, and who could learn what in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cutlayer.attacks import REGISTRY
from cutlayer.attacks.knowledge import condition
from cutlayer.report.rounding import metric, share
from cutlayer.results.completion import best
from cutlayer.results.features import FeatureResult
from cutlayer.results.metric_names import name_of
from cutlayer.results.privacy_card import Evidence, Threat
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

NEARLY_ALL, MUCH, LITTLE = 0.95, 0.75, 0.55
"""Leaks from which the words change; the number is beside them."""
_COMPARED = {
    "binary": ("two rows with different labels", "which has which label", ""),
    "multiclass": (
        "a row of one class and a row of another",
        "which is of that class",
        ", on average over the classes",
    ),
    "regression": ("two rows", "which label is larger", ""),
}
"""What a leak is a share of, by the kind of the labels."""


def evidence_of(report: Report) -> tuple[Evidence, ...]:
    """All attacks on this run; of each threat to each party the strongest is marked and comes first."""
    attacks = [*_labels(report), *_features(report), *_completions(report)]
    marked: list[Evidence] = []
    for group in dict.fromkeys((each.threat, each.owner, each.attacker) for each in attacks):
        own = [each for each in attacks if (each.threat, each.owner, each.attacker) == group]
        own = [each.model_copy(update={"attack_does": _purpose(each.attack)}) for each in own]
        first = max(own, key=_beyond)
        marked.append(first.model_copy(update={"strongest": True}))
        marked += sorted((each for each in own if each is not first), key=_beyond, reverse=True)
    return tuple(marked)


def _beyond(each: Evidence) -> float:
    """What counts: a leak by itself, another metric beyond its control."""
    value = -1.0 if each.value is None else each.value
    return value if each.metric == "leak" else value - (each.control or 0.0)


def _purpose(attack: str) -> str:
    return REGISTRY[attack].purpose() if attack in REGISTRY else ""


def _active(report: Report) -> str:
    return next((party.name for party in report.parties if party.role == "active"), "the active party")


def _labels(report: Report) -> Iterator[Evidence]:
    active = _active(report)
    baselines = {baseline.party: baseline for baseline in report.baselines}
    undefended = {leak.label: leak.leak for leak in report.leaks if leak.run == RunKind.UNDEFENDED}
    for leak in report.leaks:
        if leak.run != RunKind.THIS_RUN:
            continue
        baseline = baselines.get(leak.party)
        yield Evidence(
            threat="label inference",
            owner=active,
            attacker=leak.party,
            subject=f"{leak.message}s, {'whole run' if leak.whole_run else f'epoch {leak.epoch}'}",
            attack=leak.attack,
            knowledge=leak.knowledge,
            given=condition(leak.knowledge),
            metric="leak",
            value=leak.leak,
            low=leak.low,
            high=leak.high,
            control=baseline.chance if baseline else None,
            control_is="the strongest attack on permuted labels",
            naive=baseline.own_columns if baseline else None,
            naive_is=f"what {leak.party}'s own columns reveal, without a message",
            undefended=undefended.get(leak.label),
            rows=leak.rows,
        )


def _features(report: Report) -> Iterator[Evidence]:
    active = _active(report)
    others = [result for result in report.features if result.run == RunKind.UNDEFENDED]
    for result in report.features:
        if result.run != RunKind.THIS_RUN:
            continue
        same = (result.party, result.attack, result.column)
        undefended = [other.value for other in others if (other.party, other.attack, other.column) == same]
        member = _threat(result) == "membership"
        yield Evidence(
            threat=_threat(result),
            owner=result.party,
            attacker=active,
            subject=f"embeddings, {result.release}" + (f"; column {result.column}" if result.column else ""),
            attack=result.attack,
            knowledge=result.knowledge,
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
        )


def _threat(result: FeatureResult) -> Threat:
    if result.metric == "r2":
        return "reconstruction"
    return "attribute inference" if result.column else "membership"


def _completions(report: Report) -> Iterator[Evidence]:
    active = _active(report)
    for result in report.completions:
        own, scratch = best(result.variants), best(result.scratch)
        if result.run != RunKind.THIS_RUN or own is None:
            continue
        yield Evidence(
            threat="model completion",
            owner=active,
            attacker=result.party,
            subject=f"its bottom model after leaving, with {result.labels:,} labels",
            attack=result.attack,
            knowledge=result.knowledge,
            metric=report.utility.metric,
            value=own.value,
            low=own.low,
            high=own.high,
            control=scratch.value if scratch else None,
            control_is="the same training from an untrained model",
            naive=None,
            naive_is="its own columns are in both",
        )


def learns_of(evidence: Iterable[Evidence], task: str) -> tuple[str, ...]:
    """Who could learn what, by the strongest attack of each threat.

    Args:
        evidence: All attacks.
        task: Kind of the labels.
    """
    return tuple(_SENTENCES[each.threat](each, task) for each in evidence if each.strongest and each.value is not None)


def _label_sentence(each: Evidence, task: str) -> str:
    leak = each.value or 0.5
    rows, what, over = _COMPARED[task]
    found = (
        f"of {rows} it identifies {what} in {share(leak, 1)} of the cases{over}, where a guess is right in 50\u00a0%"
    )
    known = "" if each.naive is None else f"; its own columns alone give {share(each.naive, 1)}"
    if leak >= NEARLY_ALL:
        able = f"can infer the label of nearly every row of {each.owner}"
    else:
        words = "much" if leak >= MUCH else "something" if leak >= LITTLE else "next to nothing"
        able = f"can learn {words} about the labels of {each.owner}"
    return f"{_attacker(each)} {able}: {found}{known}."


def _attacker(each: Evidence) -> str:
    """Who attacks, and what it must know of single rows."""
    return f"{each.attacker}, with {each.given}," if each.given else each.attacker


def _feature_sentence(each: Evidence, _task: str) -> str:
    reached = f"{name_of(each.metric)} {metric(each.value)}"
    naive = "not measured here" if each.naive is None else metric(each.naive)
    gains = each.low is not None and each.low > max(each.control or 0.0, -1.0 if each.naive is None else each.naive)
    able = "can learn more about the columns" if gains else "was not found to learn more about the columns"
    return (
        f"{_attacker(each)} {able} of {each.owner} from its embeddings: {reached} ({each.attack}, {each.subject}); "
        f"a constant answer gives {metric(each.control)}, other parties' columns {naive}."
    )


def _member_sentence(each: Evidence, _task: str) -> str:
    return (
        f"{_attacker(each)} can identify which rows of {each.owner} were trained on with AUC {metric(each.value)} "
        f"({each.attack}); a guess is 0.500."
    )


def _completion_sentence(each: Evidence, _task: str) -> str:
    return (
        f"After leaving, {each.attacker} can predict alone with {name_of(each.metric)} {metric(each.value)} "
        f"({each.subject}); an untrained model on the same labels reaches {metric(each.control)}."
    )


_SENTENCES = {
    "label inference": _label_sentence,
    "reconstruction": _feature_sentence,
    "attribute inference": _feature_sentence,
    "membership": _member_sentence,
    "model completion": _completion_sentence,
}
