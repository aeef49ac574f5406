"""What is released how often (plan), as records (events), and what that costs (ledger), so far (account)."""

from cutlayer.accounting.account import Account
from cutlayer.accounting.composition import DELTA, Composition
from cutlayer.accounting.events import (
    DPSGD,
    Composed,
    Event,
    GaussianRelease,
    NoFormalGuarantee,
    RandomizedResponse,
)
from cutlayer.accounting.ledger import Entry, Ledger, Total
from cutlayer.accounting.plan import Condition, ReleasePlan

__all__ = [
    "DELTA",
    "DPSGD",
    "Account",
    "Composed",
    "Composition",
    "Condition",
    "Entry",
    "Event",
    "GaussianRelease",
    "Ledger",
    "NoFormalGuarantee",
    "RandomizedResponse",
    "ReleasePlan",
    "Total",
]
