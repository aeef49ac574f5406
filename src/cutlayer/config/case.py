"""A job in a check, as its rules see it: with what the protections of its parties declare of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from cutlayer.config.job import Job


class DeclaredProtection(Protocol):
    """Declarations of a protection; see `cutlayer.protections.contract.base.Protection`."""

    name: ClassVar[str]
    keeps_directions: ClassVar[bool]

    @property
    def guarantees_labels(self) -> bool:
        """Whether labels have a formal guarantee by it."""

    def acts_at(self, *hooks: str) -> bool:
        """Whether it acts at one of some hooks."""


@dataclass(frozen=True)
class Case:
    """A job, and the protections of each of its parties.

    Attributes:
        job: The job.
        protections: From the name of a party to its protections.
        local_party: Only party whose private part is here; `None` where all are.
    """

    job: Job
    protections: Callable[[str], Sequence[DeclaredProtection]] = lambda _party: ()
    local_party: str | None = None

    def knows(self, party: str) -> bool:
        """Whether the private part of a party is here."""
        return self.local_party in (None, party)

    def acting_protections(self, party: str, *hooks: str) -> list[str]:
        """Names of the protections of a party that act at one of some hooks."""
        return [each.name for each in self.protections(party) if each.acts_at(*hooks)]


Rules = Callable[[Case], Iterator[str]]
"""Rules of one owner: from a case to what is wrong with it, each a whole sentence; the first is the error.

Rules stand in the file of what they are about. They neither import models nor read tables.
"""
