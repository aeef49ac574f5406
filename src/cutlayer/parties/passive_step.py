"""A training step of a passive party: the embeddings that leave, and the update by the gradients that come back."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.transcript import LAYER_ROWS, Sampling, Step, Transcript
from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.data.batches import micro_batches
from cutlayer.errors import ConfigError
from cutlayer.kernels.gradients.received_gradient import backward_from
from cutlayer.models import tapped
from cutlayer.models.bottom_fits.gradients import no_gradients
from cutlayer.parties.compute.group_threads import GroupThreads
from cutlayer.parties.compute.groups import BatchColumns, ReadAhead, groups_of, joined, joined_by_name, parts_of
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.guards.guard import GradientGuard
from cutlayer.parties.messages import receive_gradient
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.session.local import Local
from cutlayer.protections.contract.views import PassiveView, Update

Parts = Sequence[tuple[Tensor, bytes]]
"""Rows of each message of a step, and their digest."""


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
        self, job: Job, local: Local, setup: PassiveSetup, port: Port, transcript: Transcript, sampling: Sampling
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
        self._threads: GroupThreads | None = None
        if not setup.whole and self.state.optimizer is not None:
            self._threads = GroupThreads.of([setup.bottom], job.train, local.device)

    def records(self, epoch: int, step: int) -> bool:
        """Whether the messages of a step are recorded."""
        return self.local.records(self.sampling, epoch, step)

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

    def close(self) -> None:
        """End its threads: no step follows."""
        if self._threads is not None:
            self._threads.close()

    def warm_up(self, order: StepOrder, _next_rows: Tensor | None) -> Generator[Port, Message, None]:
        """Send no embedding, and store the gradients at zeros, which the active party uses for every row of a batch."""
        if self.warmup_gradients is None:
            self.warmup_gradients = no_gradients(self.setup.store.rows, self.setup.bottom.width)
        zeros = torch.zeros(len(order.rows), self.setup.bottom.width)
        parts = _digested(micro_batches(order.rows, self.job.train.micro_batches))
        gradient = yield from self._gradient(order, parts, self.setup.bottom.width)
        self.warmup_gradients[order.rows] = gradient.cpu()
        if order.record:
            self._record(order, zeros, self.warmup_gradients[order.rows], {})

    def _empty_step(self, order: StepOrder) -> Generator[Port, Message, None]:
        """A batch in which this party has no row: messages of no rows keep both parties at the same step."""
        view, parts = self.setup.training_view(order, order.rows, 1), _digested([order.rows])
        self._send(order, parts, self.state.chain.embedding_out(torch.zeros(0, self.setup.bottom.width), view))
        yield from self._gradient(order, parts, self.setup.bottom.width)

    def _train_step(self, order: StepOrder, next_rows: Tensor | None) -> Generator[Port, Message, None]:
        epoch, step, rows = order.epoch, order.step, order.rows
        number, whole = self.job.train.micro_batches, self.setup.whole
        groups, codes, numbers = (groups_of(part, number, whole=whole) for part in (rows, *self._ahead.take(rows)))
        columns = list(zip(codes, numbers, strict=True))
        computed: Sequence[Future[Tensor] | None] = [None] * len(groups)
        # Taps on the layers collect what any thread computes, so that a step with taps is computed in one.
        if self._threads is not None and not self.local.records_layers(self.sampling, epoch, step):
            computed = self._threads.embed(self.setup.bottom, columns)
        sent = []
        for group, group_columns, embedded in zip(groups, columns, computed, strict=True):
            parts = _digested(parts_of(group, number, whole=whole))
            sent.append((parts, *self._send_group(order, parts, group_columns, embedded)))
        self._ahead.read(next_rows)  # while the active party computes
        self._begin_update()
        gradients = []
        for parts, embedding, released, view, *_ in sent:
            gradients.append((yield from self._gradient(order, parts, embedding.shape[1])))
            if self.guard is not None:
                self.guard.add(epoch, step, gradients[-1], released, partial(self.setup.columns, view.rows))
            self._learn(embedding, replace(view, embedding=released, gradient=gradients[-1]))
        self._finish_update()
        if order.record:
            crossed = joined([embeddings for *_, embeddings, _ in sent])
            layers = joined_by_name([outputs for *_, outputs in sent])
            self._record(order, crossed, joined(gradients), layers)

    def _record(self, order: StepOrder, sent: Tensor, gradient: Tensor, layers: Mapping[str, Tensor]) -> None:
        first = {name: output[:LAYER_ROWS] for name, output in layers.items()}
        mine = self.local.name
        self.transcript.add(Step(order.epoch, order.step, order.rows, {mine: sent}, {mine: gradient}, first))

    def _send_group(
        self, order: StepOrder, parts: Parts, columns: BatchColumns, computed: Future[Tensor] | None
    ) -> tuple[Tensor, Tensor, PassiveView, Tensor, Mapping[str, Tensor]]:
        """Embed some rows of a step, and send them in a message for each part.

        Args:
            order: The step.
            parts: Rows of each message.
            columns: Columns of all these rows.
            computed: Their embedding, where a thread computes it.

        Returns:
            Their embedding, what was released of it, the view, what crossed, and the outputs of the layers.
        """
        taps = self.setup.bottom if self.local.records_layers(self.sampling, order.epoch, order.step) else None
        with tapped(taps, LAYER_ROWS) as layers:
            embedding: Tensor = self.setup.bottom(*columns) if computed is None else computed.result()
        self.setup.check_own(embedding, order.epoch, order.step, self.local.readings)
        rows = joined([part for part, _ in parts])
        view = self.setup.training_view(order, rows, len(parts))
        if self.local.tampering is not None:
            embedding = self.local.tampering.embedding(order.epoch, rows, embedding)
        released = self.state.chain.embedding_out(embedding, view)
        return embedding, released, view, self._send(order, parts, released), layers

    def _send(self, order: StepOrder, parts: Parts, released: Tensor) -> Tensor:
        """Send what the protections released of some rows, in a message for each part; returns what crossed."""
        crossed = [
            self.port.send(
                Kind.EMBEDDING, epoch=order.epoch, step=order.step, rows=digest, tensors={"embedding": chunk}
            )
            for (_, digest), chunk in zip(parts, micro_batches(released, len(parts)), strict=True)
        ]
        return joined([message.tensors["embedding"] for message in crossed])

    def _gradient(self, order: StepOrder, parts: Parts, width: int) -> Generator[Port, Message, Tensor]:
        """The gradient that the active party returns for some rows, in a message for each part."""
        gradients, limit, readings = [], self.local.config.limits.gradient_norm, self.local.readings
        for part, digest in parts:
            gradient = yield from receive_gradient(self.port, order, digest, (part.shape[0], width), limit, readings)
            gradients.append(self.local.placed(gradient))
        return joined(gradients)

    def _begin_update(self) -> None:
        if self._threads is not None:
            self._threads.begin()
        if self.state.optimizer is not None:
            self.state.optimizer.zero_grad()
            self.state.sent["local_loss"] += 1
            self.state.sent["update"] += 1

    def _finish_update(self) -> None:
        if self._threads is not None:
            self._threads.collect()
        if self.state.optimizer is not None:
            self.state.optimizer.step()

    def _learn(self, embedding: Tensor, view: PassiveView) -> None:
        """Backward pass from the gradient that came back and this party's own loss terms."""
        if self.state.optimizer is None or view.embedding is None or view.gradient is None:
            return
        if self._threads is not None:
            self._threads.learn(view.embedding, view.gradient)
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


def _digested(parts: Sequence[Tensor]) -> Parts:
    return [(part, rows_digest(part)) for part in parts]
