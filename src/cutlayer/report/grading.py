"""Readings of figures in words: one scale for the sentence at the top and for every sentence below it."""

from __future__ import annotations

NEGLIGIBLE_EXCESS, SMALL_EXCESS = 0.02, 0.05
"""Excesses of a leak over a party's own columns up to which a sentence calls it hardly any, and a little."""

_READ = (
    (0.99, "can read every label{}"),
    (0.9, "can infer nearly every label{}"),
    (0.75, "can guess labels{} far better than chance"),
    (0.6, "can guess labels{} better than chance"),
    (0.55, "can guess labels{} slightly better than chance"),
)
MIN_REBUILT_SHARE = 0.1
"""Part of the columns from which on a sentence says that they are read."""
_REBUILT = ((0.9, "nearly all"), (0.6, "most"), (0.3, "a part"), (MIN_REBUILT_SHARE, "a little"))


def leak_phrase(leak: float, owner: str = "") -> str:
    """Reading of a leak.

    Args:
        leak: The leak, 0.5 (chance) to 1.
        owner: Party whose labels they are, where the sentence names it.

    >>> leak_phrase(1.0), leak_phrase(0.83)
    ('can read every label', 'can guess labels far better than chance')
    >>> leak_phrase(0.51)
    'did not read labels better than chance by any attack tried'
    >>> leak_phrase(0.83, "bank")
    'can guess labels of bank far better than chance'
    """
    # Not "cannot": another attack may read more.
    nothing = "did not read labels{} better than chance by any attack tried"
    words = next((words for limit, words in _READ if leak >= limit), nothing)
    return words.format(f" of {owner}" if owner else "")


def rebuilt_phrase(r2: float) -> str:
    """How much of the columns an R² is.

    >>> rebuilt_phrase(0.97), rebuilt_phrase(0.02)
    ('nearly all', 'next to nothing')
    """
    return next((words for limit, words in _REBUILT if r2 >= limit), "next to nothing")
