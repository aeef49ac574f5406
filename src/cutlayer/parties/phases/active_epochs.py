"""The epochs that the active party leads: steps, evaluation, and the checkpoint that all parties save."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import torch

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.parties.active_records import ActiveRecords
from cutlayer.parties.active_step import ActiveStep
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.guards.numbers import SATURATED_LOSS, check_weights, warn_of_zeros
from cutlayer.parties.session.checkpoint import START_POINT, Point, State
from cutlayer.parties.session.observer import EpochRecord
from cutlayer.parties.stopping import EarlyStopping

if TYPE_CHECKING:
    from cutlayer.parties.phases.active_side import ActiveSide


class ActiveEpochs:
    """Leads epochs, from the point at which the run goes on.

    Args:
        side: The active party's side, with its models.

    Attributes:
        training_step: Takes the steps.
        records: Record of what crossed.
    """

    def __init__(self, side: ActiveSide) -> None:
        self.side = side
        job, local = side.job, side.local
        self.records = ActiveRecords(job, local, side.passives.held, side.schedule, side.training)
        self.training_step = ActiveStep(job, local, side.setup, side.passives, self.records)
        if local.tampering is not None:
            local.tampering.begin(side.schedule)
            side.setup.labels = local.tampering.labels(side.setup.labels)
        start = side.agreement.start
        self._step, self._loss, self._warned = start[1], 0.0, False
        if local.resume and local.forget_peer_progress:
            side.state.chain.allow_repeats(side.epoch)
        if start != START_POINT:
            # Last, since it sets the random state: the draws above must not affect the draws of the next step.
            self._go_on(start)
        training = torch.from_numpy(side.training)
        side.observer.started(side.setup.task, side.setup.truth, training, job.train.max_epochs, side.epoch)
        side.presence.position, side.presence.must_keep_one = start, side.setup.store is None

    def _go_on(self, start: Point) -> None:
        """Continue from a checkpoint; within an epoch also from what was recorded of it."""
        side = self.side
        state, commit = side.checkpoints.load_at(start), side.commits[start]
        side.state.load(state)
        if start[1]:
            self._loss = float(state[1]["loss"])
            self.records.load(state, start[0])
        side.stopping = EarlyStopping.from_json(commit)
        side.usage.add_earlier(commit["usage"])

    def run(self, until: int | None = None, *, may_be_best: bool = True) -> Generator[Port, Message, None]:
        """Train epochs.

        Args:
            until: Epoch to end before; by default training ends when early stopping or the last epoch says so.
            may_be_best: Whether one of them can be the best of the run.
        """
        side = self.side
        while not side.stopping.stop and side.epoch != until:
            began = self.begin_epoch()
            loss = yield from self.steps()
            seconds = time.perf_counter() - began
            yield from self.end_epoch(loss, seconds, side.evaluated_part, may_be_best=may_be_best)

    def end(self) -> None:
        """End the training: the models are those of the epoch that the run ends with."""
        side = self.side
        if side.job.keeps_best:
            side.state.load_weights(side.checkpoints.load_best(side.stopping.best_epoch))

    def begin_epoch(self) -> float:
        """Begin an epoch, or go on after a number of its steps; returns the time."""
        began = time.perf_counter()
        if not self._step:
            self.side.usage.begin_epoch()
        self.training_step.has_gradient = self._step > 0  # of an interrupted epoch it is not known
        return began

    def steps(self) -> Generator[Port, Message, float]:
        """The steps of an epoch that are left; returns the mean loss of its rows."""
        side, epoch, readings = self.side, self.side.epoch, self.side.local.readings
        side.state.modules.train()
        steps, ahead = side.schedule.steps_per_epoch, side.setup.store.read_ahead if side.setup.store else None
        for step, rows in islice(enumerate(side.schedule.epoch(epoch, ahead)), self._step, None):
            order = StepOrder(epoch, step, epoch * steps + step, rows, self.records.records_step(epoch, step))
            losses = yield from self.training_step.take(order)
            readings.read_later(None, partial(self._stepped, epoch, rows.shape[0], losses))
            readings.end_step()
            if side.job.train.saves_within(step + 1, steps):
                yield from self._save_within(step + 1)
        readings.read()
        total, self._loss, self._step = self._loss, 0.0, 0
        return total / max(1, side.schedule.rows)

    def _stepped(self, epoch: int, rows: int, losses: Sequence[float], _read: float) -> None:
        """Add a step to the loss of the epoch, once its own was read."""
        loss = sum(losses)
        self._loss += loss * rows
        self.side.stopping.step_losses.append(loss)
        self.side.observer.stepped(epoch, rows, loss)

    def end_epoch(
        self,
        loss: float,
        seconds: float,
        part: str,
        metrics: Mapping[str, float] | None = None,
        *,
        may_be_best: bool = True,
    ) -> Generator[Port, Message, None]:
        """Evaluate, and have all parties save; then the history gets its line, and the epoch is committed.

        A crash in between repeats the epoch from the previous commit, which every party still has.

        Args:
            loss: Mean loss of the training rows.
            seconds: Wall time of the training.
            part: Rows of the metrics.
            metrics: Metrics by name; computed on these rows by default.
            may_be_best: Whether the epoch can be the best so far.
        """
        side, epoch = self.side, self.side.epoch
        learned = self.training_step.has_gradient or loss <= SATURATED_LOSS
        estimates = side.state.chain.epoch_metrics()
        if metrics is None:
            metrics, _ = yield from side.evaluate(part, epoch)
        training, headline = len(side.split.train), side.setup.task.metric
        best = may_be_best and side.stopping.update(metrics, headline, epoch, side.job, training)
        yield from self._save(best)
        leak = side.observer.leaks(epoch, self.records.transcript.steps)
        self._close_records()
        rate = side.schedule.rows / seconds
        traffic, left = side.usage.of_epoch(), tuple(side.presence.lost)
        side.observer.ended(
            EpochRecord(
                epoch, loss, part, metrics, seconds, rate, best, leak, estimates, traffic, left=left, learned=learned
            )
        )
        if not learned and not self._warned:
            self._warned = True
            warn_of_zeros(side.local.name, epoch)
        self._commit()
        side.epoch += 1

    def _close_records(self) -> None:
        side, rows = self.side, self.records.followed
        self.records.close(side.epoch)
        if rows is not None and side.stopping.stop:
            held = side.passives.held
            side.observer.followed(side.epoch, {name: held.own_numbers(name, rows) for name in side.job.passives})

    def _save(self, best: bool) -> Generator[Port, Message, None]:
        """Every party writes its part of the checkpoint, the active party last."""
        # Before the peers are asked: they store two epochs, and a failure here must not remove the older.
        side, epoch, snapshot = self.side, self.side.epoch, self._snapshot()
        for name, port in side.presence.ports.items():
            # Whether the epoch is the best depends on labels, so it is sent only to a party that will restore it. A
            # bottom model that no longer changes is always the best.
            fixed = name not in side.passives.gradient_ports
            fields = {"stop": side.stopping.stop, "best": best or fixed or not side.job.keeps_best}
            side.presence.send(port, Kind.EPOCH_END, epoch=epoch, fields=fields)
        for name, port in side.presence.ports.items():
            yield from side.presence.receive(receive(port, Kind.COMMITTED, epoch), name)
        side.checkpoints.save(epoch, snapshot, best=best)

    def _save_within(self, done: int) -> Generator[Port, Message, None]:
        """All parties that train in the epoch have written their part after a step; write the own, and commit.

        Nobody sends the next gradient before the commit, so that each party stores what was committed last.
        """
        side, epoch = self.side, self.side.epoch
        side.local.readings.read()
        for name, port in side.passives.gradient_ports.items():
            yield from side.presence.receive(receive(port, Kind.COMMITTED, epoch, done), name)
        state = self.records.with_records(self._snapshot())
        state[1]["loss"] = self._loss
        side.checkpoints.save(epoch, state, best=False, step=done)
        self._commit(done)

    def _snapshot(self) -> State:
        """This party's state with what its guard has seen."""
        snapshot = self.side.state.snapshot()
        check_weights(snapshot[0], self.side.local.name, self.side.epoch)
        return self.side.state.with_guard(snapshot)

    def _commit(self, step: int = 0) -> None:
        """Commit the epoch, or a number of its steps, once all files are on disk; a resume starts after it."""
        side = self.side
        progress = {**side.stopping.to_json(), "usage": side.usage.to_json(), "left": [*side.presence.lost]}
        side.checkpoints.commit(side.epoch, progress, step=step)
