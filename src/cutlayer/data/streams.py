"""Purposes of random numbers that are drawn from the seed of a job."""

from __future__ import annotations

from enum import IntEnum


class RandomStream(IntEnum):
    """Purpose of random numbers; each purpose has a separate stream under the seed.

    A value never changes: a job repeats its draws. The sampled knowledge of attacks on labels has no purpose here, its
    streams are those of the seed and the epoch.
    """

    SPLIT = 1
    BATCHES = 2
    COMPLETION_LABELS = 4
    AUXILIARY_ROWS = 5
    SHADOW_ROWS = 6
    RELEASED_ROWS = 7
    OWN_COLUMNS = 8
    PERMUTED_LABELS = 9
    KNOWN_LABELS = 10
    DIAGNOSTICS = 11
    TARGET_ROWS = 12
