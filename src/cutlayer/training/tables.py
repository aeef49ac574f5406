"""The tables of a job's parties, opened by what the job states of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlayer.config import Job, PartyConfig
from cutlayer.config.size import in_bytes
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError


def open_table(job: Job, name: str, tables: Mapping[str, Any]) -> PartyTable:
    """A party's rows, from memory or from the file that its part of the job names.

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
    holds = "only the active party holds labels"
    weighs = "only the active party weighs rows"
    if party.role == "passive":
        for key, remedy in {"label": holds, "positive": holds, "weight": weighs, "unlabelled": holds}.items():
            if (value := getattr(party, key)) != PartyConfig.model_fields[key].default:
                raise ConfigError.expected(f"no parties.{name}.{key}", value, remedy)
    table = PartyTable(
        party=name,
        table=source,
        id=party.id,
        label=party.label,
        features=party.features,
        task=job.task,
        weight=party.weight,
        memory=in_bytes(party.memory),
        split_by=job.train.split.by if party.role == "active" else None,
        drop_unlabelled=party.unlabelled == "drop",
    )
    table.check_columns(party.report.subgroups)  # which the run itself does not read: the annex after it would fail
    return table
