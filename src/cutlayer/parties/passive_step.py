"""A training step of a passive party: the embeddings that leave, and the update by the gradients that come back."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.transcript import LAYER_ROWS, Sampling, Step, Transcript
from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.errors import ConfigError
from cutlayer.kernels.gradients.received_gradient import backward_from
from cutlayer.models import collect_layer_outputs
from cutlayer.models.bottom_fits.gradients import no_gradients
from cutlayer.parties.compute.read_ahead import ReadAhead
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.guards.guard import GradientGuard
from cutlayer.parties.messages import receive_gradient
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.session.local import LocalSide
from cutlayer.protections.contract.views import PassiveView, Update


class PassiveStep:
    """Takes the training steps of a passive party.

    Args:
        job: The shared job.
        local: The party's private side.
        setup: Columns, bottom model and protections.
        port: Port to the active party.
        transcript: Record of the sampled steps.
        sampling: Chooses them.

    Attributes:
        guard: Scrutiny of the gradients, if any.
        warmup_gradients: Gradients received in warm-up epochs, by row, (n, width); `None` before the first.
    """

    def __init__(
        self, job: Job, local: LocalSide, setup: PassiveSetup, port: Port, transcript: Transcript, sampling: Sampling
    ) -> None:
        self.job, self.local, self.setup, self.port = job, local, setup, port
        self.state = setup.state
        self.transcript, self.sampling = transcript, sampling
        self.warmup_gradients: Tensor | None = None
        self.guard: GradientGuard | None = None
        if local.config.guard is not None and Phase.RELEASE not in job.phases_of(local.name):
            penalised = local.chain.acts_at("local_loss")
            self.guard = self.state.guard = GradientGuard(
                local.name, port.peer, local.config.guard, setup.bottom.width, penalised
            )
        self._ahead = ReadAhead(setup.gather)

    def take(self, order: StepOrder, next_rows: Tensor | None) -> Generator[Port, Message, None]:
        """Train on a batch.

        Args:
            order: The step.
            next_rows: Row numbers of the next batch of the epoch, if there is one.
        """
        if not order.rows.shape[0]:
            yield from self._empty_step(order)
        else:
            yield from self._train_step(order, next_rows)

    def warm_up(self, order: StepOrder, _next_rows: Tensor | None) -> Generator[Port, Message, None]:
        """Send no embedding, and store the gradients at zeros, which the active party uses for every row of a batch."""
        if self.warmup_gradients is None:
            self.warmup_gradients = no_gradients(self.setup.store.rows, self.setup.bottom.width)
        zeros = torch.zeros(len(order.rows), self.setup.bottom.width)
        gradient = yield from self._gradient(order, rows_digest(order.rows), self.setup.bottom.width)
        self.warmup_gradients[order.rows] = gradient.cpu()
        if order.record:
            self._record(order, zeros, self.warmup_gradients[order.rows], {})

    def _empty_step(self, order: StepOrder) -> Generator[Port, Message, None]:
        """A batch in which this party has no row: messages of no rows keep both parties at the same step."""
        view, digest = self.setup.training_view(order), rows_digest(order.rows)
        self._send(order, digest, self.state.chain.embedding_out(torch.zeros(0, self.setup.bottom.width), view))
        yield from self._gradient(order, digest, self.setup.bottom.width)

    def _train_step(self, order: StepOrder, next_rows: Tensor | None) -> Generator[Port, Message, None]:
        columns, digest = self._ahead.take(order.rows), rows_digest(order.rows)
        taps = self.setup.bottom if self.local.records_layers(self.sampling, order.epoch, order.step) else None
        with collect_layer_outputs(taps, LAYER_ROWS) as layers:
            embedding: Tensor = self.setup.bottom(*columns)
        self.setup.check_own(embedding, order.epoch, order.step, self.local.readings)
        view = self.setup.training_view(order)
        if self.local.tampering is not None:
            embedding = self.local.tampering.embedding(order.epoch, order.rows, embedding)
        released = self.state.chain.embedding_out(embedding, view)
        crossed = self._send(order, digest, released)
        self._ahead.read(next_rows)  # while the active party computes
        if self.state.optimizer is not None:
            self.state.optimizer.zero_grad()
            self.state.sent["local_loss"] += 1
            self.state.sent["update"] += 1
        gradient = yield from self._gradient(order, digest, embedding.shape[1])
        if self.guard is not None:
            self.guard.add(order.epoch, order.step, gradient, released, partial(self.setup.columns, view.rows))
        self._learn(embedding, replace(view, embedding=released, gradient=gradient))
        if self.state.optimizer is not None:
            self.state.optimizer.step()
        if order.record:
            self._record(order, crossed, gradient, layers)

    def _record(self, order: StepOrder, sent: Tensor, gradient: Tensor, layers: Mapping[str, Tensor]) -> None:
        first = {name: output[:LAYER_ROWS] for name, output in layers.items()}
        mine = self.local.name
        self.transcript.add(Step(order.epoch, order.step, order.rows, {mine: sent}, {mine: gradient}, first))

    def _send(self, order: StepOrder, digest: bytes, released: Tensor) -> Tensor:
        """Send what the protections released of a batch; returns what crossed."""
        message = self.port.send(
            Kind.EMBEDDING, epoch=order.epoch, step=order.step, rows=digest, tensors={"embedding": released}
        )
        return message.tensors["embedding"]

    def _gradient(self, order: StepOrder, digest: bytes, width: int) -> Generator[Port, Message, Tensor]:
        """The gradient that the active party returns for a batch."""
        shape, limit = (len(order.rows), width), self.local.config.limits.gradient_norm
        gradient = yield from receive_gradient(self.port, order, digest, shape, limit, self.local.readings)
        return self.local.placed(gradient)

    def _learn(self, embedding: Tensor, view: PassiveView) -> None:
        """Backward pass from the gradient that came back and this party's own loss terms."""
        if self.state.optimizer is None or view.embedding is None or view.gradient is None:
            return
        extra = self.state.chain.local_loss(view)
        if self.state.chain.updates:
            self._update(embedding, view.embedding, extra, view)
        else:
            backward_from((view.embedding, view.gradient), (extra, None))

    def _update(self, embedding: Tensor, released: Tensor, extra: Tensor | None, view: PassiveView) -> None:
        """Let a protection set the gradients, from the gradient of the unprotected embedding."""
        if extra is not None:
            wanted = f"no loss term of {self.local.name}'s own together with a protection of its update"
            raise ConfigError.expected(wanted, "one", "terms over several rows have no row's gradient; leave one out")
        (upstream,) = torch.autograd.grad(released, embedding, view.gradient)
        self.state.chain.update(Update(self.setup.bottom, self.setup.gather(view.rows), upstream), view)
