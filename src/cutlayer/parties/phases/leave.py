"""The passive parties' part of the run ends before any label is used."""

from __future__ import annotations

from collections.abc import Generator

from cutlayer.channel import Message, Port
from cutlayer.parties.agreement.partners import Partners
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.phases.passive_side import PassiveSide


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Dismiss the passive parties, and store what a resume needs of them: it goes on without them."""
    yield from side.dismiss()
    if side.partners is None:
        agreement, aligned = side.agreement, side.agreement.aligned
        side.partners = Partners(
            agreement.positions,
            order=side.rows,
            rows=agreement.peer_rows,
            widths=side.passives.widths,
            evidence=side.statements,
            runs=side.runs,
            held=side.passives.held,
            ids=aligned.ids,
            record=agreement.record,
        )
        side.partners.save(side.checkpoints)
    side.when_alone()


def follow(side: PassiveSide) -> Generator[Port, Message, None]:
    """Store what a finished run leaves, before any row is sent: then the active party may go on alone."""
    side.checkpoints.save(0, side.snapshot(0), best=True)
    side.transcript.close(0)
    yield from ()
