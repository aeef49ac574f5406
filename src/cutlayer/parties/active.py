"""The active party: labels, the top model, and the schedule. Read `run` top to bottom: it is the protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import DONE, receive
from cutlayer.channel.transcript import Transcript
from cutlayer.config import Job
from cutlayer.data.batches import IdSchedule, Schedule, schedule_of
from cutlayer.data.ids import Digests
from cutlayer.data.prepared import Prepared
from cutlayer.errors import CheckpointError
from cutlayer.models.absence import Names, absent_sets
from cutlayer.models.fitted.result import FitResult
from cutlayer.models.fitted.top import FittedTop
from cutlayer.parties.active_evaluation import Evaluated, evaluate
from cutlayer.parties.active_fit import columns_of, fit_top
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.active_step import ActiveStep
from cutlayer.parties.alignment import row_key
from cutlayer.parties.begun_table import BegunTable
from cutlayer.parties.checkpoint import RELEASED, START, Point, State
from cutlayer.parties.evidence import stated, stated_evidence
from cutlayer.parties.handshake import agree_active, agree_order_active
from cutlayer.parties.held_rows import store_held
from cutlayer.parties.local import HELD_OUT, Local, compress_links
from cutlayer.parties.numbers import SATURATED_LOSS, check_weights, warn_of_zeros
from cutlayer.parties.observer import EpochRecord, Observer
from cutlayer.parties.outcome import ActiveOutcome
from cutlayer.parties.partners import Partners
from cutlayer.parties.passives import Passives
from cutlayer.parties.split import split_at_active
from cutlayer.parties.state import check_same_rows, order_with_batches, part_of, with_part
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.protections.base import Evidence
from cutlayer.storage.row_arrays import gathered


class ActiveParty:
    """Receives embeddings, trains the top model and returns the cut gradients.

    Args:
        job: The shared job.
        local: This party's own table, labels, protections and folder.
        ports: Ports to the passive parties, by name, in the job's order; none where all have released their rows, which
            are in the folder.
        observer: Called at every stage of the run; it gets no data of another party.
        when_alone: Called once the passive parties have no further part in the run, before any work on labels; it
            closes their links.
    """

    def __init__(
        self,
        job: Job,
        local: Local,
        ports: Mapping[str, Port],
        observer: Observer,
        when_alone: Callable[[], None] = lambda: None,
    ) -> None:
        self.job, self.local, self.ports, self.observer = job, local, ports, observer
        self._when_alone = when_alone
        self.passives = Passives(job, local, ports, self._go_on_without)
        self.presence, self.usage = self.passives.presence, self.passives.usage
        self._warned = False
        self.statements: dict[str, str] = {}
        self.fit: FitResult | None = None
        compress_links(job, local, ports.values())
        self.checkpoints = local.checkpoints(job)
        self.partners = None if ports else Partners.load(self.checkpoints)
        if self.partners is not None:
            self.presence.dismissed, self.statements = True, dict(self.partners.evidence)

    @property
    def run_id(self) -> str:
        """Id of the training: that of the first passive party."""
        return next(iter(self.runs.values()))

    @property
    def runs(self) -> Mapping[str, str]:
        """Id of the training at each passive party: the same at all, but where each sent its release as a file."""
        if self.partners is not None:
            return self.partners.runs
        return {name: port.run for name, port in self.ports.items()}

    def run(self) -> Generator[Port, Message, ActiveOutcome]:
        """Lead the run to its end.

        Raises:
            ProtocolError: A passive party is at another point of the schedule, or holds other rows.
            NotApplied: A protection of this party missed a message.
        """
        epoch, step = yield from self._prepare()
        self.training_step.meet_workers()
        self.presence.now, self.presence.needs_one = (epoch, step), self.setup.store is None
        while not self.stopping.stop:
            began = time.perf_counter()
            if not step:
                self.usage.begin_epoch()
            self.training_step.has_gradient = step > 0  # of an interrupted epoch it is not known
            loss = yield from self._train_epoch(epoch, step)
            learned = self.training_step.has_gradient or loss <= SATURATED_LOSS
            step = 0
            seconds = time.perf_counter() - began
            estimates = self.state.chain.epoch_metrics()
            metrics = yield from self._epoch_metrics(epoch)
            best = self._is_best(metrics, epoch)
            # All parties save, then the history gets its line, then the epoch is committed. A crash in between repeats
            # the epoch from the previous commit, which every party still has.
            yield from self._save(epoch, best)
            leak = self.observer.leaks(epoch, self.transcript.steps)
            self.transcript.close(epoch)
            if self.follower is not None:
                self.follower.close(epoch)
                if self.stopping.stop:
                    rows = self.follower.rows
                    numbers = {name: self.held.own_numbers(name, rows) for name in self.job.passives}
                    self.observer.followed(epoch, numbers)
            rate = len(self.split.train) / seconds
            part = "cross-validation" if self.job.fits_top else self.part
            record = EpochRecord(epoch, loss, part, metrics, seconds, rate, best, leak, estimates)
            traffic, left = self.usage.of_epoch(), tuple(self.presence.left)
            self.observer.ended(replace(record, bytes=traffic, left=left, learned=learned))
            if not learned and not self._warned:
                self._warned = True
                warn_of_zeros(self.local.name, epoch)
            self._commit(epoch)
            epoch += 1
            if epoch == self.job.train.warmup_epochs:
                yield from self._collect_releases(self.state.rows)
        self.training_step.dismiss_workers()
        if self.job.keeps_best:
            self.state.load_weights(self.checkpoints.load_best(self.stopping.best_epoch))
        part = self._reported
        metrics, logits = yield from self._evaluate(part, -1, self._absent_sets())
        evidence = (*self.state.chain.proof(self.state.sent), *(yield from self._dismiss()))
        # After the last message: the account of a run that dies before it stays open, and later runs count it.
        self.state.chain.close_account()
        return self._outcome(epoch, part, metrics, logits, evidence)

    def _prepare(self) -> Generator[Port, Message, Point]:
        job, local = self.job, self.local
        commits = self.checkpoints.resumable() if local.resume else {}
        if self.partners is not None:
            agreement = self.partners.agreement(max(commits, default=START))
        else:
            alignment = replace(local.alignment, row_key=row_key(job, local.secret))
            agreement = yield from agree_active(
                job, local.table, local.name, self.ports, [*commits], local.config.limits, alignment
            )
        start = agreement.start
        epoch = start[0]
        self._check_nobody_left(commits, epoch)
        self.loss = 0.0  # sum over the rows of the current epoch so far
        self.peer_rows, self.positions = agreement.peer_rows, agreement.positions
        self.held = self.passives.held = agreement.aligned.held
        ids = agreement.row_ids(local.table)
        self.ids, self.lacking = agreement.aligned.ids, dict[str, int]()
        if job.rows == "common":
            self.lacking = {peer: local.table.rows - size for peer, size in agreement.aligned.sizes.items()}
        self.split = split_at_active(job, local, self.positions, ids, self.ports.values(), self.held)
        # Of a run on all rows those that every party has, since only they have all messages.
        training = self.held.with_all(self.split.train)
        self.schedule = self._scheduled(training, ids, agreement.stated)
        self.part = "validation" if len(self.split.validation) else "test"
        # Before the table is released from memory, which `prepare` does.
        self.reported_ids = local.table.ids(gathered(agreement.positions, self.split.part(self._reported).numpy()))
        begun = BegunTable(self.checkpoints, resume=local.resume)
        data = local.data / local.name
        prepared = local.table.prepare(agreement.positions, self.split.train, data, begun.check_columns)
        if self.partners is not None:
            widths = self.partners.widths
            self.partners.check_order(prepared.digests)
        else:
            widths = yield from agree_order_active(job, self.ports, ids, self.held)
        if job.trains_alone:
            self.passives.begin(widths, len(prepared.digests))
            yield from self._part_from_passives(prepared.order_digest.hex(), widths)
        self._check_labels(begun, prepared)
        # After the orders were compared: labels are drawn and parameters initialised for the common rows only.
        order = order_with_batches(job, prepared.order_digest, self.schedule)
        self.setup = ActiveSetup(job, local, self.split, prepared, widths, self.ports, order)
        self.state, self.task = self.setup.state, self.setup.task
        begun.keep()
        if not job.trains_alone:
            self.passives.begin(widths, len(self.setup.truth))
            if epoch >= job.train.warmup_epochs:
                yield from self._collect_releases(self.state.rows)
        steps = self.schedule.steps_per_epoch
        recorded = max(1, -(-len(training) // steps)) if job.draws_batches else self.schedule.batch_size
        sampling = local.sampling(job, steps, recorded)
        self.transcript = Transcript(local.transcript, sampling)
        self.follower = local.follower(job, torch.from_numpy(training), sampling) if len(training) else None
        self.training_step = ActiveStep(job, local, self.setup, self.passives, self.transcript, sampling, self.follower)
        if local.tampering is not None:
            local.tampering.begin(self.schedule)
            self.setup.labels = local.tampering.labels(self.setup.labels)
        self.stopping = EarlyStopping()
        if local.resume and local.forget_peer_progress:
            self.state.chain.allow_repeats(epoch)
        if start != START:
            # Last, since it sets the random state: the draws above must not affect the draws of the next step.
            state = self.checkpoints.load_at(start)
            self._load(state, start)
            if self.training_step.guard is not None:
                self.training_step.guard.load(*part_of(state, "guard"))
            self.stopping = EarlyStopping.from_json(commits[start])
            self.usage.add_earlier(commits[start]["usage"])
        self.observer.started(self.task, self.setup.truth, torch.from_numpy(training), job.train.max_epochs, epoch)
        return start

    def _check_labels(self, begun: BegunTable, prepared: Prepared) -> None:
        """Refuse other labels or weights than the run began with; a label that a row was drawn for is remembered.

        Raises:
            CheckpointError: They are others.
        """
        local = self.local
        if prepared.labels is None:
            return
        drawn = local.config.privacy.get("label_dp")
        remembered = drawn is not None and local.label_memory is not None and local.table.id_kind != "row"
        rows = torch.cat([self.split.part(part) for part in HELD_OUT]) if remembered else None
        if remembered and drawn is not None and drawn.get("changed_labels") == "keep":
            rows = torch.zeros(0, dtype=torch.int64)
        weights = {} if prepared.weights is None else {str(local.config.weight): prepared.weights}
        begun.check_labels(str(local.config.label), prepared.labels, rows, weights)

    def _scheduled(self, audited: npt.NDArray[np.int64], ids: Digests, stated: int) -> Schedule:
        """The batches that are trained on; where no step is taken, those in which the audited rows are recorded.

        Raises:
            DataError: There are fewer training rows than a batch has.
        """
        rows = self.split.train if self.job.draws_batches else audited
        if self.job.draws_batches:
            store_held(self.checkpoints.folder, self.held)
        elif not len(audited):  # no row has all messages: nothing is recorded
            return IdSchedule(audited, np.empty((0, 16), np.uint8), 1, self.job.train.seed)
        return schedule_of(self.job, rows, lambda: gathered(ids, rows), stated)

    def _check_nobody_left(self, commits: Mapping[Point, Mapping[str, Any]], epoch: int) -> None:
        """Refuse to repeat an epoch with a party that it was committed without: its best weights replaced the earlier.

        Raises:
            CheckpointError: A later commit lacks a party, and the run ends with its best epoch.
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

    def _part_from_passives(self, rows: str, widths: Mapping[str, int]) -> Generator[Port, Message, None]:
        """Receive all releases, and end the passive parties' part of the run.

        All that they receive is sent before any label is drawn, counted or trained on: neither the content nor the time
        of a message, nor a failure, can depend on what labels are used for.
        """
        yield from self._collect_releases(rows)
        yield from self._dismiss()
        if self.partners is None:
            self.partners = Partners(
                positions=self.positions,
                order=rows,
                rows=self.peer_rows,
                widths={name: widths[name] for name in self.job.passives},
                evidence=self.statements,
                runs=self.runs,
                held=self.held,
                ids=self.ids,
            )
            self.partners.save(self.checkpoints)
        self._when_alone()

    def _collect_releases(self, rows: str) -> Generator[Port, Message, None]:
        """Receive the rows of the parties that release once, unless an interrupted run already has.

        From then on these parties receive no gradients.

        Args:
            rows: Digest of the ids of the common rows, in hexadecimal digits.
        """
        self.passives.stop_gradients()
        resumed = self.local.resume or self.partners is not None
        stored = self.checkpoints.kept(RELEASED) if resumed else None
        if stored:
            check_same_rows(stored[1]["rows"], rows)
            self.passives.released = dict(stored[0])
        elif self.passives.released:
            yield from self.passives.collect_releases(self.split)
            self.checkpoints.keep(RELEASED, (self.passives.released, {"rows": rows}))

    def _go_on_without(self) -> None:
        """After a loss, no earlier epoch is the best: its metrics are those of a model that has the party."""
        self.stopping.best, self.stopping.stale = -math.inf, 0

    def _is_best(self, metrics: Mapping[str, float], epoch: int) -> bool:
        """Whether an epoch is the best so far; none before the single releases, whose embeddings were zeros."""
        if epoch < self.job.train.warmup_epochs:
            return False
        return self.stopping.update(metrics, self.task.metric, epoch, self.job)

    def _epoch_metrics(self, epoch: int) -> Generator[Port, Message, Mapping[str, float]]:
        """Metrics after an epoch: of held-out rows, or of the cross-validation by which a fitted model was chosen."""
        if self.fit is not None:
            score = self.fit.best.score
            return {self.task.metric: math.nan if score is None else score}
        metrics, _ = yield from self._evaluate(self.part, epoch)
        return metrics

    def _fit_top(self, epoch: int) -> float:
        """Fit the top model at once; what the passive parties released is recorded as in an epoch of steps."""
        for step, rows in enumerate(self.schedule.epoch(epoch)):
            self.training_step.record_release(epoch, step, rows)
        self.fit = fit_top(self.setup, self.passives, self.split, self.job.train.seed)
        self.training_step.has_gradient = True
        self.stopping.step_losses.append(self.fit.loss)
        self.observer.stepped(epoch, len(self.split.train), self.fit.loss)
        return self.fit.loss

    def _train_epoch(self, epoch: int, begin: int) -> Generator[Port, Message, float]:
        """The steps of an epoch from one on; returns the mean loss of its rows."""
        if self.job.fits_top:
            return self._fit_top(epoch)
        self.state.modules.train()
        readings = self.local.readings
        steps, ahead = self.schedule.steps_per_epoch, self.setup.store.read_ahead if self.setup.store else None
        for step, rows in islice(enumerate(self.schedule.epoch(epoch, ahead)), begin, None):
            losses = yield from self.training_step.take(epoch, step, epoch * steps + step, rows)
            readings.later(None, partial(self._stepped, epoch, rows.shape[0], losses))
            readings.end_step()
            if self.job.train.saves_within(step + 1, steps):
                yield from self._save_within(epoch, step + 1)
        readings.read()
        total, self.loss = self.loss, 0.0
        return total / len(self.split.train)

    def _stepped(self, epoch: int, rows: int, losses: Sequence[float], _read: float) -> None:
        """Add a step to the loss of the epoch, once its own was read."""
        loss = sum(losses)
        self.loss += loss * rows
        self.stopping.step_losses.append(loss)
        self.observer.stepped(epoch, rows, loss)

    def _save_within(self, epoch: int, done: int) -> Generator[Port, Message, None]:
        """All parties that train in the epoch have written their part after a step; write the own, and commit.

        Nobody sends the next gradient before the commit, so that each party stores what was committed last.
        """
        self.local.readings.read()
        for name, port in self.passives.gradient_ports.items():
            yield from self.presence.receive(receive(port, Kind.COMMITTED, epoch, done), name)
        snapshot = self._snapshot(epoch)
        state = with_part(snapshot, "transcript", *self.transcript.snapshot())
        if self.follower is not None:
            state = with_part(state, "followed", self.follower.snapshot(), {})
        state[1]["loss"] = self.loss
        self.checkpoints.save(epoch, state, best=False, step=done)
        self._commit(epoch, done)

    @property
    def _reported(self) -> str:
        """The part of the rows that the run is measured on at its end."""
        return "test" if len(self.split.test) else self.part

    def _absent_sets(self) -> tuple[Names, ...]:
        """Sets of parties whose absence is evaluated; without features of its own, this party needs one to stay."""
        passives = [name for name in self.job.passives if name not in self.presence.left]
        return absent_sets(passives, keep_one=self.setup.store is None, sizes=(1, 2, len(passives)))

    def _evaluate(self, part: str, epoch: int, absent: Sequence[Names] = ()) -> Generator[Port, Message, Evaluated]:
        return (yield from evaluate(self.setup, self.passives, part, self.split.part(part), epoch, absent))

    def _save(self, epoch: int, best: bool) -> Generator[Port, Message, None]:
        """Every party writes its part of the checkpoint, the active party last."""
        # Before the peers are asked: they store two epochs, and a failure here must not remove the older.
        snapshot = self._snapshot(epoch)
        for name, port in self.presence.ports.items():
            # Whether the epoch is the best depends on labels, so it is sent only to a party that will restore it. A
            # bottom model that no longer changes is always the best.
            fixed = name in self.passives.released and epoch >= self.job.train.warmup_epochs
            fields = {"stop": self.stopping.stop, "best": best or fixed or not self.job.keeps_best}
            self.presence.send(port, Kind.EPOCH_END, epoch=epoch, fields=fields)
        for name, port in self.presence.ports.items():
            yield from self.presence.receive(receive(port, Kind.COMMITTED, epoch), name)
        self.checkpoints.save(epoch, snapshot, best=best)

    def _snapshot(self, epoch: int) -> State:
        """This party's state with what its guard has seen."""
        snapshot, guard = self.state.snapshot(), self.training_step.guard
        check_weights(snapshot[0], self.local.name, epoch)
        return snapshot if guard is None else with_part(snapshot, "guard", *guard.snapshot())

    def _commit(self, epoch: int, step: int = 0) -> None:
        """Commit the epoch, or a number of its steps, once all files are on disk; a resume starts after it."""
        progress = {**self.stopping.to_json(), "usage": self.usage.to_json(), "left": [*self.presence.left]}
        self.checkpoints.commit(epoch, progress, step=step)

    def _dismiss(self) -> Generator[Port, Message, Sequence[Evidence]]:
        """End the passive parties' part of the run, unless that has happened; returns their evidence."""
        if self.presence.dismissed:
            return stated(self.statements)
        for port in self.presence.ports.values():
            self.presence.send(port, Kind.CLOSE, fields={"reason": DONE})
        for name, port in self.presence.ports.items():
            message = yield from self.presence.receive(receive(port, Kind.EVIDENCE), name)
            if message is not None:
                self.statements[name] = str(message.fields["json"])
                stated_evidence(self.statements[name], name)  # refused before the answer is waited for
                yield from self.presence.receive(receive(port, Kind.CLOSE), name)
        self.presence.dismissed = True
        return stated(self.statements)

    def _outcome(
        self,
        epochs: int,
        part: str,
        metrics: Mapping[str, float],
        logits: Mapping[Names, Tensor],
        evidence: tuple[Evidence, ...],
    ) -> ActiveOutcome:
        keeps_best = self.job.keeps_best
        return ActiveOutcome(
            task=self.task,
            split=self.split,
            step_losses=tuple(self.stopping.step_losses),
            selected_epoch=self.stopping.best_epoch if keeps_best else epochs - 1,
            epochs=epochs,
            stopped_early=epochs < self.job.train.max_epochs,
            part=part,
            metrics=metrics,
            logits=logits[()],
            labels=self.setup.truth_of(self.split.part(part)),
            ids=self.reported_ids,
            evidence=evidence,
            parameters=self.state.parameters,
            numeric=self.setup.inputs.numbers,
            categorical=len(self.setup.inputs.cardinalities),
            widths=self.setup.widths,
            fingerprint=self.setup.fingerprint,
            left=dict(self.presence.left),
            positive_share=self.setup.positive_share,
            without={names: part for names, part in logits.items() if names},
            weights=self.setup.weights,
            fit=self.setup.top.fitted if isinstance(self.setup.top, FittedTop) else None,
            columns=partial(columns_of, self.setup, self.passives, self.split.part(part), self.job.train.seed),
            held={name: int((numbers >= 0).sum()) for name, numbers in self.held.by_party.items()},
            lacking=self.lacking,
            present=self.held.present(self.split.part(part)),
            alarms=() if self.training_step.guard is None else tuple(self.training_step.guard.alarms),
            extra_heads=tuple(sum(p.numel() for p in head.parameters()) for head in self.setup.top.extra_heads),
        )
