"""How the rows of tables that are all here belong together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cutlayer.data.align import Positions, check_id_kinds, check_id_rules, intersect, intersect_each
from cutlayer.data.distinct_ids import IdTable
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.data.row_keys import KeyMatches, joined_ids, match_keys

if TYPE_CHECKING:
    from cutlayer.alignment.held_rows import HeldRows


def check_ids(tables: Mapping[str, PartyTable]) -> None:
    """Refuse tables whose ids are of different kinds or rules.

    Raises:
        AlignmentError: Kinds or rules differ, or row numbers are used on tables of different lengths.
    """
    owner = next((name for name, table in tables.items() if table.partner_ids), None)
    pairs: list[dict[str, IdTable]] = [{**tables}]
    if owner is not None:
        pairs = [{owner: tables[owner].ids_for(name), name: tables[name]} for name in tables if name != owner]
    for each in pairs:
        kinds = {name: table.id_kind for name, table in each.items()}
        examples = (
            {name: tables[name].id_example for name in each} if owner is None and len({*kinds.values()}) > 1 else {}
        )
        check_id_kinds(kinds, {name: table.rows for name, table in each.items()}, examples)
        check_id_rules({name: table.id_rule for name, table in each.items()})


def matched_ids(first: str, tables: Mapping[str, PartyTable]) -> tuple[dict[str, Digests], Mapping[str, KeyMatches]]:
    """Digests of the different ids of each party; with several keys, equal ones for the rows that any key matches.

    Args:
        first: The party whose rows are matched.
        tables: Tables by party, that party's included.

    Returns:
        Digests by party, uint8 (n, 16), and with several keys what they match with each other party.
    """
    ids = {name: table.id_table.digests for name, table in tables.items()}
    own = tables[first].keys
    matches = {name: match_keys(own, table.keys) for name, table in tables.items() if own and name != first}
    for name, found in matches.items():
        ids[name] = joined_ids(ids[first], found.pairs, len(ids[name]))
    return ids, matches


def all_positions(
    first: str, ids: Mapping[str, Digests], tables: Mapping[str, PartyTable]
) -> tuple[dict[str, Positions], HeldRows]:
    """All rows of one party, and which of them each other party has.

    Args:
        first: The party.
        ids: What `matched_ids` returned; not used where the party has ids for each of the others.
        tables: Tables by party.

    Returns:
        Row numbers in each table, int64 (n,) of the first party and (m,) of each other one; and which of the first
        party's rows each other one has.

    Raises:
        NothingInCommon: A party has no row of the first.
    """
    from cutlayer.alignment.held_rows import HeldRows

    owner = tables[first]
    if owner.partner_ids:
        positions, common = intersect({first: owner.digests}), {}
        by_partner = {name: owner.ids_for(name) for name in tables if name != first}
        for name, of_partner in by_partner.items():
            found = intersect({first: of_partner.digests, name: tables[name].digests})
            common[name], positions[name] = found[first], found[name]
        return positions, HeldRows.of_ids(by_partner, common, positions[first])
    identified = owner.id_table
    positions, places = intersect_each(first, ids)
    held = HeldRows.of_places(places, identified.rows)
    positions[first], held = held.in_table(identified, positions[first])
    return positions, held
