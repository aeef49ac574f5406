"""Coded findings: what a reviewer should look at, each with a remedy; the code never changes its meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cutlayer.protections.base import Evidence

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
    """One cell of the matrix, as the findings read it."""

    label: str
    attack: str
    auc: float
    low: float
    high: float
    positives: int
    rows: int


FEW_ROWS = 50
"""Below this many rows of a class an AUC's interval is too wide to tell 0.5 from 0.6."""


def findings_of(
    leaks: Sequence[LeakFigure],
    undefended: Sequence[LeakFigure] | None,
    evidence: Sequence[Evidence],
    metric: str,
    utility: tuple[float, float, float],
    skipped: Mapping[str, str],
) -> list[Finding]:
    """All findings of a run, errors first.

    Args:
        leaks: of the run. undefended: of its undefended twin, if there is one.
        evidence: of all protections.
        metric: name of the headline metric.
        utility: the run's headline metric, the lower end of its interval, and chance.
        skipped: attacks that could not be run, with the reason.
    """
    found = [
        *_protections(evidence),
        *_leaks(leaks),
        *(_powerless(undefended) if undefended is not None else ()),
        *_utility(metric, utility),
        *(_skipped(label, why) for label, why in skipped.items()),
    ]
    if not leaks:
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
        if math.isnan(leak.auc) or min(leak.positives, leak.rows - leak.positives) < FEW_ROWS:
            yield Finding(
                "CL104",
                "warning",
                "too few rows of one class",
                f"{leak.label} scored {leak.positives} positive of {leak.rows} rows; its AUC says little",
                "raise audit.rows, or train on more rows",
            )
        elif leak.high < 0.5:
            yield Finding(
                "CL103",
                "warning",
                "an attack ranks labels backwards",
                f"{leak.label} has AUC {leak.auc:.3f}, below 0.5 beyond its interval (up to {leak.high:.3f}); an "
                "attacker who turns the scores round gains as much",
                f"read it as a leak of {1 - leak.auc:.3f}",
            )


def _powerless(undefended: Sequence[LeakFigure]) -> Iterator[Finding]:
    for leak in undefended:
        if not math.isnan(leak.low) and leak.low <= 0.5 <= leak.high:
            yield Finding(
                "CL102",
                "warning",
                "an attack has no power here",
                f"{leak.label} is at chance even on the undefended twin (AUC {leak.auc:.3f}, interval "
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


def _skipped(label: str, why: str) -> Finding:
    return Finding("CL107", "note", "an attack could not be run", f"{label}: {why}", "see the reason")
