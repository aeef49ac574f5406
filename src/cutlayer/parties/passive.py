"""A passive party: features and a bottom model. Read `run` top to bottom: it is the protocol."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import islice

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import DONE, check_present
from cutlayer.channel.transcript import Step, Transcript
from cutlayer.config import Job
from cutlayer.data.batches import schedule_of, with_next
from cutlayer.errors import ProtocolError
from cutlayer.parties.begun_table import BegunTable
from cutlayer.parties.checkpoint import RELEASED, START, Point, State
from cutlayer.parties.evidence import evidence_text
from cutlayer.parties.handshake import Saved, agree_order_passive, agree_passive
from cutlayer.parties.local import EVALUATION_ROWS, Local, compress_links
from cutlayer.parties.numbers import check_weights
from cutlayer.parties.outcome import PassiveOutcome
from cutlayer.parties.passive_releases import Releases
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.passive_step import PassiveStep
from cutlayer.parties.split import split_at_passive
from cutlayer.parties.state import order_with_batches, part_of, with_part
from cutlayer.parties.stopping import may_stop
from cutlayer.storage.row_arrays import gathered


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
        self.checkpoints = local.checkpoints(job)

    def run(self) -> Generator[Port, Message, PassiveOutcome]:
        """Follow the schedule to its end.

        Raises:
            ProtocolError: The active party is at another point of the schedule, or holds other rows.
            NotApplied: A protection of this party missed a message.
        """
        epoch, step = yield from self._prepare()
        if self.job.trains_alone:
            return (yield from self._release_alone())
        self.training_step.meet_workers()
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
                self.releases.release_once(self.training_step.warmup_gradients)
        self.training_step.dismiss_workers()
        if self.job.keeps_best:
            self.state.load_weights(self.checkpoints.load_best(self.best_epoch))
        return (yield from self._end(epoch))

    def _release_alone(self) -> Generator[Port, Message, PassiveOutcome]:
        """Answer the requests for the single release, which is all of this party's part where no epoch needs it."""
        # Before any row is sent: what a finished run leaves is on disk when the active party goes on alone.
        self.checkpoints.save(0, self._snapshot(0), best=True)
        self.transcript.close(0)
        return (yield from self._end(0))

    def _end(self, epochs: int) -> Generator[Port, Message, PassiveOutcome]:
        """Answer requests until the active party closes, then send the evidence."""
        yield from self._answer_until(Kind.CLOSE, -1)
        outcome = self._finish(epochs)
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
        training = self.setup.bottom.training
        self.setup.bottom.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            parts = torch.split(rows, EVALUATION_ROWS)
            embedded = torch.cat([self.setup.embed(part).flatten(1).cpu() for part in parts])
        self.setup.bottom.train(training)
        return embedded

    def _prepare(self) -> Generator[Port, Message, Point]:
        job, local = self.job, self.local
        saved, forget = self._saved() if local.resume else Saved(), local.forget_peer_progress
        agreement = yield from agree_passive(
            job, local.table, self.port, saved, local.config.limits, local.alignment, forget=forget
        )
        ids = agreement.row_ids(local.table)
        self.split = yield from split_at_passive(job, local, self.port, ids)
        train = self.split.train
        self.schedule = schedule_of(job, train, lambda: gathered(ids, train), agreement.stated)
        begun = BegunTable(self.checkpoints, resume=local.resume)
        data = local.data / local.name
        prepared = local.table.prepare(agreement.positions, self.split.train, data, begun.check_columns)
        order = order_with_batches(job, prepared.order_digest, self.schedule)
        self.setup = PassiveSetup(job, local, self.split, prepared, self.port, order)
        self.state = self.setup.state
        yield from agree_order_passive(self.port, ids, self.setup.bottom.width)
        self.setup.set_up_chain(prepared.order_digest)
        begun.keep()
        sampling = local.sampling(job, self.schedule.steps_per_epoch, self.schedule.batch_size)
        self.transcript = Transcript(local.transcript, sampling)
        self.training_step = PassiveStep(job, local, self.setup, self.port, self.transcript, sampling)
        self.releases = Releases(job, local, self.setup, self.port, self.checkpoints)
        self.stopped, self.best_epoch = False, -1
        if (point := saved.at(agreement.start)) != START:
            # After the chain is set up: this restores the state of its protections, and the random state.
            saved_state = self.checkpoints.load_at(point)
            self.state.load(saved_state)
            self.stopped, self.best_epoch = bool(saved_state[1]["stop"]), int(saved_state[1]["best_epoch"])
            self.training_step.warmup_gradients = saved_state[0].get("warmup_gradients")
            if self.training_step.guard is not None:
                self.training_step.guard.load(*part_of(saved_state, "guard"))
            if "transcript" in saved_state[1]:
                self.transcript.load(*part_of(saved_state, "transcript"))
        if local.resume and forget:
            self.state.chain.allow_repeats(agreement.start[0])
        if self.releases_once and agreement.start[0] >= self.warmup_epochs:
            self.releases.release_once(self.training_step.warmup_gradients)
        return agreement.start

    def _saved(self) -> Saved:
        """The points at which this party can go on; its start, where it takes no part in the epochs."""
        if self.job.trains_alone:
            return Saved()
        whole, every = self.checkpoints.whole(), sorted(self.checkpoints.points())
        # All but the last two are removed: a single one is the first, and the point before it is the start.
        before = next((point for point in reversed(every) if whole and point < whole[-1]), START)
        if whole and before == START and len(every) > 1:
            before = whole[-1]
        idle = self.releases_once and self.checkpoints.kept(RELEASED) is not None
        return Saved(whole, before, self.warmup_epochs if idle else None)

    def _check_epoch(self, epoch: int) -> None:
        """Raise before an epoch that the job does not have, whose cost the ledger does not state.

        Raises:
            ProtocolError: The active party has not stopped.
        """
        epochs = self.job.train.max_epochs
        if epoch >= epochs:
            wanted = f"{self.port.peer} to stop after {epochs} epochs, as train.epochs says"
            raise ProtocolError.expected(wanted, f"a start of epoch {epoch}", "nothing of it was sent")

    def _check_end(self, end: Message) -> None:
        """Raise at an end that the job does not allow: it would close an account, which later runs then do not count.

        Raises:
            ProtocolError: The active party stops before the last epoch and before early stopping can.
        """
        epoch = end.epoch
        if end.fields["stop"] and not may_stop(epoch, self.job):
            wanted = f"{self.port.peer} to go on to epoch {epoch + 1}, as train.epochs and train.early_stop say"
            raise ProtocolError.expected(wanted, f"an end after epoch {epoch}")

    def _train_epoch(self, epoch: int, begin: int) -> Generator[Port, Message, None]:
        """The steps of an epoch from one on."""
        self.setup.bottom.train()
        steps = self.schedule.steps_per_epoch
        batches = with_next(self.schedule.epoch(epoch, self.setup.store.read_ahead))
        for step, (rows, next_rows) in islice(enumerate(batches), begin, None):
            yield from self.training_step.take(epoch, step, epoch * steps + step, rows, next_rows)
            if self.job.train.saves_within(step + 1, steps):
                self._save_within(epoch, step + 1)
                self.port.send(Kind.COMMITTED, epoch=epoch, step=step + 1)
        self.local.readings.read()  # before evaluations, whose embeddings would be bad too

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
        self.local.readings.read()
        tensors, plain = self.state.snapshot()
        check_weights(tensors, self.local.name, epoch)
        if self.training_step.warmup_gradients is not None and self.releases.released is None:
            tensors["warmup_gradients"] = self.training_step.warmup_gradients
        state = tensors, plain | {"stop": self.stopped, "best_epoch": self.best_epoch}
        guard = self.training_step.guard
        return state if guard is None else with_part(state, "guard", *guard.snapshot())

    def _answer_until(self, last: Kind, epoch: int) -> Generator[Port, Message, Message]:
        """Serve requests for held-out rows until a message of kind `last` arrives."""
        self.setup.bottom.eval()
        while True:
            message = yield self.port
            check_present(message)
            if message.kind == last and message.epoch == epoch:
                return message
            if message.kind != Kind.REQUEST:
                raise ProtocolError.expected(f"a request or {last} of epoch {epoch}", message.kind)
            self.releases.answer(message, epoch)

    def _finish(self, epochs: int) -> PassiveOutcome:
        evidence = tuple(self.state.chain.proof(self.state.sent))
        self.port.send(Kind.EVIDENCE, fields={"json": evidence_text(evidence)})
        self.port.send(Kind.CLOSE, fields={"reason": DONE})
        inputs = self.setup.inputs
        counts = (self.state.parameters, inputs.numbers, len(inputs.cardinalities))
        guard = self.training_step.guard
        alarms = () if guard is None else tuple(guard.alarms)
        return PassiveOutcome(evidence, *counts, epochs, self.releases.fit_losses, alarms)
