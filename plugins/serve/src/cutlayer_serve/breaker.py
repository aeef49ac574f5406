"""The circuit breaker: a party that repeatedly does not answer in time is not asked until a probe succeeds."""

from __future__ import annotations

MAX_MISSES = 3
"""Consecutive misses after which a party is not asked."""
PROBE_SECONDS = 0.2
"""Seconds between two probes."""
MAX_PROBE_SECONDS = 5.0
"""Maximum seconds between probes of a party that answers probes alone: every lookup it misses costs a deadline."""


class Breaker:
    """Counts the consecutive misses of a party."""

    def __init__(self) -> None:
        self._misses = 0
        self.pause = PROBE_SECONDS

    @property
    def open(self) -> bool:
        """Whether the party is not asked."""
        return self._misses >= MAX_MISSES

    def missed(self) -> None:
        """Count a lookup that was not answered in time."""
        self._misses += 1

    def alive(self) -> None:
        """The party answered a probe: it is asked again, and a single miss opens the circuit, for twice as long."""
        if self.open:
            self._misses = MAX_MISSES - 1
            self.pause = min(2 * self.pause, MAX_PROBE_SECONDS)

    def answered(self) -> None:
        """The party answered a lookup in time."""
        self._misses = 0
        self.pause = PROBE_SECONDS
