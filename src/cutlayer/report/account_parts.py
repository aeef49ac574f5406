"""The report, part by part: protections, the ledger, the guarantee tested, gates and findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from cutlayer.config import Section
from cutlayer.report.figure import Figure


class ProtectionPart(Section):
    """What one protection was set to, what it did, and what is proved about it.

    Attributes:
        unit: what is counted: messages of one kind (embeddings, gradients), label rows, forward passes or steps.
        covered: how many of them the protection was applied to.
        sent: how many there were.
        changed: how many differ from what they would have been without it.
        kinds: covered messages by kind, such as `embedding` (in training) and `evaluation`; empty for other units.
        figures: the protection's own evidence.
        formal: whether a theorem holds; `statement` is that theorem's sentence, or why there is none.
    """

    name: str
    party: str
    protects: Literal["labels", "features", "model"]
    reference: str
    settings: Mapping[str, Any] = Field(default_factory=dict)
    unit: Literal["embeddings", "gradients", "rows", "batches", "steps"]
    covered: int
    sent: int
    changed: int
    kinds: Mapping[str, int] = Field(default_factory=dict)
    figures: Mapping[str, Figure] = Field(default_factory=dict)
    formal: bool
    statement: str


class EntryPart(Section):
    """What one protection releases, as the ledger records it.

    Attributes:
        event: its fields, with `kind`.
        epsilon: at `delta`; `None` where no theorem holds.
        fingerprint: equal in two runs that use the same draws.
    """

    protection: str
    party: str
    protects: Literal["labels", "features", "model"]
    towards: tuple[str, ...]
    event: Mapping[str, Any]
    epsilon: Figure = None
    delta: float
    fingerprint: str | None = None
    statement: str


class TotalPart(Section):
    """What all releases of one party about one asset cost together, towards each of the receivers.

    Attributes:
        epsilon: at `delta`; `None` where no theorem holds, and `why` says so.
        accountant: which account that is; `rdp_epsilon` is that of another, for comparison.
        condition: `unconditional`, or what it depends on.
        curve: pairs (epsilon, delta) that hold as well.
        auc_bound: ROC AUC that nobody exceeds who tells two values of one row apart, all else known.
        releases: of the row that is released most often.
    """

    party: str
    protects: Literal["labels", "features", "model"]
    towards: tuple[str, ...]
    epsilon: Figure = None
    delta: float
    accountant: str = ""
    rdp_epsilon: Figure = None
    condition: str = "unconditional"
    curve: tuple[tuple[float, float], ...] = ()
    auc_bound: Figure = None
    releases: int | None = None
    why: str = ""
    statement: str


class LedgerPart(Section):
    """The formal privacy cost of the whole run."""

    entries: tuple[EntryPart, ...] = ()
    totals: tuple[TotalPart, ...] = ()


class EmpiricalPart(Section):
    """One guarantee of the ledger, and what canaries showed of its mechanism.

    Attributes:
        epsilon, delta: of the ledger.
        bound: lower bound on epsilon at that delta, with the confidence.
        reach: the largest bound that so many canaries can show.
        releases: of each canary in one run.
    """

    protection: str
    party: str
    protects: Literal["labels", "features", "model"]
    epsilon: float
    delta: float
    bound: float
    reach: float
    confidence: float
    canaries: int
    releases: int

    @property
    def exceeded(self) -> bool:
        """Whether the mechanism spends more than the ledger says."""
        return self.bound > self.epsilon


class GatePart(Section):
    """One limit of `fail_above`, the worst figure against it, and where that was measured.

    `worst` is `None` where nothing could be measured; such a gate does not pass.
    """

    name: str
    limit: float
    worst: Figure
    where: str
    passed: bool


class FindingPart(Section):
    """Something a reviewer should know, with a stable code and what to do about it."""

    code: str
    severity: Literal["error", "warning", "note"]
    title: str
    detail: str
    remedy: str
