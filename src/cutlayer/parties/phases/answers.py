"""A passive party's answers to requests for rows: held-out rows in the epochs, and those of the single release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from cutlayer.channel import Kind, Message, rows_digest
from cutlayer.config.phases import Phase
from cutlayer.data.batches import evaluation_batches
from cutlayer.errors import ProtocolError
from cutlayer.parties.phases.release import release_batches
from cutlayer.parties.session.local import EVALUATION_ROWS, HELD_OUT
from cutlayer.protections.contract.views import Mode, PassiveView

if TYPE_CHECKING:
    from cutlayer.parties.phases.passive_side import PassiveSide


def answer_request(side: PassiveSide, request: Message, epoch: int) -> None:
    """Send the batch of rows that this party's own schedule has at this point.

    Noise and account depend on this party's own epoch and batch, so that a repeated request gets the same numbers.

    Raises:
        ProtocolError: The schedule has no such batch at this point.
    """
    if side.released is not None:
        kind, rows = Kind.RELEASE, _single_release(side, request, side.released)
    elif Phase.RELEASE in side.phases:  # else warm-up epochs would have releases of their own
        raise ProtocolError.expected(f"no request before the single release from {side.port.peer}", "one")
    else:
        kind, rows = Kind.EVALUATION, _held_out_release(side, request, epoch)
    side.port.send(kind, epoch=request.epoch, step=request.step, rows=request.rows, tensors={"embedding": rows})


def _held_out_release(side: PassiveSide, request: Message, epoch: int) -> Tensor:
    """The embeddings of a batch of held-out rows, (n, width), after an epoch or at the end (-1)."""
    split, peer = side.split, side.port.peer
    part, number = str(request.fields["part"]), int(request.fields["batch"])
    if part not in HELD_OUT:
        raise ProtocolError.expected(f"a request for {' or '.join(HELD_OUT)} rows", repr(part)[:80])
    held_out = HELD_OUT if epoch >= 0 else HELD_OUT[::-1]
    evaluated = next((part for part in held_out if len(split.part(part))), "no")
    wanted, got = (evaluated, epoch, number), (part, request.epoch, request.step)
    if wanted != got:
        named = f"a request for {{}} rows of epoch {{}}, step {{}} from {peer}"
        raise ProtocolError.expected(named.format(*wanted), "{} rows of epoch {}, step {}".format(*got))
    batches = evaluation_batches(split.part(part), EVALUATION_ROWS)
    if not 0 <= number < len(batches) or rows_digest(batches[number]) != request.rows:
        raise ProtocolError(f"{peer} asked for batch {number} of {part}, which holds other rows here")
    return side.setup.protected(PassiveView(Mode.EVALUATE, epoch, number, batches[number], side.setup.embed, part=part))


def _single_release(side: PassiveSide, request: Message, released: Tensor) -> Tensor:
    """Rows of the single release, (n, width); a repeated request gets the same numbers."""
    part, number = str(request.fields["part"]), int(request.fields["batch"])
    batches = [*release_batches(side.split, side.setup.bottom.width, side.pilot)]
    name, rows = batches[number] if 0 <= number < len(batches) else ("", None)
    if rows is None or (part, request.rows) != (name, rows_digest(rows)):
        raise ProtocolError(f"{side.port.peer} asked for release {number} of {part}, which holds other rows here")
    return released[rows]
