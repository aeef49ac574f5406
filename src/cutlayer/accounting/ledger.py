"""The formal privacy cost of a run: who spent what, about what, towards whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cutlayer.accounting.events import Event, NoFormalGuarantee, RandomizedResponse


@dataclass(frozen=True)
class Entry:
    """One protection's event, with its owner and direction."""

    protection: str
    party: str
    protects: Literal["labels", "features", "model"]
    towards: tuple[str, ...]
    event: Event

    @property
    def epsilon(self) -> float | None:
        """Pure-DP cost of the whole run, or `None` where no theorem holds."""
        if isinstance(self.event, RandomizedResponse):
            return self.event.eps * self.event.draws
        return None

    @property
    def statement(self) -> str:
        """One sentence a reviewer can hold the run to."""
        if isinstance(self.event, NoFormalGuarantee):
            return f"none, empirical: {self.event.why}"
        return (
            f"the {self.protects} of {self.party}, towards {', '.join(self.towards)}: label differential "
            f"privacy of eps {self.epsilon:g} per row (neighbours differ in one row's label; randomised response, "
            f"{self.event.draws} draw for the whole run, so no epoch adds to it)"
        )


@dataclass(frozen=True)
class Ledger:
    """All entries of a run."""

    entries: Sequence[Entry] = ()

    def label_epsilon(self, party: str) -> float | None:
        """Total pure epsilon about the labels of `party`, by basic composition; `None` without any formal event."""
        costs = [entry.epsilon for entry in self.entries if entry.party == party and entry.protects == "labels"]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None

    def to_json(self) -> dict[str, Any]:
        """Plain values for `ledger.json`."""
        return {
            "entries": [
                {
                    "protection": entry.protection,
                    "party": entry.party,
                    "protects": entry.protects,
                    "towards": list(entry.towards),
                    "event": {"kind": type(entry.event).__name__, **asdict(entry.event)},
                    "epsilon": entry.epsilon,
                    "statement": entry.statement,
                }
                for entry in self.entries
            ]
        }
