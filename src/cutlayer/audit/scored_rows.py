"""Leaks of a part of the rows alone, which the attack selected itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cutlayer.results.leaks import LeakResult, worst_of

MIN_SCORED_SHARE = 0.5
"""Share of the recorded rows below which the leak of an attack is not that of all rows."""


def narrow_leaks(leaks: Sequence[LeakResult]) -> Iterator[tuple[LeakResult, LeakResult | None]]:
    """The worst leak of each kind of message of each attacker, where it is of less than `MIN_SCORED_SHARE` of the rows.

    Args:
        leaks: Leaks of one run.

    Yields:
        That leak, and the worst of the attacks that scored more rows, `None` where there is none.
    """
    for party, message in dict.fromkeys((leak.party, leak.message) for leak in leaks):
        group = [leak for leak in leaks if (leak.party, leak.message) == (party, message)]
        worst = worst_of(group)
        if worst is not None and _is_narrow(worst):
            yield worst, worst_of(leak for leak in group if not _is_narrow(leak))


def _is_narrow(leak: LeakResult) -> bool:
    return leak.rows_recorded is not None and leak.rows < MIN_SCORED_SHARE * leak.rows_recorded
