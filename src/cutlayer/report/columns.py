"""The columns that went into a run, as far as its folder knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from cutlayer.config import Job
from cutlayer.config.party import PartyConfig
from cutlayer.data.encoding import Encoder
from cutlayer.data.sources import open_source
from cutlayer.errors import CutlayerError
from cutlayer.results.privacy_card import PartyColumns
from cutlayer.results.run import PartyInfo
from cutlayer.training.folder import RunFolder


def _available(section: PartyConfig, party: str) -> int:
    """Number of columns of a table that could be features: all but its id and its label."""
    ids = section.id.columns if section.id is not None else ()
    return len({*open_source(section.table, party).names} - {*ids, section.label})


def columns_of(job: Job, folder: RunFolder, parties: Sequence[PartyInfo]) -> Iterator[PartyColumns]:
    """The columns that went in, by the encoders and tables that are readable here.

    Args:
        job: Job of the run.
        folder: Folder of the run.
        parties: Parties of the run.
    """
    for party in parties:
        encoder, section = folder.data(party.name) / "encoder.json", job.parties[party.name]
        used: tuple[str, ...] | None = None
        if encoder.exists():
            used = Encoder.from_json(encoder.read_bytes(), str(encoder)).names
        elif party.numeric is not None:
            used = ()
        available = None
        with suppress(CutlayerError):  # the table has moved since
            available = None if section.table is None else _available(section, party.name)
        yield PartyColumns(party=party.name, used=used, available=available, rows=party.rows_own)
