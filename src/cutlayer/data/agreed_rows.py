"""The common rows that the parties agreed on before, as `cutlayer align` wrote them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cutlayer.data.align import Positions, checked_positions
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, DataError


def agreed_rows(path: Path | None, table: PartyTable) -> Positions | None:
    """The common rows that `cutlayer align` found, as row numbers in the party's table; `None` for all rows.

    Args:
        path: The CSV file that it wrote, with the columns `row` and `id`; `None` for no file.
        table: The party's table.

    Raises:
        DataError: It is no such file.
        AlignmentError: It is of another table.
    """
    if path is None:
        return None
    try:
        read = csv.read_csv(path)
        rows = read.column("row").to_numpy().astype(np.int64)
        ids = read.column("id")
    except (OSError, KeyError, ValueError, pa.ArrowInvalid) as failure:
        raise DataError(f"{path}: expected the columns row and id, as cutlayer align writes them ({failure})") from None
    positions = checked_positions(rows, table.rows, f"the rows in {path}")
    if not pc.all(pc.equal(table.ids(positions).cast(pa.string()), ids.cast(pa.string()))).as_py():
        raise AlignmentError.expected(
            f"{path}: the ids of {table.where}", "others", "align again, or restore the table that was aligned"
        )
    return positions
