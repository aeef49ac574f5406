"""The columns that went into a run, as far as its folder knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cutlayer.data.encoding import Encoder
from cutlayer.results.privacy_card import PartyColumns
from cutlayer.results.run import PartyInfo
from cutlayer.training.folder import RunFolder


def columns_of(folder: RunFolder, parties: Sequence[PartyInfo]) -> Iterator[PartyColumns]:
    """The columns that went in, by the encoders in the folder. No table is opened: the folder may come from anybody.

    Args:
        folder: Folder of the run.
        parties: Parties of the run.
    """
    for party in parties:
        encoder = folder.data(party.name) / "encoder.json"
        used: tuple[str, ...] | None = None
        if encoder.exists():
            used = Encoder.from_json(encoder.read_bytes(), str(encoder)).names
        elif party.numeric is not None:
            used = ()
        yield PartyColumns(party=party.name, used=used, available=party.columns, rows=party.rows_own)
