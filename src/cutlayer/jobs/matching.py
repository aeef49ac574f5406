"""Matches between the ids of a job's tables, before a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cutlayer.alignment.local_tables import all_positions
from cutlayer.config import FrozenModel, Job
from cutlayer.data.align import Positions, intersect
from cutlayer.data.id_examples import with_examples
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.data.row_keys import KeyMatches
from cutlayer.errors import NothingInCommon

if TYPE_CHECKING:
    from cutlayer.alignment.held_rows import HeldRows


class KeyForecast(FrozenModel):
    """Matches of several keys between the active party and a passive one.

    Attributes:
        party: Name of the passive party.
        keys: Columns of each key at the active party.
        matched: Number of rows that each key matches, of those that no earlier key does.
        conflicts: Number of rows of each of both parties that two keys would match with different rows of the other.
    """

    party: str
    keys: tuple[tuple[str, ...], ...]
    matched: tuple[int, ...]
    conflicts: Mapping[str, int]


def key_forecasts(job: Job, matches: Mapping[str, KeyMatches]) -> tuple[KeyForecast, ...]:
    """Matches of several keys between the active party and each passive one; empty where one key identifies rows."""
    rule = job.parties[job.active].id
    if rule is None:
        return ()
    return tuple(
        KeyForecast(
            party=name,
            keys=tuple(key.columns for key in rule.keys),
            matched=tuple(len(pairs.mine) for pairs in found.by_key),
            conflicts=dict(zip((job.active, name), found.conflicts, strict=True)),
        )
        for name, found in matches.items()
    )


def lacking_rows(job: Job, ids: Mapping[str, Digests], common: int, held: HeldRows) -> dict[str, int]:
    """Number of rows of the active party that each passive party lacks.

    Args:
        job: The job.
        ids: Digests of the ids, from `ids_of`.
        common: Number of rows that all parties have.
        held: Which of the active party's rows each passive party has, in a run on all of its rows.
    """
    if held.by_party:
        return {name: int((numbers < 0).sum()) for name, numbers in held.by_party.items()}
    mine = ids[job.active]
    if len(job.passives) == 1:
        return {job.passives[0]: len(mine) - common}
    both = {name: intersect({job.active: mine, name: ids[name]}) for name in job.passives}
    return {name: len(mine) - len(found[name]) for name, found in both.items()}


def positions_of_run(
    job: Job, ids: Mapping[str, Digests], tables: Mapping[str, PartyTable]
) -> tuple[dict[str, Positions], HeldRows, int]:
    """Row numbers of the run's rows in each table, which each party has, and how many all have.

    Raises:
        NothingInCommon: There is none; it shows ids, since all tables are here.
    """
    from cutlayer.alignment.held_rows import ALL_HAVE_ALL

    try:
        if job.rows == "all":
            positions, held = all_positions(job.active, ids, tables)
            return positions, held, int(held.held_by_all().sum())
        positions = intersect(ids)
    except NothingInCommon as failure:
        raise with_examples(failure, tables) from None
    return positions, ALL_HAVE_ALL, len(positions[job.active])
