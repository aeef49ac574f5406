"""Coded findings: what a reviewer should look at, each with a remedy; the code never changes its meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cutlayer.audit.empirical import GuaranteeTest
from cutlayer.protections.base import Evidence
from cutlayer.results.completion import CompletionResult, best
from cutlayer.results.features import FeatureResult, strongest

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing to look at.

    Attributes:
        code: stable, for instance `CL101`.
        detail: what was seen, with figures.
        remedy: what to do about it.
    """

    code: str
    severity: Severity
    title: str
    detail: str
    remedy: str


@dataclass(frozen=True)
class LeakFigure:
    """One cell of the matrix, as the findings read it.

    Attributes:
        label: `party/message/attack`.
        attack: its name.
        value: the leak, 0.5 to 1; NaN where it is not defined.
        low: lower end of its 95 % interval; 0.5 where that includes chance.
        high: upper end of its 95 % interval.
        positives: number of positive rows that were scored.
        rows: number of rows that were scored.
    """

    label: str
    attack: str
    value: float
    low: float
    high: float
    positives: int
    rows: int


FEW_ROWS = 50
"""Below this many rows of a class an AUC's interval is too wide to distinguish 0.5 from 0.6."""


def findings_of(
    leaks: Sequence[LeakFigure],
    undefended: Sequence[LeakFigure] | None,
    evidence: Sequence[Evidence],
    metric: str,
    utility: tuple[float, float, float],
    skipped: Mapping[str, str],
    completions: Sequence[CompletionResult] = (),
    tested: Sequence[GuaranteeTest] = (),
    features: Sequence[FeatureResult] = (),
) -> list[Finding]:
    """All findings of a run, errors first.

    Args:
        leaks: of the run. undefended: of its undefended twin, if there is one.
        evidence: of all protections.
        metric: name of the headline metric.
        utility: the run's headline metric, the lower end of its interval, and chance.
        skipped: attacks that could not be run, with the reason.
        completions: of what a quitter keeps of the run.
        tested: guarantees that were played against.
        features: what embeddings told of the passive parties' features in the run.
    """
    found = [
        *_protections(evidence),
        *_leaks(leaks),
        *(_powerless(undefended) if undefended is not None else ()),
        *_utility(metric, utility),
        *(_skipped(label, why) for label, why in skipped.items()),
        *_kept(completions, metric),
        *_broken(tested),
        *_told(features),
    ]
    if not leaks and not completions and not features:
        found.append(
            Finding(
                "CL106",
                "warning",
                "nothing was audited",
                "no attack ran on this run's messages; what leaked is unknown",
                "choose attacks that fit the task, and audit.every: epoch or end",
            )
        )
    order: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda finding: (order[finding.severity], finding.code))


def _protections(evidence: Sequence[Evidence]) -> Iterator[Finding]:
    for item in evidence:
        if item.sent and not item.changed:
            yield Finding(
                "CL101",
                "warning",
                f"{item.protection} changed nothing",
                f"{item.protection} of {item.party} covered all {item.covered} {item.unit}, and every one of them "
                "equals the undefended one",
                "check its strength; label_dp at a large eps rightly flips nothing in a small table",
            )


def _leaks(leaks: Sequence[LeakFigure]) -> Iterator[Finding]:
    for leak in leaks:
        if math.isnan(leak.value) or min(leak.positives, leak.rows - leak.positives) < FEW_ROWS:
            yield Finding(
                "CL104",
                "warning",
                "too few rows of one class",
                f"{leak.label} scored {leak.positives} positive of {leak.rows} rows; its leak says little",
                "raise audit.rows, or train on more rows",
            )


def _powerless(undefended: Sequence[LeakFigure]) -> Iterator[Finding]:
    for leak in undefended:
        if not math.isnan(leak.value) and leak.low <= 0.5:
            yield Finding(
                "CL102",
                "warning",
                "an attack has no power here",
                f"{leak.label} is at chance even on the undefended baseline (leak {leak.value:.3f}, interval "
                f"{leak.low:.3f} to {leak.high:.3f}); that it fails on the defended run proves nothing",
                "read the other attacks",
            )


def _utility(metric: str, utility: tuple[float, float, float]) -> Iterator[Finding]:
    value, low, chance = utility
    if not math.isnan(value) and (math.isnan(low) or low <= chance):
        yield Finding(
            "CL105",
            "warning",
            "the model is no better than chance",
            f"held-out {metric} {value:.3f} is not above {chance:.3f} beyond its interval; a model that learned "
            "nothing has nothing to leak",
            "train longer or weaken the protections before reading the leak figures",
        )


def _kept(completions: Sequence[CompletionResult], metric: str) -> Iterator[Finding]:
    for one in completions:
        own, scratch = best(one.variants), best(one.scratch)
        if one.gains and own and scratch:
            yield Finding(
                "CL108",
                "warning",
                "a quitter keeps more than its own data",
                f"{one.attack} with {'all' if one.all_labels else 'only'} {one.labels:,} labels makes the model that "
                f"{one.party} keeps of {one.run} predict with {metric} {own.value:.3f} ({own.low:.3f} to "
                f"{own.high:.3f}, the strongest of {len(one.variants)} variants, picked after the fact); from scratch "
                f"on the same labels it reaches {scratch.value:.3f} ({scratch.low:.3f} to {scratch.high:.3f})",
                "add a protection of the active party that keeps labels out of that party's model, or agree on what it "
                "may do with the model once it leaves",
            )


def _broken(tested: Sequence[GuaranteeTest]) -> Iterator[Finding]:
    for one in tested:
        if one.exceeded:
            yield Finding(
                "CL109",
                "error",
                "a guarantee does not hold",
                f"{one.canaries:,} canaries show that {one.protection} of {one.party} spends an epsilon of "
                f"at least {one.lower_bound:.3g} at delta {one.delta:g} (confidence {100 * one.confidence:g} %); its "
                "ledger has less",
                "do not rely on the ledger's figure; look for noise that is too small, or draws that are repeated anew",
            )


def _told(features: Sequence[FeatureResult]) -> Iterator[Finding]:
    for one in strongest(features):
        about = f" of {one.column}, the column told best" if one.column else ""
        yield Finding(
            "CL110",
            "warning",
            "embeddings tell of the rows below",
            f"{one.attack} on the embeddings of {one.party} ({one.release}) reaches {one.metric.upper()} "
            f"{one.value:.3f}{about} ({one.low:.3f} to {one.high:.3f}); without an embedding it is {one.baseline:.3f}",
            "add a protection of that passive party's features, or a narrower cut",
        )


def _skipped(label: str, why: str) -> Finding:
    return Finding("CL107", "note", "an attack could not be run", f"{label}: {why}", "see the reason")
