"""Which sets of parties may be absent: for the heads of a top model, and for the utility that is left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

MAX_PARTIES_OF_ALL_SETS = 6
"""Of up to so many parties every set is taken; there are 2^K of them."""

Names = tuple[str, ...]


def absent_sets(parties: Sequence[str], *, keep_one: bool, sizes: Collection[int]) -> tuple[Names, ...]:
    """The nonempty sets of parties that may be absent, smaller ones first, each in the parties' order.

    Args:
        parties: those that may leave.
        keep_one: whether one of them must stay, because nobody else has an embedding.
        sizes: how many leave at once, where there are more than 6 parties; of fewer every set is taken.

    >>> absent_sets(["telco", "shop"], keep_one=False, sizes=())
    (('telco',), ('shop',), ('telco', 'shop'))
    >>> absent_sets(["telco", "shop"], keep_one=True, sizes=())
    (('telco',), ('shop',))
    """
    most = len(parties) - int(keep_one)
    every = len(parties) <= MAX_PARTIES_OF_ALL_SETS
    wanted = [size for size in range(1, most + 1) if every or size in sizes]
    return tuple(found for size in wanted for found in combinations(parties, size))
