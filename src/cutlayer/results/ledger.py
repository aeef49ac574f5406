"""The formal privacy cost of a run, as it is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cutlayer.config import FrozenModel
from cutlayer.results.number import Number


class LedgerEntry(FrozenModel):
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
    epsilon: Number = None
    delta: float
    fingerprint: str | None = None
    statement: str


class LedgerTotal(FrozenModel):
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
    epsilon: Number = None
    delta: float
    accountant: str = ""
    rdp_epsilon: Number = None
    condition: str = "unconditional"
    curve: tuple[tuple[float, float], ...] = ()
    auc_bound: Number = None
    releases: int | None = None
    why: str = ""
    statement: str


class LedgerResult(FrozenModel):
    """The formal privacy cost of the whole run."""

    entries: tuple[LedgerEntry, ...] = ()
    totals: tuple[LedgerTotal, ...] = ()
