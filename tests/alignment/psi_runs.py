"""Alignments by private set intersection with both sides in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cutlayer.alignment.common_rows import CommonRows, rows_active, rows_passive
from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.alignment.points import AligningSide
from cutlayer.channel import Message, Port, link
from cutlayer.config import IdConfig, LimitsConfig
from cutlayer.data.party_data import PartyTable
from cutlayer.parties.drive.drive import drive_together

BANK, TELCO = "bank", "telco"
PSI = Alignment("psi", processes=1)


def table(ids: Sequence[object], party: str = BANK, **settings: Any) -> PartyTable:
    """A table with one id column."""
    id_config = IdConfig(column="id", **settings)
    return PartyTable(party, pa.table({"id": pa.array(ids), "x": pa.array(range(len(ids)))}), id_config)


def aligned(
    bank: PartyTable,
    passives: dict[str, PartyTable],
    alignment: Alignment = PSI,
    spy: Callable[[Message], None] | None = None,
    run: str = "run",
    limits: Mapping[str, LimitsConfig] | None = None,
    *,
    all_rows: bool = False,
) -> dict[str, CommonRows]:
    """Align the active party's table with others.

    Args:
        bank: Table of the active party.
        passives: Tables of the passive parties, by name.
        alignment: How to align.
        spy: Sees every message.
        run: Id of the run.
        limits: Those of some parties, by name.
        all_rows: Whether the active party takes all of its rows.
    """
    bounds = {name: (limits or {}).get(name, LimitsConfig()) for name in (BANK, *passives)}
    ends: dict[str, tuple[Port, Port]] = {name: link(BANK, name, run) for name in passives}
    for pair in ends.values():
        for port in pair:
            port.inspect = spy
    rows = {name: own.stated_rows for name, own in passives.items()}
    ports = {name: pair[0] for name, pair in ends.items()}
    leading = rows_active(AligningSide(BANK, bank, ports, rows, bounds[BANK], alignment, all_rows=all_rows))
    parties: dict[str, Any] = {BANK: leading}
    for name, own in passives.items():
        there, stated, only = {BANK: ends[name][1]}, {BANK: bank.stated_rows}, len(passives) == 1
        parties[name] = rows_passive(
            AligningSide(name, own, there, stated, bounds[name], alignment, is_only_passive=only)
        )
    return drive_together(parties)


def two(bank: Sequence[object], telco: Sequence[object], purpose: Purpose = Purpose.TRAIN) -> dict[str, CommonRows]:
    """Align two lists of ids."""
    return aligned(table(bank), {TELCO: table(telco, TELCO)}, Alignment("psi", purpose, processes=1))
