"""What an attacker is assumed to know besides what crossed the cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import torch
from torch import Tensor

from cutlayer.errors import NotApplicable

HINTS = 10
"""Positive rows of each batch that the hint attack knows."""

KNOWN_PER_CLASS = 100
"""Rows of each class whose labels a probe is fitted on."""

AUXILIARY, AUXILIARY_PER_CLASS = 40, 4
"""Labels a quitter completes its model with: in all, and at least of each class."""

AUXILIARY_ROWS = 1000
"""Rows whose features an attacker on features knows, beside their embeddings."""

SHADOW_ROWS = 20_000
"""Rows that shadow models are trained and tried on."""


class Need(StrEnum):
    """One piece of knowledge; the report lists it beside the attack's figure."""

    POSITIVE_SHARE = "the share of positive rows"
    CLASS_SHARES = "the share of each class"
    KNOWN_POSITIVE = "one positive row in each batch"
    HINTS = f"up to {HINTS} positive rows in each batch"
    KNOWN_LABELS = f"the labels of up to {KNOWN_PER_CLASS} rows of each class"
    AUXILIARY_LABELS = (
        f"the labels of about {AUXILIARY} training rows, or {AUXILIARY_PER_CLASS} of each class if more; then of all"
    )

    AUXILIARY_FEATURES = f"the features of up to {AUXILIARY_ROWS:,} training rows, half of the sampled ones at most"
    SHADOW_ROWS = (
        f"all parties' columns and labels of up to {SHADOW_ROWS:,} other rows of the population, and the models' "
        "design, initial weights and schedule"
    )


@dataclass(frozen=True)
class Knowledge:
    """Side knowledge handed to an attack.

    Attributes:
        positive_share: of the population, in (0, 1).
        known: labels of a few rows, by row number of the common order; never scored themselves.
        class_shares: of the population, in the order of the class codes; in a binary task `positive_share` says it.
    """

    positive_share: float | None = None
    known: Mapping[int, int] = field(default_factory=dict)
    class_shares: tuple[float, ...] = ()

    def held(self) -> frozenset[Need]:
        """Which needs this knowledge meets."""
        needs = set()
        if self.positive_share is not None:
            needs |= {Need.POSITIVE_SHARE, Need.CLASS_SHARES}
        if self.class_shares:
            needs.add(Need.CLASS_SHARES)
        if any(label == 1 for label in self.known.values()):
            needs |= {Need.KNOWN_POSITIVE, Need.HINTS}
        if len(set(self.known.values())) > 1:
            needs |= {Need.KNOWN_LABELS, Need.AUXILIARY_LABELS}
        return frozenset(needs)

    @property
    def share(self) -> float:
        """The positive share, of an attacker that holds it.

        Raises:
            NotApplicable: it is not known.
        """
        if self.positive_share is None:
            raise NotApplicable.expected(f"knowledge of {Need.POSITIVE_SHARE}", "none of it")
        return self.positive_share

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each class by its code, of an attacker that holds them.

        Raises:
            NotApplicable: they are not known.
        """
        if self.class_shares:
            return self.class_shares
        if self.positive_share is None:
            raise NotApplicable.expected(f"knowledge of {Need.CLASS_SHARES}", "none of it")
        return 1 - self.positive_share, self.positive_share

    def known_among(self, rows: Tensor) -> Tensor:
        """Which of `rows` (int64 (n,)) have a known label, bool (n,)."""
        return torch.isin(rows, self._rows)

    def positives_among(self, rows: Tensor) -> list[int]:
        """Places in `rows` (int64 (n,)) of the rows known to be positive, in ascending order."""
        return torch.isin(rows, self._positives).nonzero().flatten().tolist()

    @cached_property
    def _rows(self) -> Tensor:
        return torch.tensor(list(self.known), dtype=torch.int64)

    @cached_property
    def _positives(self) -> Tensor:
        return torch.tensor([row for row, label in self.known.items() if label == 1], dtype=torch.int64)
