"""Slots of a party's own schedule, and the number of releases of the row that is released most often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

ReleaseKind = Literal["embedding", "gradient", "update"]
"""Kind of a release: a batch's embedding, its cut gradient, or a private step of the bottom model (DP-SGD)."""
REASONS = ("train", "evaluate", "serve")
"""Purposes of a release."""
ANY_PART = ""
"""The part of rows that may be of any part of the split."""


class Occasion(NamedTuple):
    """A pass over rows in which each row is in one batch at most.

    Attributes:
        kind: Kind of tensor that is released.
        receiver: Name of the party that it is sent to.
        reason: One of `REASONS`.
        part: The part of the split that the rows are of, such as `train`; `ANY_PART` where that is not known.
        epoch: This party's own number of the pass: the epoch, -1 outside of the epochs, the query when serving.
    """

    kind: ReleaseKind
    receiver: str
    reason: str
    part: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Slot:
    """One batch of one occasion.

    Attributes:
        occasion: The pass over rows that the batch belongs to.
        batch: This party's own number of the batch; two batches of an occasion share no row.
    """

    occasion: Occasion
    batch: int


class Tally:
    """Number of releases of a row, as an upper bound that needs no counter per row.

    A row is in one batch of an occasion, so an occasion releases it as often as its most released batch at most. The
    sum over the occasions of a row's part bounds the releases of each row of that part. It is exact for the row that is
    released most often wherever every occasion releases every batch equally often, as an undisturbed schedule does.
    """

    def __init__(self) -> None:
        self.highest: dict[Occasion, int] = {}
        self._sums: Counter[tuple[ReleaseKind, str, str, str]] = Counter()

    def add(self, occasion: Occasion, contents: int) -> None:
        """Count a release.

        Args:
            occasion: Occasion that the release belongs to.
            contents: Number of different contents that its batch has been released with by now, 1 or more.
        """
        more = contents - self.highest.get(occasion, 0)
        if more > 0:
            self.highest[occasion] = contents
            self._sums[occasion[:4]] += more

    def releases(self, *kinds: ReleaseKind, reason: str | None = None) -> int:
        """Maximum number of releases of a row towards a receiver.

        Args:
            kinds: Kinds of tensor to count.
            reason: Purpose to count; all purposes where `None`.
        """
        chosen = {key: count for key, count in self._sums.items() if key[0] in kinds and reason in (None, key[2])}
        return max(_by_part(chosen).values(), default=0)

    def releases_with(self, occasion: Occasion) -> int:
        """Maximum number of releases of a row of the occasion's part, after another release in this occasion."""
        parts = _by_part(self._sums)
        kind, receiver, part = occasion.kind, occasion.receiver, occasion.part
        if part == ANY_PART:
            return 1 + max((count for key, count in parts.items() if key[:2] == (kind, receiver)), default=0)
        return 1 + parts.get((kind, receiver, part), parts.get((kind, receiver, ANY_PART), 0))


def _by_part(sums: Mapping[tuple[ReleaseKind, str, str, str], int]) -> dict[tuple[ReleaseKind, str, str], int]:
    """Releases by kind, receiver and part; releases of rows of any part count in each part."""
    parts: Counter[tuple[ReleaseKind, str, str]] = Counter()
    for (kind, receiver, _, part), count in sums.items():
        parts[kind, receiver, part] += count
    return {key: count + (parts[*key[:2], ANY_PART] if key[2] else 0) for key, count in parts.items()}
