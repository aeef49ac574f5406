"""What was released (events), and what that costs (ledger)."""

from cutlayer.accounting.events import Event, NoFormalGuarantee, RandomizedResponse
from cutlayer.accounting.ledger import Entry, Ledger

__all__ = ["Entry", "Event", "Ledger", "NoFormalGuarantee", "RandomizedResponse"]
