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
from cutlayer.data.batches import micro_batches
from cutlayer.errors import ConfigError, ProtocolError
from cutlayer.kernels.received_gradient import with_gradient
from cutlayer.models import tapped
from cutlayer.models.fitting.gradients import no_gradients
from cutlayer.parties.group_threads import GroupThreads
from cutlayer.parties.groups import BatchColumns, ReadAhead, groups_of, joined, joined_by_name, parts_of
from cutlayer.parties.guard import GradientGuard
from cutlayer.parties.local import Local
from cutlayer.parties.messages import receive
from cutlayer.parties.numbers import check_received
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.team.lanes import PassiveLanes
from cutlayer.parties.team.leading import PassiveLead, needs_of, share_start
from cutlayer.parties.team.team import StepOrder
from cutlayer.protections.views import Mode, PassiveView, Update


class PassiveStep:
    """Takes the training steps of a passive party, alone or with the other workers of the party.

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
        self.releases_once = job.train.releases_once(local.name)
        self.warmup_gradients: Tensor | None = None
        self.lanes: PassiveLanes | None = None
        self.guard: GradientGuard | None = None
        if local.guard is not None and not self.releases_once:
            self.guard = GradientGuard(local.name, port.peer, local.guard, setup.bottom.width)
        self._ahead = ReadAhead(setup.gather)
        self._threads: GroupThreads | None = None
        if not setup.whole and local.team is None and self.state.optimizer is not None:
            self._threads = GroupThreads.of([setup.bottom], job.train, local.device)

    def take(
        self, epoch: int, step: int, global_step: int, rows: Tensor, next_rows: Tensor | None
    ) -> Generator[Port, Message, None]:
        """Train on a batch.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            global_step: Number of the step in the whole run.
            rows: Row numbers of the batch, int64 (n,).
            next_rows: Those of the next batch of the epoch, if there is one.
        """
        if self.releases_once:
            yield from self._warmup_step(epoch, step, rows)
        elif not len(rows):
            yield from self._empty_step(epoch, step, global_step, rows)
        elif self.lanes is not None:
            record = self.local.records(self.sampling, step)
            yield from self._team_step(self.lanes, StepOrder(epoch, step, global_step, rows, record))
        else:
            yield from self._train_step(epoch, step, global_step, rows, next_rows)

    def meet_workers(self) -> None:
        """Give the other workers of this party, if there are any, what they start from."""
        team, local, state = self.local.team, self.local, self.state
        if team is None:
            return
        needs = needs_of(local)
        share_start(team, local, state, needs, {})
        self.lead = PassiveLead(state, team.size, self.setup.embed, self.setup.columns)
        self.lanes = PassiveLanes(
            self.port,
            self.setup.bottom,
            self.setup.store,
            team=team,
            name=local.name,
            optimizer=state.optimizer,
            limits=local.limits,
            needs=needs,
        )

    def dismiss_workers(self) -> None:
        """Tell the other workers of this party, if there are any, that no step follows, and end its own threads."""
        if self.lanes is not None:
            self.lanes.team.lead(None)
        if self._threads is not None:
            self._threads.close()

    def _warmup_step(self, epoch: int, step: int, rows: Tensor) -> Generator[Port, Message, None]:
        """Send no embedding, and store the gradients at zeros, which the active party uses for every row."""
        if self.warmup_gradients is None:
            self.warmup_gradients = no_gradients(self.setup.store.rows, self.setup.bottom.width)
        zeros = torch.zeros(len(rows), self.setup.bottom.width)
        parts = micro_batches(rows, self.job.train.micro_batches)
        digests = [rows_digest(part) for part in parts]
        gradient = yield from self._gradient(epoch, step, parts, digests, self.setup.bottom.width)
        self.warmup_gradients[rows] = gradient.cpu()
        if self.local.records(self.sampling, step):
            mine = self.local.name
            self.transcript.add(Step(epoch, step, rows, {mine: zeros}, {mine: self.warmup_gradients[rows]}, {}))

    def _empty_step(self, epoch: int, step: int, global_step: int, rows: Tensor) -> Generator[Port, Message, None]:
        """A batch in which this party has no row: messages of no rows keep both parties at the same step."""
        view = PassiveView(Mode.TRAIN, epoch, global_step, rows, self.setup.embed, part="train")
        nothing = self.state.chain.embedding_out(torch.zeros(0, self.setup.bottom.width), view)
        digest = rows_digest(rows)
        self.port.send(Kind.EMBEDDING, epoch=epoch, step=step, rows=digest, tensors={"embedding": nothing})
        yield from self._gradient(epoch, step, [rows], [digest], self.setup.bottom.width)

    def _team_step(self, lanes: PassiveLanes, order: StepOrder) -> Generator[Port, Message, None]:
        """A step that all workers of this party take together."""
        self.state.charge()
        lanes.team.lead(order)
        crossed = yield from lanes.step(order, self.lead)
        if order.record:
            self.transcript.add(Step(order.epoch, order.step, order.rows, crossed.embeddings, crossed.gradients, {}))

    def _train_step(
        self, epoch: int, step: int, global_step: int, rows: Tensor, next_rows: Tensor | None
    ) -> Generator[Port, Message, None]:
        number, whole = self.job.train.micro_batches, self.setup.whole
        groups, codes, numbers = (groups_of(part, number, whole=whole) for part in (rows, *self._ahead.take(rows)))
        columns = list(zip(codes, numbers, strict=True))
        computed: Sequence[Future[Tensor] | None] = [None] * len(groups)
        # Taps on the layers collect what any thread computes, so that a step with taps is computed in one.
        if self._threads is not None and not self.local.records_layers(self.sampling, step):
            computed = self._threads.embed(self.setup.bottom, columns)
        sent = []
        for group, group_columns, embedded in zip(groups, columns, computed, strict=True):
            parts = parts_of(group, number, whole=whole)
            digests = [rows_digest(part) for part in parts]
            crossed = self._send_group(epoch, step, global_step, parts, digests, group_columns, embedded)
            sent.append((parts, digests, *crossed))
        self._ahead.read(next_rows)  # while the active party computes
        self._begin_update()
        gradients = []
        for parts, digests, embedding, view, *_ in sent:
            gradients.append((yield from self._gradient(epoch, step, parts, digests, embedding.shape[1])))
            if self.guard is not None and view.embedding is not None:
                self.guard.add(epoch, step, gradients[-1], view.embedding, partial(self.setup.columns, view.rows))
            self._learn(embedding, replace(view, gradient=gradients[-1]))
        self._finish_update()
        if self.local.records(self.sampling, step):
            released = joined([embeddings for *_, embeddings, _ in sent])
            layers = joined_by_name([outputs for *_, outputs in sent])
            first = {name: output[:LAYER_ROWS] for name, output in layers.items()}
            mine = self.local.name
            self.transcript.add(Step(epoch, step, rows, {mine: released}, {mine: joined(gradients)}, first))

    def _send_group(
        self,
        epoch: int,
        step: int,
        global_step: int,
        parts: Sequence[Tensor],
        digests: Sequence[bytes],
        columns: BatchColumns,
        computed: Future[Tensor] | None,
    ) -> tuple[Tensor, PassiveView, Tensor, Mapping[str, Tensor]]:
        """Embed some rows of a step, and send them in a message for each part.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            global_step: Number of the step in the whole run.
            parts: Rows of each message.
            digests: Their digests.
            columns: Columns of all these rows.
            computed: Their embedding, where a thread computes it.

        Returns:
            Their embedding, the view with what was released of it, what crossed of that, and the outputs of the layers.
        """
        taps = self.setup.bottom if self.local.records_layers(self.sampling, step) else None
        with tapped(taps, LAYER_ROWS) as layers:
            embedding: Tensor = self.setup.bottom(*columns) if computed is None else computed.result()
        self.setup.check_own(embedding, epoch, step, self.local.readings)
        rows, number = joined(parts), len(parts)
        view = PassiveView(
            Mode.TRAIN,
            epoch,
            global_step,
            rows,
            self.setup.embed,
            inputs=self.setup.columns,
            part="train",
            parts=number,
        )
        if self.local.tampering is not None:
            embedding = self.local.tampering.embedding(epoch, rows, embedding)
        released = self.state.chain.embedding_out(embedding, view)
        crossed = [
            self.port.send(Kind.EMBEDDING, epoch=epoch, step=step, rows=digest, tensors={"embedding": chunk})
            for digest, chunk in zip(digests, micro_batches(released, number), strict=True)
        ]
        sent = joined([message.tensors["embedding"] for message in crossed])
        return embedding, replace(view, embedding=released), sent, layers

    def _gradient(
        self, epoch: int, step: int, parts: Sequence[Tensor], digests: Sequence[bytes], width: int
    ) -> Generator[Port, Message, Tensor]:
        """The gradient that the active party returns for some rows, in a message for each part.

        Raises:
            ProtocolError: Its shape is not the embedding's, it is not finite, or a row exceeds this party's limit.
        """
        gradients = []
        for part, digest in zip(parts, digests, strict=True):
            answer = yield from receive(self.port, Kind.GRADIENT, epoch, step, digest)
            gradient, wanted = answer.tensors["gradient"], (len(part), width)
            if gradient.shape != wanted:
                raise ProtocolError.expected(f"a gradient of shape {wanted}", tuple(gradient.shape))
            limit, key = self.local.limits.gradient_norm, "limits.gradient_norm"
            check_received(answer, limit, key, self.local.readings)
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
        elif extra is None:
            torch.autograd.backward([with_gradient(view.embedding, view.gradient)])
        else:
            torch.autograd.backward([with_gradient(view.embedding, view.gradient), extra])

    def _update(self, embedding: Tensor, released: Tensor, extra: Tensor | None, view: PassiveView) -> None:
        """Let a protection set the gradients, from the gradient of the unprotected embedding."""
        if extra is not None:
            wanted = f"no loss term of {self.local.name}'s own together with a protection of its update"
            raise ConfigError.expected(wanted, "one", "terms over several rows have no row's gradient; leave one out")
        (upstream,) = torch.autograd.grad(released, embedding, view.gradient)
        self.state.chain.update(Update(self.setup.bottom, self.setup.gather(view.rows), upstream), view)
