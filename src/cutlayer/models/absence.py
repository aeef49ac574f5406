"""Sets of parties that may be absent: for the heads of a top model, and for the utility without them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

MAX_PARTIES_OF_ALL_SETS = 6
"""Maximum number K of parties of which every set is taken; there are 2^K sets."""

Names = tuple[str, ...]


def absent_sets(parties: Sequence[str], *, keep_one: bool, sizes: Collection[int]) -> tuple[Names, ...]:
    """The nonempty sets of parties that may be absent, smaller ones first, each in the parties' order.

    Args:
        parties: Parties that may leave.
        keep_one: Whether a party must stay, because no other party has an embedding.
        sizes: Numbers of parties that leave together, if there are more than 6; of fewer, every set is taken.

    >>> absent_sets(["telco", "shop"], keep_one=False, sizes=())
    (('telco',), ('shop',), ('telco', 'shop'))
    >>> absent_sets(["telco", "shop"], keep_one=True, sizes=())
    (('telco',), ('shop',))
    """
    max_size = len(parties) - int(keep_one)
    every = len(parties) <= MAX_PARTIES_OF_ALL_SETS
    counts = [size for size in range(1, max_size + 1) if every or size in sizes]
    return tuple(names for size in counts for names in combinations(parties, size))
