"""Which rows of the tables of a job belong together, where all tables are on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cutlayer.config import FrozenModel, Job
from cutlayer.data.align import Positions, check_id_kinds, check_id_rules, intersect, intersect_each
from cutlayer.data.id_examples import with_examples
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.data.row_keys import joined_ids, match_keys
from cutlayer.errors import NothingInCommon

if TYPE_CHECKING:
    from cutlayer.parties.held_rows import HeldRows


class KeyForecast(FrozenModel):
    """What several keys match between the active party and a passive one.

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


def check_ids(tables: Mapping[str, PartyTable]) -> None:
    """Refuse tables whose ids are of different kinds or rules.

    Raises:
        AlignmentError: They are.
    """
    kinds = {name: table.id_kind for name, table in tables.items()}
    examples = {name: table.id_example for name, table in tables.items()} if len(set(kinds.values())) > 1 else {}
    check_id_kinds(kinds, {name: table.rows for name, table in tables.items()}, examples)
    check_id_rules({name: table.id_rule for name, table in tables.items()})


def ids_of(job: Job, tables: Mapping[str, PartyTable]) -> tuple[dict[str, Digests], tuple[KeyForecast, ...]]:
    """Digests of the different ids of each party; with several keys, equal ones for the rows that any key matches."""
    ids = {name: table.identified.digests for name, table in tables.items()}
    owner, rule = tables[job.active], job.parties[job.active].id
    if not owner.keys or rule is None:
        return ids, ()
    found = {name: match_keys(owner.keys, tables[name].keys) for name in job.passives}
    for name, matches in found.items():
        ids[name] = joined_ids(ids[job.active], matches.pairs, len(ids[name]))
    named = tuple(key.columns for key in rule.keys)
    by_key = (
        KeyForecast(
            party=name,
            keys=named,
            matched=tuple(len(pairs.mine) for pairs in matches.by_key),
            conflicts=dict(zip((job.active, name), matches.conflicts, strict=True)),
        )
        for name, matches in found.items()
    )
    return ids, tuple(by_key)


def lacking(job: Job, ids: Mapping[str, Digests], common: int, held: HeldRows) -> dict[str, int]:
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


def common_positions(ids: Mapping[str, Digests], tables: Mapping[str, PartyTable]) -> dict[str, Positions]:
    """Row numbers of the common rows in each table; an error shows ids, since all tables are here."""
    try:
        return intersect(ids)
    except NothingInCommon as failure:
        raise with_examples(failure, tables) from None


def all_positions(
    job: Job, ids: Mapping[str, Digests], tables: Mapping[str, PartyTable]
) -> tuple[dict[str, Positions], HeldRows]:
    """Row numbers of the run's rows in each table, and which of the active party's each passive party has."""
    from cutlayer.parties.held_rows import HeldRows

    identified = tables[job.active].identified
    positions, places = intersect_each(job.active, ids)
    held = HeldRows.of_places(places, identified.rows)
    positions[job.active], held = held.in_table(identified, positions[job.active])
    return positions, held
