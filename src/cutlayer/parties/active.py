"""The active party: labels, the top model, and the schedule. Read `run` top to bottom: it is the protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.transcript import LAYER_ROWS, Step, Transcript
from cutlayer.config import Job
from cutlayer.data.batches import Schedule, evaluation_batches, micro_batches
from cutlayer.data.prepared import Prepared
from cutlayer.errors import CheckpointError, ConfigError, DataError, PeerLost
from cutlayer.kernels.packed_rows import row_bytes
from cutlayer.models import Inputs, TopModel, build_bottom, build_top, tapped
from cutlayer.models.absence import Names, absent_sets
from cutlayer.parties.checkpoint import START, Checkpoints, Point, State
from cutlayer.parties.evidence import stated_evidence
from cutlayer.parties.groups import check_bottom, check_top, groups_of, joined, joined_by_name, parts_of
from cutlayer.parties.handshake import agree_active, agree_order_active
from cutlayer.parties.lanes import ActiveLanes, ActiveModel, Labels
from cutlayer.parties.leading import ActiveLead, SharedLabels, counted, needs_of, share_start
from cutlayer.parties.local import EVALUATION_ROWS, Local, compress_links, context_of
from cutlayer.parties.messages import DONE, checked_embedding, receive
from cutlayer.parties.numbers import check_loss, check_own, check_weights
from cutlayer.parties.observer import EpochRecord, Observer
from cutlayer.parties.outcome import ActiveOutcome
from cutlayer.parties.presence import Presence
from cutlayer.parties.release import ask_for_release
from cutlayer.parties.split import split_at_active
from cutlayer.parties.state import PartyState, part_of, with_part
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.parties.team import Order
from cutlayer.parties.usage import Usage
from cutlayer.protections.base import ActiveView, Evidence, Mode
from cutlayer.tasks import Task


class ActiveParty:
    """Receives embeddings, trains the top model and returns the cut gradients.

    Args:
        job: The shared job.
        local: This party's own table, labels, protections and folder.
        ports: Ports to the passive parties, by name, in the job's order.
        observer: Called at every stage of the run; it gets no data of another party.
    """

    def __init__(self, job: Job, local: Local, ports: Mapping[str, Port], observer: Observer) -> None:
        self.job, self.local, self.ports, self.observer = job, local, ports, observer
        # Parties that send an embedding in every step; all others release each row once.
        self.streaming_ports = {name: port for name, port in ports.items() if not job.train.releases_once(name)}
        # Parties that receive gradients: all of them at first, and the streaming ones after the single releases.
        self.gradient_ports = dict(ports)
        self.presence = Presence(job, ports, self._go_on_without)
        self.usage = Usage(ports)
        compress_links(job, local, ports.values())
        self.checkpoints = Checkpoints(local.folder / "checkpoint" / local.name, local.name, job.digest())

    def run(self) -> Generator[Port, Message, ActiveOutcome]:
        """Lead the run to its end.

        Raises:
            ProtocolError: a passive party is at another point of the schedule, or holds other rows.
            NotApplied: a protection of this party missed a message.
        """
        epoch, step = yield from self._prepare()
        lanes = self._meet_workers()
        self.presence.now, self.presence.needs_one = (epoch, step), self.store is None
        while not self.stopping.stop:
            began = time.perf_counter()
            if not step:
                self.usage.begin_epoch()
            loss = yield from self._train_epoch(epoch, step)
            step = 0
            seconds = time.perf_counter() - began
            estimates = self.state.chain.epoch_metrics()
            metrics, _ = yield from self._evaluate(self.part, epoch)
            best = self._is_best(metrics, epoch)
            # All parties save, then the history gets its line, then the epoch is committed. A crash in between repeats
            # the epoch from the previous commit, which every party still has.
            yield from self._save(epoch, best)
            leak = self.observer.leaks(epoch, self.transcript.steps)
            self.transcript.close(epoch)
            if self.follower is not None and self.follower.close(epoch):
                self.observer.followed(epoch, self.follower.rows)
            rate = len(self.split.train) / seconds
            record = EpochRecord(epoch, loss, self.part, metrics, seconds, rate, best, leak, estimates)
            traffic, left = self.usage.of_epoch(), tuple(self.presence.left)
            self.observer.ended(replace(record, bytes=traffic, left=left))
            self._commit(epoch)
            epoch += 1
            if epoch == self.job.train.warmup_epochs:
                yield from self._collect_releases()
        if lanes is not None:
            lanes.team.lead(None)
        if self.job.keeps_best:
            self.state.load_weights(self.checkpoints.load_best(self.stopping.best_epoch))
        part = self._reported
        metrics, logits = yield from self._evaluate(part, -1, self._absent_sets())
        evidence = yield from self._finish()
        # After the last message: the account of a run that dies before it stays open, and later runs count it.
        self.state.chain.close_account()
        return self._outcome(epoch, part, metrics, logits, evidence)

    def _prepare(self) -> Generator[Port, Message, Point]:
        job, local = self.job, self.local
        commits = self.checkpoints.resumable() if local.resume else {}
        agreement = yield from agree_active(
            job, local.table, local.name, self.ports, [*commits], local.limits, local.alignment
        )
        start = agreement.start
        epoch = start[0]
        self._check_nobody_left(commits, epoch)
        self.loss = 0.0  # sum over the rows of the current epoch so far
        self.peer_rows = agreement.peer_rows
        self.split = split_at_active(job, local, agreement.positions, self.ports.values())
        size = job.train.rows_per_step(len(self.split.train))
        if len(self.split.train) < size:
            wanted = f"at least one batch of {size} training rows"
            raise DataError.expected(wanted, len(self.split.train), "lower batch_size")
        self.part = "validation" if len(self.split.validation) else "test"
        self.schedule = Schedule(self.split.train, size, job.train.seed, job.train.shuffle)
        # Before the table is released from memory, which `prepare` does.
        self.reported_ids = local.table.ids(agreement.positions[self.split.part(self._reported).numpy()])
        prepared = local.table.prepare(agreement.positions, self.split.train, local.data / local.name)
        widths = yield from agree_order_active(job, self.ports, prepared.digests)
        # After the orders were compared: labels are drawn and parameters initialised for the common rows only.
        self._build(prepared, widths)
        self._protect_labels(prepared)
        # Zeros until the single releases arrive, which are then reused in every epoch.
        released = [name for name in self.ports if name not in self.streaming_ports]
        self.released_embeddings = {name: torch.zeros(len(self.truth), self.widths[name]) for name in released}
        if epoch >= job.train.warmup_epochs:
            yield from self._collect_releases()
        self.sampling = local.sampling(job, self.schedule)
        self.transcript = Transcript(local.transcript, self.sampling)
        self.follower = local.follower(self.split.part("train"), self.sampling)
        self.stopping = EarlyStopping()
        if local.resume and local.forget_peer_progress:
            self.state.chain.allow_repeats(epoch)
        if start != START:
            # Last, since it sets the random state: the draws above must not affect the draws of the next step.
            self._load(self.checkpoints.load_at(start), start)
            self.stopping = EarlyStopping.from_json(commits[start])
            self.usage.add_earlier(commits[start]["usage"])
        self.observer.started(self.task, self.truth, self.split.part("train"), job.train.max_epochs, epoch)
        return start

    def _check_nobody_left(self, commits: Mapping[Point, Mapping[str, Any]], epoch: int) -> None:
        """Refuse to repeat an epoch with a party that it was committed without: its best weights replaced the earlier.

        Raises:
            CheckpointError: a later commit lacks a party, and the run ends with its best epoch.
        """
        later = [commit["left"] for point, commit in commits.items() if point[0] > epoch and commit["left"]]
        if later and self.job.keeps_best:
            wanted = f"a checkpoint of the end of epoch {epoch} with every party"
            got = f"one without {', '.join(later[0])}, which was lost"
            raise CheckpointError.expected(wanted, got, "restore copies of all run folders from before, or start again")

    def _load(self, state: State, start: Point) -> None:
        """Continue from a checkpoint; within an epoch also from what was recorded of it."""
        self.state.load(state)
        if start[1]:
            self.loss = float(state[1]["loss"])
            self.transcript.load(*part_of(state, "transcript"))
            if self.follower is not None:
                self.follower.load(start[0], part_of(state, "followed")[0])

    def _collect_releases(self) -> Generator[Port, Message, None]:
        """Receive the rows of the parties that release once, unless an interrupted run already has.

        From then on these parties receive no gradients.
        """
        self.gradient_ports = self.streaming_ports
        stored = self.checkpoints.load_release() if self.local.resume else None
        if stored:
            self.state.check_rows(stored[1]["rows"])
            self.released_embeddings = dict(stored[0])
        elif self.released_embeddings:
            for name in [name for name in self.released_embeddings if name not in self.presence.left]:
                port, limit = self.ports[name], self.local.limits.embedding_norm
                try:
                    released = yield from ask_for_release(port, self.split, self.widths[name], limit)
                except PeerLost as lost:
                    self.presence.leave(name, lost)
                else:
                    self.released_embeddings[name] = released
            self.checkpoints.save_release((self.released_embeddings, {"rows": self.state.rows}))

    def _go_on_without(self, name: str) -> None:
        """Train on without a party, as if `party_dropout` dropped it in every step.

        Epochs with the party are no longer the best: their metrics are those of a model that has it.
        """
        self.gradient_ports = {peer: port for peer, port in self.gradient_ports.items() if peer != name}
        self.streaming_ports = {peer: port for peer, port in self.streaming_ports.items() if peer != name}
        self.released_embeddings.pop(name, None)
        self.stopping.best, self.stopping.stale = -math.inf, 0

    def _is_best(self, metrics: Mapping[str, float], epoch: int) -> bool:
        """Whether an epoch is the best so far; none before the single releases, whose embeddings were zeros."""
        if epoch < self.job.train.warmup_epochs:
            return False
        return self.stopping.update(metrics, self.task.metric, epoch, self.job)

    @property
    def whole(self) -> bool:
        """Whether a step is computed on the whole batch, although its messages may cross in parts."""
        return self.local.chain.acts_at("embeddings_in", "cut_gradient", "gradient_out")

    def _build(self, prepared: Prepared, widths: Mapping[str, int]) -> None:
        if prepared.labels is None:
            raise DataError(f"{self.local.name} is the active party and needs a label column")
        name, model = self.local.name, self.job.model
        self.weights = prepared.weights
        self.truth, self.label_kind = prepared.labels.values, prepared.labels.kind
        self.task = Task.fitted(self.job.task, prepared.labels.classes, self.truth[self.split.part("train")])
        self.store = prepared.store
        self.inputs = self.store.columns.inputs if self.store else Inputs()
        modules: dict[str, nn.Module] = {}
        if self.store is not None:
            bottom = build_bottom(model.bottom_of(name), self.inputs, f"model.bottom ({name})")
            modules["bottom"], widths = bottom, {**widths, name: bottom.width}
            if not self.whole or self.local.team is not None:
                check_bottom(bottom, self.inputs, self.job.train)
        self.widths = {party: widths[party] for party in self.job.parties if party in widths}
        self.top: TopModel = build_top(model.top, self.widths, self.task.outputs, may_leave=self.job.passives)
        modules["top"] = self.top
        if not self.whole or self.local.team is not None:
            check_top(self.top, self.job.train)
        order = prepared.order_digest
        charge = self.local.charge_run(prepared.digests, lambda: self.draws)
        self.state = PartyState(
            modules, self.job.train.optimizer, self.local.chain, order, self.ports.values(), before_release=charge
        )
        if self.state.optimizer is None:
            raise ConfigError("model.top has no parameters to train; use a kind that has some")
        self.optimizer = self.state.optimizer

    def _protect_labels(self, prepared: Prepared) -> None:
        """Draw the protected training labels; from here on, training uses only these."""
        train, local = self.split.part("train"), self.local
        context = context_of(
            self.job,
            local.name,
            {name: self.widths[name] for name in self.ports},
            train,
            local.secret,
            local.noise_key,
            task=self.task,
            label_column=local.label_column,
            # Row numbers are no ids: a digest of the labels is part of them, so any change redraws all labels.
            label_memory=None if local.table.id_kind == "row" else local.label_memory,
        )
        chain, log = self.state.chain, local.release_log(self.job, prepared.order_digest)
        # Twice: the hook `labels` needs its protections set up, and protections such as DIMIP need the labels that it
        # returned. The release log is opened the second time: an account on disk means that labels were drawn.
        chain.setup(context)
        ids = torch.from_numpy(local.draw_ids(prepared.digests)[self.split.train])
        self.labels = torch.full_like(self.truth, -1)
        self.labels[train] = chain.labels(self.truth[train], ids)
        chain.setup(replace(context, labels=self.labels), log)
        # Apart from `task`, which evaluates on the true labels of held-out rows.
        self.training_task = replace(self.task, transition=chain.transition)
        if self.job.train.class_weight == "balanced":
            self.training_task = self.training_task.balanced(self.labels[train])
        self.state.sent["labels"] = len(train)
        self.fingerprint = local.draw_fingerprint(chain.draws, prepared.order_digest, self.truth)
        # For all runs: draws that are remembered do not depend on which rows are common.
        self.draws = local.draw_fingerprint(
            chain.draws, prepared.order_digest if None in chain.draws else b"", self.truth
        )

    def _train_epoch(self, epoch: int, begin: int) -> Generator[Port, Message, float]:
        """The steps of an epoch from one on; returns the mean loss of its rows."""
        self.state.modules.train()
        steps, ahead = self.schedule.steps_per_epoch, self.store.read_ahead if self.store else None
        for step, rows in islice(enumerate(self.schedule.epoch(epoch, ahead)), begin, None):
            loss = yield from self._train_step(epoch, step, epoch * steps + step, rows)
            self.loss += loss * len(rows)
            self.stopping.step_losses.append(loss)
            self.observer.stepped(epoch, len(rows), loss)
            if self.job.train.saves_within(step + 1, steps):
                yield from self._save_within(epoch, step + 1)
        total, self.loss = self.loss, 0.0
        return total / len(self.split.train)

    def _save_within(self, epoch: int, done: int) -> Generator[Port, Message, None]:
        """All parties that train in the epoch have written their part after a step; write the own, and commit.

        Nobody sends the next gradient before the commit, so that each party stores what was committed last.
        """
        for name, port in self.gradient_ports.items():
            yield from self.presence.receive(receive(port, Kind.COMMITTED, epoch, done), name)
        snapshot = self.state.snapshot()
        check_weights(snapshot[0], self.local.name, epoch)
        state = with_part(snapshot, "transcript", *self.transcript.snapshot())
        if self.follower is not None:
            state = with_part(state, "followed", self.follower.snapshot(), {})
        state[1]["loss"] = self.loss
        self.checkpoints.save(epoch, state, best=False, step=done)
        self._commit(epoch, done)

    def _train_step(self, epoch: int, step: int, count: int, rows: Tensor) -> Generator[Port, Message, float]:
        self.presence.now = (epoch, step)
        if self.lanes is not None:
            return (yield from self._team_step(self.lanes, epoch, step, count, rows))
        self.optimizer.zero_grad()
        whole, parts = self.whole, self.job.train.micro_batches
        losses, pieces = [], []
        for group in groups_of(rows, parts, whole=whole):
            own = parts_of(group, parts, whole=whole)
            loss, piece = yield from self._train_group(epoch, step, count, own, len(group) / len(rows))
            losses.append(loss)
            pieces.append(piece)
        self.optimizer.step()
        seen, gradients, layers = (joined_by_name(pieces_of) for pieces_of in zip(*pieces, strict=True))
        self._record(epoch, step, rows, seen, gradients, layers)
        return sum(losses)

    def _record(
        self,
        epoch: int,
        step: int,
        rows: Tensor,
        seen: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        layers: Mapping[str, Tensor],
    ) -> None:
        """Add the messages of a step to the transcript, as far as it has them."""
        if self.follower is not None:
            self.follower.add(epoch, step, rows, seen, gradients)
        if self.local.records(self.sampling, step):
            first = {name: output[:LAYER_ROWS] for name, output in layers.items()}
            self.transcript.add(Step(epoch, step, rows, seen, gradients, first))

    def _meet_workers(self) -> ActiveLanes | None:
        """Give the other workers of this party what they start from; `None` if there are none."""
        self.lanes: ActiveLanes | None = None
        team, local, state = self.local.team, self.local, self.state
        if team is None:
            return None
        needs, labels = needs_of(local), Labels(self.labels, self.training_task, self.weights)
        shared = SharedLabels.of(labels)
        plain = {**shared.plain, "widths": self.widths, "features": self.store is not None}
        share_start(team, local, state, needs, shared.tensors, **plain)
        self.lead = ActiveLead(
            state, team.size, self.labels, self._protected_gradients, local.name, local.limits.gradient_norm
        )
        self.lanes = ActiveLanes(
            self.ports,
            ActiveModel(state.modules, local.name, tuple(self.widths)),
            self.store,
            self.widths,
            labels,
            team=team,
            name=local.name,
            optimizer=self.optimizer,
            limits=local.limits,
            needs=needs,
        )
        return self.lanes

    def _team_step(
        self, lanes: ActiveLanes, epoch: int, step: int, count: int, rows: Tensor
    ) -> Generator[Port, Message, float]:
        """A step that all workers of this party take together; returns its loss."""
        record = self.follower is not None or self.local.records(self.sampling, step)
        order = Order(epoch, step, count, rows, record)
        self.state.charge()
        lanes.team.lead(order)
        crossed = yield from lanes.step(order, self.lead)
        for name in self.ports:
            whole, others = counted(order, lanes.team, row_bytes(self.job.channel.compress, self.widths[name]))
            self.usage.count(Kind.EMBEDDING, whole)
            self.usage.count(Kind.GRADIENT, whole)
            self.usage.count_elsewhere(name, Kind.EMBEDDING, received=others)
            self.usage.count_elsewhere(name, Kind.GRADIENT, sent=others)
        self._record(epoch, step, rows, crossed.embeddings, crossed.gradients, {})
        return crossed.loss

    def _train_group(
        self, epoch: int, step: int, count: int, parts: Sequence[Tensor], share: float
    ) -> Generator[Port, Message, tuple[float, Sequence[Mapping[str, Tensor]]]]:
        """Forward and backward pass of some rows of a step, whose gradients are sent.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            count: Number of the step in the whole run.
            parts: Rows of each message that arrives and leaves.
            share: Share of the batch's rows that these are.

        Returns:
            Their part of the batch's loss; and their embeddings, cut gradients and layer outputs, by name.
        """
        rows, digests = joined(parts), [rows_digest(part) for part in parts]
        taps = self.state.modules if self.local.records_layers(self.sampling, step) else None
        with tapped(taps, LAYER_ROWS) as layers:
            own = self._own_embedding(rows)  # while the embeddings of the others are on their way
            received = []
            for part, digest in zip(parts, digests, strict=True):
                received.append((yield from self._receive(Kind.EMBEDDING, epoch, step, part, digest)))
            # This party's graph begins at the cut: the gradients at these leaves go back to the senders.
            embeddings = {
                name: e.detach().requires_grad_(name in self.gradient_ports)
                for name, e in joined_by_name(received).items()
            }
            view = ActiveView(Mode.TRAIN, epoch, count, rows, self.labels[rows], embeddings, parts=len(parts))
            task = self.training_task
            if self.weights is not None:
                task = replace(task, row_weights=self.weights[rows])
            loss = self.top.objective(self._ordered(own, view), view.labels, task)
        value = loss.item()
        check_loss(value, self.local.name, epoch, step)
        (loss if share == 1 else loss * share).backward()  # type: ignore[no-untyped-call]
        gradients = self._protected_gradients(view)
        # All are checked before the first is sent: no peer trains on a step that another peer would refuse.
        for name, gradient in gradients.items():
            what = f"cut gradient for {name} in epoch {epoch}, step {step}"
            check_own(gradient, self.local.limits.gradient_norm, self.local.name, what)
        sent = {}
        for name, port in self.gradient_ports.items():
            crossed = []
            for digest, part in zip(digests, micro_batches(gradients[name], len(parts)), strict=True):
                tensors = {"gradient": part}
                message = self.presence.send(port, Kind.GRADIENT, epoch=epoch, step=step, rows=digest, tensors=tensors)
                crossed += [] if message is None else [message.tensors["gradient"]]
            if name not in self.presence.left:
                sent[name] = joined(crossed)
                self._count(Kind.GRADIENT, sent[name])
        seen = {name: embedding.detach() for name, embedding in embeddings.items()}
        for name in self.presence.left:
            # As for a party that party_dropout drops: zeros stand for what did not cross.
            if not self.job.train.releases_once(name) or epoch < self.job.train.warmup_epochs:
                sent[name] = torch.zeros_like(seen[name])
        return value * share, (seen, sent, layers)

    def _protected_gradients(self, view: ActiveView) -> dict[str, Tensor]:
        """The protected cut gradient of every passive party that receives one."""
        chain = self.state.chain
        embeddings = {name: view.embeddings[name] for name in self.gradient_ports}
        task = {name: e.grad if e.grad is not None else torch.zeros_like(e) for name, e in embeddings.items()}
        view = replace(view, embeddings=embeddings, task_gradients=task)
        summed = chain.cut_gradients(view)
        self.state.sent["cut_gradient"] += 1
        return {name: chain.gradient_out(summed[name], name, view).detach() for name in self.gradient_ports}

    def _receive(
        self, kind: Kind, epoch: int, step: int, rows: Tensor, digest: bytes
    ) -> Generator[Port, Message, dict[str, Tensor]]:
        """The embeddings of some rows, by party; zeros of those that are lost."""
        received = {}
        for name, port in self.ports.items():
            message = None
            if name in self.released_embeddings:
                received[name] = self.released_embeddings[name][rows]
                continue
            if name not in self.presence.left:
                message = yield from self.presence.receive(receive(port, kind, epoch, step, digest), name)
            limit, width = self.local.limits.embedding_norm, self.widths[name]
            if message is None:
                received[name] = torch.zeros(len(rows), width)
                continue
            received[name] = checked_embedding(message, len(rows), width, limit)
            self._count(kind, received[name])
        return received

    def _own_embedding(self, rows: Tensor) -> dict[str, Tensor]:
        """This party's own embedding, by its name; nothing if it has no columns."""
        if self.store is None:
            return {}
        return {self.local.name: self.state.modules["bottom"](*self.store.gather(rows))}

    def _count(self, kind: Kind, rows: Tensor) -> None:
        """Count the bytes of some rows as they crossed."""
        self.usage.count(kind, len(rows) * row_bytes(self.job.channel.compress, rows.shape[1]))

    def _ordered(self, own: Mapping[str, Tensor], view: ActiveView) -> dict[str, Tensor]:
        """All embeddings, including this party's own, in the job's order of parties."""
        seen = {**self.state.chain.embeddings_in(view.embeddings, view), **own}
        self.state.sent["embeddings_in"] += 1
        return {name: seen[name] for name in self.widths}

    @property
    def _reported(self) -> str:
        """The part of the rows that the run is measured on at its end."""
        return "test" if len(self.split.test) else self.part

    def _absent_sets(self) -> tuple[Names, ...]:
        """Sets of parties whose absence is evaluated; without features of its own, this party needs one to stay."""
        passives = [name for name in self.job.passives if name not in self.presence.left]
        return absent_sets(passives, keep_one=self.store is None, sizes=(1, 2, len(passives)))

    def _evaluate(
        self, part: str, epoch: int, absent: Sequence[Names] = ()
    ) -> Generator[Port, Message, tuple[Mapping[str, float], Mapping[Names, Tensor]]]:
        """Metrics on held-out rows, against their true labels; and logits by the absent parties, () first."""
        self.state.modules.eval()
        logits: dict[Names, list[Tensor]] = {names: [] for names in ((), *absent)}
        held_out = self.split.part(part)
        for number, rows in enumerate(evaluation_batches(held_out, EVALUATION_ROWS)):
            digest = rows_digest(rows)
            self.presence.now = (epoch, number)
            fields = {"part": part, "batch": number}
            for port in self.streaming_ports.values():
                self.presence.send(port, Kind.REQUEST, epoch=epoch, step=number, rows=digest, fields=fields)
            with torch.no_grad():
                own = self._own_embedding(rows)
            received = yield from self._receive(Kind.EVALUATION, epoch, number, rows, digest)
            view = ActiveView(Mode.EVALUATE, epoch, number, rows, self.labels[rows], received)
            with torch.no_grad():
                seen = self._ordered(own, view)
                for names, parts in logits.items():
                    gone = {*names, *self.presence.left}
                    parts.append(self.top.answer(seen, seen.keys() - gone) if gone else self.top(seen))
        if not len(held_out):
            return {self.task.metric: math.nan}, {names: torch.zeros(0, self.task.outputs) for names in logits}
        together = {names: torch.cat(parts) for names, parts in logits.items()}
        return self.task.evaluate(together[()], self.truth[held_out]), together

    def _save(self, epoch: int, best: bool) -> Generator[Port, Message, None]:
        """Every party writes its part of the checkpoint, the active party last."""
        snapshot = self.state.snapshot()
        # Before the peers are asked: they store two epochs, and a failure here must not remove the older.
        check_weights(snapshot[0], self.local.name, epoch)
        for name, port in self.presence.ports.items():
            # Whether the epoch is the best depends on labels. A bottom model that no longer changes is always the best.
            fixed = name in self.released_embeddings and epoch >= self.job.train.warmup_epochs
            fields = {"stop": self.stopping.stop, "best": best or fixed}
            self.presence.send(port, Kind.EPOCH_END, epoch=epoch, fields=fields)
        for name, port in self.presence.ports.items():
            yield from self.presence.receive(receive(port, Kind.COMMITTED, epoch), name)
        self.checkpoints.save(epoch, snapshot, best=best)

    def _commit(self, epoch: int, step: int = 0) -> None:
        """Commit the epoch, or a number of its steps, once all files are on disk; a resume starts after it."""
        progress = {**self.stopping.to_json(), "usage": self.usage.to_json(), "left": [*self.presence.left]}
        self.checkpoints.commit(epoch, progress, step=step)

    def _finish(self) -> Generator[Port, Message, tuple[Evidence, ...]]:
        evidence = self.state.chain.proof(self.state.sent)
        for port in self.presence.ports.values():
            self.presence.send(port, Kind.CLOSE, fields={"reason": DONE})
        for name, port in self.presence.ports.items():
            message = yield from self.presence.receive(receive(port, Kind.EVIDENCE), name)
            if message is not None:
                evidence += stated_evidence(str(message.fields["json"]), name)
                yield from self.presence.receive(receive(port, Kind.CLOSE), name)
        return tuple(evidence)

    def _outcome(
        self,
        epochs: int,
        part: str,
        metrics: Mapping[str, float],
        logits: Mapping[Names, Tensor],
        evidence: tuple[Evidence, ...],
    ) -> ActiveOutcome:
        keeps_best = self.job.keeps_best
        training = self.truth[self.split.part("train")]
        return ActiveOutcome(
            task=self.task,
            split=self.split,
            step_losses=tuple(self.stopping.step_losses),
            kept_epoch=self.stopping.best_epoch if keeps_best else epochs - 1,
            epochs=epochs,
            stopped_early=epochs < self.job.train.max_epochs,
            part=part,
            metrics=metrics,
            logits=logits[()],
            labels=self.truth[self.split.part(part)],
            ids=self.reported_ids,
            evidence=evidence,
            parameters=self.state.parameters,
            numeric=self.inputs.numbers,
            categorical=len(self.inputs.cardinalities),
            widths=self.widths,
            fingerprint=self.fingerprint,
            left=dict(self.presence.left),
            positive_share=float((training == 1).double().mean()) if self.task.kind == "binary" else None,
            without={names: part for names, part in logits.items() if names},
            weights=self.weights,
            extra_heads=tuple(sum(p.numel() for p in head.parameters()) for head in self.top.extra_heads),
        )
