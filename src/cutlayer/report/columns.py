"""The columns that went into a run, as far as its folder knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from cutlayer.config import Job
from cutlayer.data.encoding import Encoder
from cutlayer.data.sources import open_source
from cutlayer.errors import CutlayerError
from cutlayer.results.privacy_card import PartyColumns
from cutlayer.results.run import PartyInfo
from cutlayer.training.folder import RunFolder


def columns_of(job: Job, folder: RunFolder, parties: Sequence[PartyInfo]) -> Iterator[PartyColumns]:
    """The columns that went in, by the encoders and tables that are readable here.

    Args:
        job: Job of the run.
        folder: Its folder.
        parties: Its parties.
    """
    for party in parties:
        encoder, table = folder.data(party.name) / "encoder.json", job.parties[party.name].table
        used: tuple[str, ...] | None = None
        if encoder.exists():
            used = Encoder.from_json(encoder.read_bytes(), str(encoder)).names
        elif party.numeric is not None:
            used = ()
        available = None
        with suppress(CutlayerError):  # the table has moved since
            available = None if table is None else len(open_source(table, party.name).names)
        yield PartyColumns(party=party.name, used=used, available=available, rows=party.rows_own)
