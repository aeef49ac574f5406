"""The tables of a job's parties, opened by what the job states of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from cutlayer.config import Job, PartyConfig
from cutlayer.config.size import in_bytes
from cutlayer.data.engine import Reading
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError
from cutlayer.training.keys import Keys
from cutlayer.workers import work_threads

PartyTables = dict[str, PartyTable]


_SMALL_TABLE_SECONDS = 0.3
"""Seconds in which small tables are read."""


_HOLDS_LABELS = "only the active party holds labels"
_ACTIVE_KEYS = dict.fromkeys(
    ("label", "further_labels", "positive", "exposure", "event", "group", "coverage", "unlabelled"), _HOLDS_LABELS
)
_ACTIVE_KEYS |= {"weight": "only the active party weighs rows", "partner_ids": "only its rows refer to those of others"}
"""Keys of the active party alone, with the remedy."""


def open_tables(
    job: Job, given: Mapping[str, Any], meanwhile: Callable[[], object] = lambda: None, keys: Keys | None = None
) -> PartyTables:
    """The tables of all parties, read at the same time: most of it is done by the engine and Arrow.

    Args:
        job: The job.
        given: Tables in memory, by party.
        meanwhile: Called in this thread while long tables are read.
        keys: As in `open_table`.

    Raises:
        CutlayerError: An error of `open_table`. What does not depend on the rows is found before any is read.
    """
    tables = {name: open_table(job, name, given, keys, read=False) for name in job.parties}
    reading = Reading()
    with ThreadPoolExecutor(work_threads(), thread_name_prefix="cutlayer-table") as pool:
        try:
            begun = [pool.submit(reading.run, table.read) for table in tables.values()]
            if wait(begun, _SMALL_TABLE_SECONDS, FIRST_EXCEPTION).not_done:
                meanwhile()
            for each in begun:
                each.result()
        except BaseException:  # one cannot be read, or Ctrl-C: the pool waits for its threads
            reading.stop()
            raise
    return tables


def open_table(
    job: Job, name: str, tables: Mapping[str, Any], keys: Keys | None = None, *, read: bool = True
) -> PartyTable:
    """A party's rows, from memory or from the file that its part of the job names.

    Args:
        job: The job.
        name: The party.
        tables: Tables in memory, by party.
        keys: Where secrets come from, next to which the party's forgotten rows are; `None` to read all rows.
        read: Whether to read the rows now; `PartyTable.read` has to be called otherwise.

    Raises:
        ConfigError: Neither.
        DataError: The table cannot be read, or has no column of a name in the party's part.
    """
    party: PartyConfig = job.parties[name]
    source = tables.get(name, party.table)
    if source is None:
        raise ConfigError.expected(f"parties.{name}.table", "none", "name the party's file")
    if party.role == "active" and party.label is None:
        raise ConfigError.expected(f"parties.{name}.label", "none", "name the column that holds the labels")
    if party.role == "passive":
        for key, remedy in _ACTIVE_KEYS.items():
            if (value := getattr(party, key)) != PartyConfig.model_fields[key].get_default(call_default_factory=True):
                raise ConfigError.expected(f"no parties.{name}.{key}", value, remedy)
    split_by = job.train.split.by if party.role == "active" else None
    table = PartyTable(
        party=name,
        table=source,
        id=party.id,
        label=party.label,
        features=party.features,
        task=job.task,
        weight=party.weight,
        target=job.target,
        second=party.second,
        further_labels=party.further_labels,
        partner_ids=party.partner_ids,
        memory=in_bytes(party.memory),
        split_by=split_by,
        drop_unlabelled=party.unlabelled == "drop",
        forgotten=None if keys is None else keys.forgotten_rows(name, party),
        limited=party.limited_columns,
        read=read,
    )
    named = [name for name in (party.label, party.second, party.weight, split_by) if name is not None]
    named += party.further_labels
    # Subgroups are not read by the run itself: the annex after it would fail.
    table.check_columns([*named, *party.report.subgroups])
    return table
