"""The rows that a passive party sends without training on them: held-out rows on request, and the single release."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.config import Job
from cutlayer.data.batches import evaluation_batches
from cutlayer.errors import ProtocolError
from cutlayer.kernels.row_tensors import empty_rows
from cutlayer.models.fitting import TrainingColumns, fit_bottom
from cutlayer.parties.checkpoint import RELEASED, Checkpoints
from cutlayer.parties.local import EVALUATION_ROWS, HELD_OUT, Local
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.release import release_batches
from cutlayer.protections.views import Mode, PassiveView


class Releases:
    """Answers the active party's requests for rows.

    Args:
        job: The shared job.
        local: The party's private side.
        setup: Columns, bottom model and protections.
        port: Port to the active party.
        checkpoints: Where the single release is stored.

    Attributes:
        released: Embeddings of the single release by row, (n, width); `None` before it.
        fit_losses: Loss after each epoch of the fit that comes before it.
    """

    def __init__(self, job: Job, local: Local, setup: PassiveSetup, port: Port, checkpoints: Checkpoints) -> None:
        self.job, self.local, self.setup, self.port, self.checkpoints = job, local, setup, port, checkpoints
        self.released: Tensor | None = None
        self.fit_losses: tuple[float, ...] = ()

    def release_once(self, warmup_gradients: Tensor | None) -> None:
        """Fix the bottom model and draw every row's release; after an interruption, restore both.

        All is on disk before anything is sent, so that no row can ever be released with other noise.

        Args:
            warmup_gradients: Gradients received before it, by row, if any.
        """
        stored = self.checkpoints.kept(RELEASED) if self.local.resume else None
        if stored:
            self.setup.state.load(stored)
            self.released, self.fit_losses = stored[0]["released"], tuple(stored[1]["fit_losses"])
            return
        columns = TrainingColumns(
            self.setup.inputs, self.setup.split.part("train"), self.setup.store.gather, warmup_gradients
        )
        where = f"parties.{self.local.name}.fit"
        # Wherever the party trains, it fits on the CPU, from whose random numbers weights and orders are drawn.
        self.fit_losses = fit_bottom(self.job.parties[self.local.name].fit, self.setup.bottom.cpu(), columns, where)
        self.setup.bottom.to(self.local.device)
        self.released = empty_rows(self.setup.store.rows, torch.empty(0, self.setup.bottom.width))
        for number, (part, rows) in enumerate(release_batches(self.setup.split, self.setup.bottom.width)):
            mode = Mode.EVALUATE if part in HELD_OUT else Mode.TRAIN
            view = PassiveView(mode, -1, number, rows, self.setup.embed, part=part)
            self.released[rows] = self.setup.protected(view).cpu()
            self.setup.state.sent[Kind.RELEASE.value] += 1
        tensors, plain = self.setup.state.snapshot()
        tensors["released"] = self.released
        self.checkpoints.keep(RELEASED, (tensors, {**plain, "fit_losses": list(self.fit_losses)}))

    def answer(self, request: Message, epoch: int) -> None:
        """Send the batch of held-out rows that this party's own schedule has at this point.

        Noise and account depend on this party's own epoch and batch, so that a repeated request gets the same numbers.

        Raises:
            ProtocolError: The schedule has no such batch at this point.
        """
        if self.released is not None:
            self._answer_again(request, self.released)
            return
        if self.job.train.releases_once(self.local.name):  # else warm-up epochs would have releases of their own
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
