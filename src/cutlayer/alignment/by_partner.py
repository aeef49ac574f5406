"""The alignment of the active party: with all partners by one id, or with each by ids of its own."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

from cutlayer.alignment.common_rows import CommonRows, rows_active
from cutlayer.alignment.held_rows import HeldRows
from cutlayer.alignment.key_rounds import run_in_turns
from cutlayer.alignment.points import AligningSide
from cutlayer.channel import Message, Port
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.workers import usable_cores


def sides_of(side: AligningSide, table: PartyTable) -> tuple[AligningSide, ...]:
    """The side with all partners; or one with each, where the table has ids for partners.

    Args:
        side: The active party's side with all of them.
        table: Its rows.
    """
    if not table.partner_ids or not side.ports:
        return (side,)
    cores = max(1, (side.alignment.processes or usable_cores()) // len(side.ports))
    folder = side.alignment.folder
    alignments = {
        peer: replace(side.alignment, processes=cores, folder=folder and folder / peer) for peer in side.ports
    }
    return tuple(
        replace(side, table=table.ids_for(peer), ports={peer: port}, alignment=alignments[peer])
        for peer, port in side.ports.items()
    )


def aligned_sides(
    sides: Sequence[AligningSide], table: PartyTable
) -> Generator[Port, Message, tuple[CommonRows, tuple[CommonRows, ...]]]:
    """The rows of the active party, in the common order, with what each partner has of them.

    Args:
        sides: What `sides_of` returned, with the number of rows that each peer stated.
        table: The active party's rows.

    Returns:
        What it learned of its rows; and of its different ids, at each side.
    """
    if not table.partner_ids or not sides[0].ports:
        (side,) = sides
        found = yield from rows_active(side)
        if found.positions is None:
            return found, (found,)
        positions, held = found.held.in_table(side.table, found.positions)
        return replace(found, positions=positions, held=held), (found,)
    each = yield from run_in_turns({side.port.peer: rows_active(side) for side in sides})
    sizes = {peer: found.sizes[peer] for peer, found in each.items()}
    if sides[0].alignment.method == "agreed":
        return replace(each[sides[0].port.peer], sizes=sizes), (*each.values(),)
    ids, common = {}, {}
    for peer, found in each.items():
        if found.positions is None:
            return CommonRows(None, sizes), (*each.values(),)
        ids[peer] = table.ids_for(peer)
        common[peer] = found.positions[found.held.by_party[peer] >= 0]
    order = intersect({table.where: table.digests})[table.where]
    proofs = {peer: proof for found in each.values() for peer, proof in found.proofs.items()}
    return CommonRows(order, sizes, HeldRows.of_ids(ids, common, order), proofs=proofs), (*each.values(),)
