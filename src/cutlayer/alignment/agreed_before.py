"""The alignment of parties that have agreed on their rows before, by the files of `cutlayer align`."""

from __future__ import annotations

from pathlib import Path

from cutlayer.alignment.agreed_rows import agreed_rows
from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.config import Job
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError


def agreed_alignment(
    job: Job, name: str, rows: Path | None, table: PartyTable, purpose: Purpose = Purpose.TRAIN, pilot: int = 0
) -> Alignment:
    """The alignment of a party's rows by its file.

    Args:
        job: The shared job.
        name: Name of the party.
        rows: The CSV file of `cutlayer align`; `None` for all rows of the table.
        table: The party's table.
        purpose: What the parties align for.
        pilot: Number of rows that each passive party releases; 0 where it releases all.

    Raises:
        ConfigError: The active party of a job with `rows: all` has no file, which says who has which row.
            Or several keys identify rows, and there is none.
        DataError, AlignmentError: It is no such file, or of another table.
    """
    names_rows = job.rows == "all" and name == job.active
    if rows is None and (names_rows or table.keys):
        remedy = "run cutlayer align first, and name its file with --rows"
        what = "which rows each partner has, with rows: all" if names_rows else "which row is which, with several keys"
        raise ConfigError.expected(f"the file that says {what}", "none", remedy)
    positions, held, ids = agreed_rows(rows, table, job.passives if names_rows else ())
    return Alignment("agreed", purpose, agreed_positions=positions, held=held, agreed_ids=ids, pilot=pilot)
