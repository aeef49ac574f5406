"""A passive party's answers to requests for rows: held-out rows in the epochs, and those of the single release."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.config.phases import Phase
from cutlayer.data.batches import evaluation_batches
from cutlayer.errors import ProtocolError
from cutlayer.parties.local import EVALUATION_ROWS, HELD_OUT
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.phases.release import release_batches
from cutlayer.protections.views import Mode, PassiveView


class Answers:
    """Answers the active party's requests for rows.

    Args:
        setup: Columns, bottom model and protections.
        port: Port to the active party.
        phases: The party's phases.

    Attributes:
        released: Embeddings of the single release by row, (n, width); `None` before it.
    """

    def __init__(self, setup: PassiveSetup, port: Port, phases: Collection[Phase]) -> None:
        self.setup, self.port, self.phases = setup, port, phases
        self.released: Tensor | None = None

    def answer(self, request: Message, epoch: int) -> None:
        """Send the batch of held-out rows that this party's own schedule has at this point.

        Noise and account depend on this party's own epoch and batch, so that a repeated request gets the same numbers.

        Raises:
            ProtocolError: The schedule has no such batch at this point.
        """
        if self.released is not None:
            self._answer_again(request, self.released)
            return
        if Phase.RELEASE in self.phases:  # else warm-up epochs would have releases of their own
            raise ProtocolError.expected(f"no request before the single release from {self.port.peer}", "one")
        part, number = str(request.fields["part"]), int(request.fields["batch"])
        if part not in HELD_OUT:
            raise ProtocolError.expected(f"a request for {' or '.join(HELD_OUT)} rows", repr(part)[:80])
        wanted, got = (self._evaluated(epoch), epoch, number), (part, request.epoch, request.step)
        if wanted != got:
            named = "a request for {} rows of epoch {}, step {} from " + self.port.peer
            raise ProtocolError.expected(named.format(*wanted), "{} rows of epoch {}, step {}".format(*got))
        batches = evaluation_batches(self.setup.split.part(part), EVALUATION_ROWS)
        if not 0 <= number < len(batches) or rows_digest(batches[number]) != request.rows:
            raise ProtocolError(f"{self.port.peer} asked for batch {number} of {part}, which holds other rows here")
        view = PassiveView(Mode.EVALUATE, epoch, number, batches[number], self.setup.embed, part=part)
        self._send_rows(Kind.EVALUATION, request, self.setup.protected(view))

    def _evaluated(self, epoch: int) -> str:
        """The part of the rows that is evaluated after an epoch, or at the end (-1)."""
        held_out = HELD_OUT if epoch >= 0 else HELD_OUT[::-1]
        return next((part for part in held_out if len(self.setup.split.part(part))), "no")

    def _answer_again(self, request: Message, released: Tensor) -> None:
        """Send rows of the single release; a repeated request gets the same numbers."""
        part, number = str(request.fields["part"]), int(request.fields["batch"])
        batches = [
            (name, rows_digest(rows), rows) for name, rows in release_batches(self.setup.split, self.setup.bottom.width)
        ]
        if not 0 <= number < len(batches) or (part, request.rows) != batches[number][:2]:
            raise ProtocolError(f"{self.port.peer} asked for release {number} of {part}, which holds other rows here")
        self._send_rows(Kind.RELEASE, request, released[batches[number][2]])

    def _send_rows(self, kind: Kind, request: Message, released: Tensor) -> None:
        self.port.send(kind, epoch=request.epoch, step=request.step, rows=request.rows, tensors={"embedding": released})
