"""The common rows that the parties agreed on before, as `cutlayer align` wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cutlayer.alignment.held_rows import ALL_HAVE_ALL, HeldRows
from cutlayer.data.align import Positions, checked_positions, intersect
from cutlayer.data.ids import DIGEST_BYTES, Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, DataError
from cutlayer.kernels.rows.patterns import begins_run

COMMON_ID = "common_id"
"""Column of the ids that all parties know, where several keys identify rows."""


class AgreedRows(NamedTuple):
    """The rows that the parties agreed on.

    Attributes:
        positions: Row numbers in the party's table, in the common order, int64 (n,); `None` for all rows.
        held: The row of each other party that belongs to each of these.
        ids: With several keys the ids of these rows that all parties know, uint8 (n, 16).
    """

    positions: Positions | None
    held: HeldRows = ALL_HAVE_ALL
    ids: Digests | None = None


def agreed_rows(path: Path | None, table: PartyTable, peers: Sequence[str] = ()) -> AgreedRows:
    """The rows that `cutlayer align` found.

    Args:
        path: The CSV file that it wrote, with the columns `row` and `id`, and `common_id` where several keys identify
            rows; `None` for no file.
        table: The party's table.
        peers: Parties for each of which the file has a column that says which rows the party has.

    Raises:
        DataError: It is no such file.
        AlignmentError: It is of another table.
    """
    if path is None:
        return AgreedRows(None)
    try:
        text = csv.ConvertOptions(column_types={"id": pa.string(), COMMON_ID: pa.string()})  # an id may be 03141828
        read = csv.read_csv(path, convert_options=text)
        rows = read.column("row").to_numpy().astype(np.int64)
        ids = read.column("id")
        has = {peer: read.column(peer).cast(pa.bool_()).to_numpy() for peer in peers}
        common = _ids(read.column(COMMON_ID)) if table.keys else None
    except (OSError, KeyError, ValueError, pa.ArrowInvalid):
        names = ", ".join(("row", "id", *([COMMON_ID] if table.keys else []), *peers))
        wanted = f"{path}: the columns {names}, as cutlayer align writes them"
        raise DataError.expected(wanted, "other content" if path.is_file() else "no such file") from None
    positions = checked_positions(rows, table.rows, f"the rows in {path}")
    if not pc.all(pc.equal(table.ids(positions).cast(pa.string()), ids.cast(pa.string()))).as_py():
        raise AlignmentError.expected(
            f"{path}: the ids of {table.where}", "others", "align again, or restore the table that was aligned"
        )
    if common is not None:
        intersect({str(path): common})  # which refuses an id that repeats
    return AgreedRows(positions, _held(table, positions, has), common)


def _held(table: PartyTable, positions: Positions, has: Mapping[str, npt.NDArray[np.bool_]]) -> HeldRows:
    """The row of each other party that belongs to each row, by which of them have one, bool (n,)."""
    if table.partner_ids:
        ids = {peer: table.ids_for(peer) for peer in has}
        common = {}
        for peer, there in has.items():
            named = np.unique(ids[peer].id_numbers[positions[there]])
            named = named[named >= 0]
            common[peer] = named[intersect({peer: ids[peer].digests[named]})[peer]]
        return HeldRows.of_ids(ids, common, positions)
    is_new = begins_run(table.digests[positions])
    return HeldRows({peer: np.where(there, (there & is_new).cumsum() - 1, -1) for peer, there in has.items()})


def _ids(column: pa.ChunkedArray) -> Digests:
    """Ids that `cutlayer align` wrote in hexadecimal digits, uint8 (n, 16).

    Raises:
        ValueError: One is of another form.
    """
    ids = np.frombuffer(bytes.fromhex("".join(column.to_pylist())), np.uint8)
    return ids.reshape(len(column), DIGEST_BYTES).copy()
