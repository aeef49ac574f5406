"""Outcome of the audit of a family of attacks: results, and the attacks that could not be run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cutlayer.attacks.base import Attack
from cutlayer.config import FrozenModel
from cutlayer.errors import Diverged, NotApplicable
from cutlayer.results.audit import SkippedAttack

R = TypeVar("R", bound=FrozenModel)


@dataclass(frozen=True)
class AttackAudit(Generic[R]):
    """Results of attacks, and the attacks that could not be run.

    Attributes:
        results: Typed results, in the order of the runs.
        skipped: Attacks that could not be run, by `party/message/attack`.
    """

    results: list[R] = field(default_factory=list)
    skipped: dict[str, SkippedAttack] = field(default_factory=dict)

    def skip(self, party: str, attacks: Iterable[Attack[Any, Any]], reason: str) -> None:
        """Record why attacks on a party could not be run."""
        for attack in attacks:
            skipped = SkippedAttack(party=party, message=attack.reads[0], attack=attack.name, reason=reason)
            self.skipped[skipped.label] = skipped

    @contextmanager
    def skipping(self, party: str, attacks: Iterable[Attack[Any, Any]]) -> Iterator[None]:
        """Skip the attacks where the body raises `NotApplicable` or `Diverged`, with the reason."""
        try:
            yield
        except (NotApplicable, Diverged) as reason:
            self.skip(party, attacks, str(reason))
