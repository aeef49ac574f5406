"""Planned releases (plan), their records (events), their privacy cost (ledger) and the running count (account)."""

from cutlayer.accounting.account import Account
from cutlayer.accounting.composition import DELTA, Composition
from cutlayer.accounting.events import (
    DPSGD,
    Event,
    GaussianRelease,
    LabelFree,
    NoFormalGuarantee,
    RandomizedResponse,
)
from cutlayer.accounting.ledger import Entry, Ledger
from cutlayer.accounting.plan import ReleasePlan
from cutlayer.accounting.release_log import MARKER, ReleaseLog, log_of_run
from cutlayer.accounting.slots import ANY_PART, Occasion, Slot
from cutlayer.accounting.total import Total

__all__ = [
    "ANY_PART",
    "DELTA",
    "DPSGD",
    "MARKER",
    "Account",
    "Composition",
    "Entry",
    "Event",
    "GaussianRelease",
    "LabelFree",
    "Ledger",
    "NoFormalGuarantee",
    "Occasion",
    "RandomizedResponse",
    "ReleaseLog",
    "ReleasePlan",
    "Slot",
    "Total",
    "log_of_run",
]
