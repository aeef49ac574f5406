"""A passive party: features and a bottom model. Read `run` top to bottom: it is the protocol."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.transcript import LAYER_ROWS, Step, Transcript
from cutlayer.config import Job
from cutlayer.data.batches import Schedule, evaluation_batches, micro_batches, with_next
from cutlayer.errors import ConfigError, DataError, ProtocolError
from cutlayer.kernels.one_hot import one_hot_columns
from cutlayer.models import BottomModel, build_bottom, tapped
from cutlayer.models.fitting import Columns, fit_bottom, no_gradients
from cutlayer.parties.checkpoint import START, Checkpoints, Point, State
from cutlayer.parties.evidence import evidence_text
from cutlayer.parties.groups import BatchColumns, ReadAhead, check_bottom, groups_of, joined, joined_by_name, parts_of
from cutlayer.parties.handshake import Saved, agree_order_passive, agree_passive
from cutlayer.parties.lanes import PassiveLanes
from cutlayer.parties.leading import PassiveLead, needs_of, share_start
from cutlayer.parties.local import EVALUATION_ROWS, HELD_OUT, Local, compress_links, context_of
from cutlayer.parties.messages import DONE, check_present, receive
from cutlayer.parties.numbers import check_own, check_received, check_weights
from cutlayer.parties.outcome import PassiveOutcome
from cutlayer.parties.release import release_batches
from cutlayer.parties.split import split_at_passive
from cutlayer.parties.state import PartyState, part_of, with_part
from cutlayer.parties.stopping import may_stop
from cutlayer.parties.team import Order
from cutlayer.protections.base import Mode, PassiveView, Update


class PassiveParty:
    """Sends embeddings of its rows and trains on the gradients that come back.

    Args:
        job: The shared job.
        local: This party's own table, protections and folder.
        port: Port to the active party.
    """

    def __init__(self, job: Job, local: Local, port: Port) -> None:
        self.job, self.local, self.port = job, local, port
        compress_links(job, local, [port])
        self.releases_once = job.train.releases_once(local.name)
        self.warmup_epochs = job.train.warmup_epochs if self.releases_once else 0
        self.released: Tensor | None = None  # embeddings of the single release, by row
        self.warmup_gradients: Tensor | None = None  # gradients received before it, by row
        self.fit_losses: tuple[float, ...] = ()
        self.next_rows: Tensor | None = None  # batch after the current one, within the epoch
        self.checkpoints = Checkpoints(local.folder / "checkpoint" / local.name, local.name, job.digest())

    def run(self) -> Generator[Port, Message, PassiveOutcome]:
        """Follow the schedule to its end.

        Raises:
            ProtocolError: the active party is at another point of the schedule, or holds other rows.
            NotApplied: a protection of this party missed a message.
        """
        epoch, step = yield from self._prepare()
        lanes = self._meet_workers()
        while not self.stopped:
            self._check_epoch(epoch)
            if not self.releases_once or epoch < self.warmup_epochs:
                yield from self._train_epoch(epoch, step)
            step = 0
            end = yield from self._answer_until(Kind.EPOCH_END, epoch)
            self._check_end(end)
            # On disk before it is reported: the active party commits only epochs that every party can resume after.
            self._save(epoch, end)
            self.port.send(Kind.COMMITTED, epoch=epoch)
            epoch += 1
            if self.releases_once and epoch == self.warmup_epochs:
                self._release_once()
        if lanes is not None:
            lanes.team.lead(None)
        if self.job.keeps_best:
            self.state.load_weights(self.checkpoints.load_best(self.best_epoch))
        yield from self._answer_until(Kind.CLOSE, -1)
        outcome = self._finish(epoch)
        # After the last message: the account of a run that dies before it stays open, and later runs count it.
        self.state.chain.close_account()
        return outcome

    def steps(self) -> Sequence[Step]:
        """Sampled steps of the epoch under way: this party's view, for an audit in the same process."""
        return self.transcript.steps

    def embed(self, rows: Tensor) -> Tensor:
        """Embeddings of rows by the current weights, without protections: what this party can compute at any time.

        Args:
            rows: Row numbers of the common order, int64 (n,).

        Returns:
            float32 (n, width); feature maps are flattened.
        """
        training = self.bottom.training
        self.bottom.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            embedded = torch.cat([self._embed(part).flatten(1) for part in torch.split(rows, EVALUATION_ROWS)])
        self.bottom.train(training)
        return embedded

    def _prepare(self) -> Generator[Port, Message, Point]:
        job, local = self.job, self.local
        saved, forget = self._saved() if local.resume else Saved(), local.forget_peer_progress
        agreement = yield from agree_passive(
            job, local.table, self.port, saved, local.limits, local.alignment, forget=forget
        )
        self.split = yield from split_at_passive(job, local, self.port, len(agreement.positions))
        size = job.train.rows_per_step(len(self.split.train))
        self.schedule = Schedule(self.split.train, size, job.train.seed, job.train.shuffle)
        prepared = local.table.prepare(agreement.positions, self.split.train, local.data / local.name)
        if prepared.store is None:
            raise DataError(f"{local.name} has no feature columns; a passive party needs at least one")
        self.store = prepared.store
        self.inputs = self.store.columns.inputs
        bottom: BottomModel = build_bottom(job.model.bottom_of(local.name), self.inputs, f"model.bottom ({local.name})")
        # Before the first message about features: all protections assume that rows do not affect each other.
        local.chain.check_bottom(bottom, self.inputs)
        if not self.whole or local.team is not None:
            check_bottom(bottom, self.inputs, job.train)
        self.ahead = ReadAhead(self.store.gather)
        self.bottom = bottom
        self.state = PartyState(
            {"bottom": bottom},
            job.train.optimizer,
            local.chain,
            prepared.order_digest,
            [self.port],
            local.wrap,
            local.charge_run(prepared.digests),
        )
        yield from agree_order_passive(self.port, prepared.digests, bottom.width)
        self._set_up_chain(prepared.order_digest)
        self.sampling = local.sampling(job, self.schedule)
        self.transcript = Transcript(local.transcript, self.sampling)
        self.stopped, self.best_epoch = False, -1
        if (point := saved.at(agreement.start)) != START:
            # After the chain is set up: this restores the state of its protections, and the random state.
            saved_state = self.checkpoints.load_at(point)
            self.state.load(saved_state)
            self.stopped, self.best_epoch = bool(saved_state[1]["stop"]), int(saved_state[1]["best_epoch"])
            self.warmup_gradients = saved_state[0].get("warmup_gradients")
            if "transcript" in saved_state[1]:
                self.transcript.load(*part_of(saved_state, "transcript"))
        if local.resume and forget:
            self.state.chain.allow_repeats(agreement.start[0])
        if self.releases_once and agreement.start[0] >= self.warmup_epochs:
            self._release_once()
        return agreement.start

    def _saved(self) -> Saved:
        """The points at which this party can go on."""
        whole, every = self.checkpoints.whole(), sorted(self.checkpoints.points())
        # All but the last two are removed: a single one is the first, and the point before it is the start.
        before = next((point for point in reversed(every) if whole and point < whole[-1]), START)
        if whole and before == START and len(every) > 1:
            before = whole[-1]
        idle = self.releases_once and self.checkpoints.load_release() is not None
        return Saved(whole, before, self.warmup_epochs if idle else None)

    def _check_epoch(self, epoch: int) -> None:
        """Raise before an epoch that the job does not have, whose cost the ledger does not state.

        Raises:
            ProtocolError: the active party has not stopped.
        """
        epochs = self.job.train.max_epochs
        if epoch >= epochs:
            wanted = f"{self.port.peer} to stop after {epochs} epochs, as train.epochs says"
            raise ProtocolError.expected(wanted, f"a start of epoch {epoch}", "nothing of it was sent")

    def _check_end(self, end: Message) -> None:
        """Raise at an end that the job does not allow: it would close an account, which later runs then do not count.

        Raises:
            ProtocolError: the active party stops before the last epoch and before early stopping can.
        """
        epoch = end.epoch
        if end.fields["stop"] and not may_stop(epoch, self.job):
            wanted = f"{self.port.peer} to go on to epoch {epoch + 1}, as train.epochs and train.early_stop say"
            raise ProtocolError.expected(wanted, f"an end after epoch {epoch}")

    def _set_up_chain(self, rows: bytes) -> None:
        local = self.local
        context = context_of(
            self.job,
            local.name,
            {local.name: self.bottom.width},
            self.split.part("train"),
            local.secret,
            local.noise_key,
        )
        local.chain.setup(context, local.release_log(self.job, rows))

    def _release_once(self) -> None:
        """Fix the bottom model and draw every row's release; after an interruption, restore both.

        All is on disk before anything is sent, so that no row can ever be released with other noise.
        """
        stored = self.checkpoints.load_release() if self.local.resume else None
        if stored:
            self.state.load(stored)
            self.released, self.fit_losses = stored[0]["released"], tuple(stored[1]["fit_losses"])
            return
        columns = Columns(self.inputs, self.split.part("train"), self.store.gather, self.warmup_gradients)
        where = f"parties.{self.local.name}.fit"
        self.fit_losses = fit_bottom(self.job.parties[self.local.name].fit, self.bottom, columns, where)
        self.released = torch.empty(self.store.rows, self.bottom.width)
        for number, (part, rows) in enumerate(release_batches(self.split, self.bottom.width)):
            mode = Mode.EVALUATE if part in HELD_OUT else Mode.TRAIN
            self.released[rows] = self._protected(PassiveView(mode, -1, number, rows, self._embed, part=part))
            self.state.sent[Kind.RELEASE.value] += 1
        tensors, plain = self.state.snapshot()
        tensors["released"] = self.released
        self.checkpoints.save_release((tensors, {**plain, "fit_losses": list(self.fit_losses)}))

    def _warmup_step(self, epoch: int, step: int, rows: Tensor) -> Generator[Port, Message, None]:
        """Send no embedding, and store the gradients at zeros, which the active party uses for every row."""
        if self.warmup_gradients is None:
            self.warmup_gradients = no_gradients(self.store.rows, self.bottom.width)
        zeros = torch.zeros(len(rows), self.bottom.width)
        parts = micro_batches(rows, self.job.train.micro_batches)
        self.warmup_gradients[rows] = yield from self._gradient(epoch, step, parts, self.bottom.width)
        if self.local.records(self.sampling, step):
            mine = self.local.name
            self.transcript.add(Step(epoch, step, rows, {mine: zeros}, {mine: self.warmup_gradients[rows]}, {}))

    def _protected(self, view: PassiveView) -> Tensor:
        """The release of a batch for which no gradient comes back."""
        with torch.no_grad():
            embedding = self._embed(view.rows)
            self._check_own(embedding, view.epoch, view.step)
            return self.state.chain.embedding_out(embedding, view)

    @property
    def whole(self) -> bool:
        """Whether a step is computed on the whole batch, although its messages may cross in parts."""
        return self.local.chain.acts_at("embedding_out", "local_loss", "update")

    def _train_epoch(self, epoch: int, begin: int) -> Generator[Port, Message, None]:
        """The steps of an epoch from one on."""
        self.bottom.train()
        steps, batches = self.schedule.steps_per_epoch, with_next(self.schedule.epoch(epoch, self.store.read_ahead))
        for step, (rows, self.next_rows) in islice(enumerate(batches), begin, None):
            if self.releases_once:
                yield from self._warmup_step(epoch, step, rows)
            elif self.lanes is not None:
                record = self.local.records(self.sampling, step)
                yield from self._team_step(self.lanes, Order(epoch, step, epoch * steps + step, rows, record))
            else:
                yield from self._train_step(epoch, step, epoch * steps + step, rows)
            if self.job.train.saves_within(step + 1, steps):
                self._save_within(epoch, step + 1)
                self.port.send(Kind.COMMITTED, epoch=epoch, step=step + 1)

    def _meet_workers(self) -> PassiveLanes | None:
        """Give the other workers of this party what they start from; `None` if there are none."""
        self.lanes: PassiveLanes | None = None
        team, local, state = self.local.team, self.local, self.state
        if team is None:
            return None
        needs = needs_of(local)
        share_start(team, local, state, needs, {})
        self.lead = PassiveLead(state, team.size, self._embed, self._columns)
        self.lanes = PassiveLanes(
            self.port,
            self.bottom,
            self.store,
            team=team,
            name=local.name,
            optimizer=state.optimizer,
            limits=local.limits,
            needs=needs,
        )
        return self.lanes

    def _team_step(self, lanes: PassiveLanes, order: Order) -> Generator[Port, Message, None]:
        """A step that all workers of this party take together."""
        self.state.charge()
        lanes.team.lead(order)
        crossed = yield from lanes.step(order, self.lead)
        if order.record:
            self.transcript.add(Step(order.epoch, order.step, order.rows, crossed.embeddings, crossed.gradients, {}))

    def _train_step(self, epoch: int, step: int, count: int, rows: Tensor) -> Generator[Port, Message, None]:
        number, whole = self.job.train.micro_batches, self.whole
        groups, codes, numbers = (groups_of(each, number, whole=whole) for each in (rows, *self.ahead.take(rows)))
        sent = []
        for group, columns in zip(groups, zip(codes, numbers, strict=True), strict=True):
            parts = parts_of(group, number, whole=whole)
            sent.append((parts, *self._send_group(epoch, step, count, parts, columns)))
        self.ahead.read(self.next_rows)  # while the active party computes
        self._begin_update()
        gradients = []
        for parts, embedding, view, *_ in sent:
            gradients.append((yield from self._gradient(epoch, step, parts, embedding.shape[1])))
            self._learn(embedding, replace(view, gradient=gradients[-1]))
        self._finish_update()
        if self.local.records(self.sampling, step):
            released = joined([crossed for *_, crossed, _ in sent])
            layers = joined_by_name([outputs for *_, outputs in sent])
            first = {name: output[:LAYER_ROWS] for name, output in layers.items()}
            mine = self.local.name
            self.transcript.add(Step(epoch, step, rows, {mine: released}, {mine: joined(gradients)}, first))

    def _send_group(
        self, epoch: int, step: int, count: int, parts: Sequence[Tensor], columns: BatchColumns
    ) -> tuple[Tensor, PassiveView, Tensor, Mapping[str, Tensor]]:
        """Embed some rows of a step, and send them in a message for each part.

        Returns:
            Their embedding, the view with what was released of it, what crossed of that, and the outputs of the layers.
        """
        with tapped(self.bottom if self.local.records_layers(self.sampling, step) else None, LAYER_ROWS) as layers:
            embedding: Tensor = self.bottom(*columns)
        self._check_own(embedding, epoch, step)
        rows, number = joined(parts), len(parts)
        view = PassiveView(
            Mode.TRAIN, epoch, count, rows, self._embed, inputs=self._columns, part="train", parts=number
        )
        released = self.state.chain.embedding_out(embedding, view)
        crossed = [
            self.port.send(Kind.EMBEDDING, epoch=epoch, step=step, rows=rows_digest(part), tensors={"embedding": each})
            for part, each in zip(parts, micro_batches(released, number), strict=True)
        ]
        sent = joined([message.tensors["embedding"] for message in crossed])
        return embedding, replace(view, embedding=released), sent, layers

    def _gradient(self, epoch: int, step: int, parts: Sequence[Tensor], width: int) -> Generator[Port, Message, Tensor]:
        """The gradient that the active party returns for some rows, in a message for each part.

        Raises:
            ProtocolError: its shape is not the embedding's, it is not finite, or a row exceeds this party's limit.
        """
        gradients = []
        for part in parts:
            answer = yield from receive(self.port, Kind.GRADIENT, epoch, step, rows_digest(part))
            gradient, wanted = answer.tensors["gradient"], (len(part), width)
            if gradient.shape != wanted:
                raise ProtocolError.expected(f"a gradient of shape {wanted}", tuple(gradient.shape))
            check_received(answer, self.local.limits.gradient_norm, "limits.gradient_norm")
            gradients.append(gradient)
        return joined(gradients)

    def _check_own(self, embedding: Tensor, epoch: int, step: int) -> None:
        """Stop if this party's own embeddings diverge, before a protection hides it."""
        what = f"embedding of epoch {epoch}, step {step}"
        check_own(embedding, self.local.limits.embedding_norm, self.local.name, what)

    def _begin_update(self) -> None:
        if self.state.optimizer is not None:
            self.state.optimizer.zero_grad()
            self.state.sent["local_loss"] += 1
            self.state.sent["update"] += 1

    def _finish_update(self) -> None:
        if self.state.optimizer is not None:
            self.state.optimizer.step()

    def _learn(self, embedding: Tensor, view: PassiveView) -> None:
        """Backward pass from the gradient that came back and this party's own loss terms."""
        if self.state.optimizer is None or view.embedding is None:
            return
        extra = self.state.chain.local_loss(view)
        if self.state.chain.updates:
            self._update(embedding, view.embedding, extra, view)
        elif extra is None:
            torch.autograd.backward([view.embedding], [view.gradient])
        else:
            torch.autograd.backward([view.embedding, extra], [view.gradient, None])

    def _update(self, embedding: Tensor, released: Tensor, extra: Tensor | None, view: PassiveView) -> None:
        """Let a protection set the gradients, from the gradient of the unprotected embedding."""
        if extra is not None:
            wanted = f"no loss term of {self.local.name}'s own together with a protection of its update"
            raise ConfigError.expected(wanted, "one", "terms over several rows have no row's gradient; leave one out")
        (upstream,) = torch.autograd.grad(released, embedding, view.gradient)
        self.state.chain.update(Update(self.bottom, self.store.gather(view.rows), upstream), view)

    def _save(self, epoch: int, end: Message) -> None:
        """Write this party's part of the checkpoint: its state, the best epoch, and whether this was the last one."""
        self.stopped = bool(end.fields["stop"])
        self.best_epoch = epoch if end.fields["best"] else self.best_epoch
        self.checkpoints.save(epoch, self._snapshot(epoch), best=bool(end.fields["best"]))
        self.transcript.close(epoch)

    def _save_within(self, epoch: int, done: int) -> None:
        """Write this party's part of a checkpoint within an epoch, with what was recorded of it."""
        state = with_part(self._snapshot(epoch), "transcript", *self.transcript.snapshot())
        self.checkpoints.save(epoch, state, best=False, step=done)

    def _snapshot(self, epoch: int) -> State:
        tensors, plain = self.state.snapshot()
        check_weights(tensors, self.local.name, epoch)
        if self.warmup_gradients is not None and self.released is None:
            tensors["warmup_gradients"] = self.warmup_gradients
        return tensors, plain | {"stop": self.stopped, "best_epoch": self.best_epoch}

    def _answer_until(self, last: Kind, epoch: int) -> Generator[Port, Message, Message]:
        """Serve requests for held-out rows until a message of kind `last` arrives."""
        self.bottom.eval()
        while True:
            message = yield self.port
            check_present(message)
            if message.kind == last and message.epoch == epoch:
                return message
            if message.kind != Kind.REQUEST:
                raise ProtocolError.expected(f"a request or {last} of epoch {epoch}", message.kind)
            self._answer(message, epoch)

    def _answer(self, request: Message, epoch: int) -> None:
        """Send the batch of held-out rows that this party's own schedule has at this point.

        Noise and account depend on this party's own epoch and batch, so that a repeated request gets the same numbers.

        Raises:
            ProtocolError: the schedule has no such batch at this point.
        """
        if self.released is not None:
            self._answer_again(request, self.released)
            return
        part, number = str(request.fields["part"]), int(request.fields["batch"])
        if part not in HELD_OUT:
            raise ProtocolError.expected(f"a request for {' or '.join(HELD_OUT)} rows", repr(part)[:80])
        wanted, got = (self._evaluated(epoch), epoch, number), (part, request.epoch, request.step)
        if wanted != got:
            named = "a request for {} rows of epoch {}, step {} from " + self.port.peer
            raise ProtocolError.expected(named.format(*wanted), "{} rows of epoch {}, step {}".format(*got))
        batches = evaluation_batches(self.split.part(part), EVALUATION_ROWS)
        if not 0 <= number < len(batches) or rows_digest(batches[number]) != request.rows:
            raise ProtocolError(f"{self.port.peer} asked for batch {number} of {part}, which holds other rows here")
        released = self._protected(PassiveView(Mode.EVALUATE, epoch, number, batches[number], self._embed, part=part))
        self._send_rows(Kind.EVALUATION, request, released)

    def _evaluated(self, epoch: int) -> str:
        """The part of the rows that is evaluated after an epoch, or at the end (-1)."""
        held_out = HELD_OUT if epoch >= 0 else HELD_OUT[::-1]
        return next((part for part in held_out if len(self.split.part(part))), "no")

    def _answer_again(self, request: Message, released: Tensor) -> None:
        """Send rows of the single release; a repeated request gets the same numbers."""
        part, number = str(request.fields["part"]), int(request.fields["batch"])
        batches = [(name, rows_digest(rows), rows) for name, rows in release_batches(self.split, self.bottom.width)]
        if not 0 <= number < len(batches) or (part, request.rows) != batches[number][:2]:
            raise ProtocolError(f"{self.port.peer} asked for release {number} of {part}, which holds other rows here")
        self._send_rows(Kind.RELEASE, request, released[batches[number][2]])

    def _send_rows(self, kind: Kind, request: Message, released: Tensor) -> None:
        self.port.send(kind, epoch=request.epoch, step=request.step, rows=request.rows, tensors={"embedding": released})

    def _embed(self, rows: Tensor) -> Tensor:
        codes, numbers = self.store.gather(rows)
        embedding: Tensor = self.bottom(codes, numbers)
        return embedding

    def _columns(self, rows: Tensor) -> Tensor:
        return one_hot_columns(*self.store.gather(rows), self.inputs.cardinalities)

    def _finish(self, epochs: int) -> PassiveOutcome:
        evidence = tuple(self.state.chain.proof(self.state.sent))
        self.port.send(Kind.EVIDENCE, fields={"json": evidence_text(evidence)})
        self.port.send(Kind.CLOSE, fields={"reason": DONE})
        inputs = self.inputs
        counts = (self.state.parameters, inputs.numbers, len(inputs.cardinalities))
        return PassiveOutcome(evidence, *counts, epochs, self.fit_losses)
