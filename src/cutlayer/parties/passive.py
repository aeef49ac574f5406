"""A passive party: features and a bottom model. Read `run` top to bottom: it is the protocol."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.transcript import LAYER_ROWS, Step, Transcript
from cutlayer.config import Job
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.split import split_rows
from cutlayer.errors import DataError, ProtocolError
from cutlayer.models import BottomModel, Inputs, build_bottom, tapped
from cutlayer.parties.checkpoint import Checkpoints
from cutlayer.parties.half import Half
from cutlayer.parties.handshake import DONE, agree_order_passive, agree_passive, check_present, receive
from cutlayer.parties.local import EVALUATION_ROWS, HELD_OUT, Local
from cutlayer.protections.base import Context, Evidence, Mode, Noise, PassiveView


@dataclass(frozen=True)
class PassiveOutcome:
    """What a passive party knows at the end of a run."""

    evidence: tuple[Evidence, ...]
    parameters: int
    numeric: int
    categorical: int
    epochs: int


class PassiveParty:
    """Sends embeddings of its rows, learns from the gradients that come back.

    Args:
        job: the shared job.
        local: this party's own table, protections and folder.
        port: to the active party.
    """

    def __init__(self, job: Job, local: Local, port: Port) -> None:
        self.job, self.local, self.port = job, local, port
        self.checkpoints = Checkpoints(local.folder / "checkpoint" / local.name, local.name, job.digest())

    def run(self) -> Generator[Port, Message, PassiveOutcome]:
        """Follow the schedule to its end.

        Raises:
            ProtocolError: the active party is somewhere else in the schedule, or holds other rows.
            NotApplied: a protection of this party missed a message.
        """
        epoch = yield from self._prepare()
        while not self.stopped:
            yield from self._train_epoch(epoch)
            verdict = yield from self._answer_until(Kind.VERDICT, epoch)
            self._save(epoch, verdict)
            self.port.send(Kind.COMMITTED, epoch=epoch)
            epoch += 1
        if self.job.keeps_best:
            self.half.load_weights(self.checkpoints.load_best())
        yield from self._answer_until(Kind.FAREWELL, -1)
        return self._farewell(epoch)

    def steps(self) -> Sequence[Step]:
        """Sampled steps of the epoch under way: this party's view, for an audit in the same process."""
        return self.transcript.steps

    def _prepare(self) -> Generator[Port, Message, int]:
        job, local = self.job, self.local
        agreement = yield from agree_passive(job, local.table, self.port, self.checkpoints.latest())
        self.split = split_rows(len(agreement.positions), job.train.split, job.train.seed)
        self.schedule = Schedule(self.split.train, job.train.batch_size, job.train.seed, job.train.shuffle)
        prepared = local.table.prepare(agreement.positions, self.split.train, local.data / local.name)
        if prepared.store is None:
            raise DataError(f"{local.name} has no feature columns; a passive party needs at least one")
        self.store = prepared.store
        self.inputs = Inputs(self.store.columns.cardinalities, self.store.columns.numeric)
        bottom: BottomModel = build_bottom(job.model.bottom_of(local.name), self.inputs, f"model.bottom ({local.name})")
        self.bottom = bottom
        self.half = Half({"bottom": bottom}, job.train.optimizer, local.chain, prepared.order_digest)
        yield from agree_order_passive(self.port, prepared.digests, bottom.width)
        self._set_up_chain()
        sampling = local.sampling(job, self.schedule.steps_per_epoch)
        self.transcript = Transcript(local.folder / "transcript" / local.name, sampling)
        self.stopped = False
        if agreement.start:
            state = self.checkpoints.load(agreement.start - 1)
            self.half.load(state)
            self.stopped = bool(state[1]["stop"])
        return agreement.start

    def _set_up_chain(self) -> None:
        local, train = self.local, self.job.train
        context = Context(
            party=local.name,
            peers=(self.port.peer,),
            widths={local.name: self.bottom.width},
            task=None,
            labels=None,
            training=self.split.part("train"),
            secret=local.secret,
            noise=Noise(local.noise_key),
            epochs=train.epochs,
            batch_size=train.batch_size,
        )
        local.chain.setup(context)

    def _train_epoch(self, epoch: int) -> Generator[Port, Message, None]:
        self.bottom.train()
        first = epoch * self.schedule.steps_per_epoch
        for step, rows in enumerate(self.schedule.epoch(epoch)):
            yield from self._train_step(epoch, step, first + step, rows)

    def _train_step(self, epoch: int, step: int, count: int, rows: Tensor) -> Generator[Port, Message, None]:
        digest = rows_digest(rows)
        with tapped(self.bottom if self._layers(step) else None, LAYER_ROWS) as layers:
            embedding = self._embed(rows)
        view = PassiveView(Mode.TRAIN, epoch, count, rows, self._embed)
        released = self.half.chain.embedding_out(embedding, view)
        self.port.send(Kind.EMBEDDING, epoch=epoch, step=step, rows=digest, tensors={"embedding": released})
        self.half.sent["embedding_out"] += 1
        answer = yield from receive(self.port, Kind.GRADIENT, epoch, step, digest)
        gradient = answer.tensors["gradient"]
        if gradient.shape != released.shape:
            raise ProtocolError.expected(f"a gradient of shape {tuple(released.shape)}", tuple(gradient.shape))
        self._learn(released, replace(view, embedding=released, gradient=gradient))
        if self._sampled(step):
            mine = self.local.name
            step_seen = Step(epoch, step, rows, {mine: released.detach()}, {mine: gradient}, layers)
            self.transcript.add(step_seen)

    def _sampled(self, step: int) -> bool:
        return self.local.audit.every != "never" and self.transcript.sampling.takes(step)

    def _layers(self, step: int) -> bool:
        return self._sampled(step) and self.local.audit.layers and self.transcript.sampling.takes_layers(step)

    def _learn(self, released: Tensor, view: PassiveView) -> None:
        """One optimiser step from the gradient that came back and this party's own loss terms."""
        optimizer = self.half.optimizer
        if optimizer is None:
            return
        optimizer.zero_grad()
        extra = self.half.chain.local_loss(view)
        self.half.sent["local_loss"] += 1
        if extra is None:
            torch.autograd.backward([released], [view.gradient])
        else:
            torch.autograd.backward([released, extra], [view.gradient, None])
        optimizer.step()

    def _save(self, epoch: int, verdict: Message) -> None:
        """Write this party's half of the epoch, with whether training ends here: a resume must know."""
        self.stopped = bool(verdict.fields["stop"])
        tensors, plain = self.half.state()
        self.checkpoints.save(epoch, (tensors, {**plain, "stop": self.stopped}), best=bool(verdict.fields["best"]))
        self.transcript.close(epoch)

    def _answer_until(self, last: Kind, epoch: int) -> Generator[Port, Message, Message]:
        """Serve requests for held-out rows until a message of kind `last` comes."""
        self.bottom.eval()
        while True:
            message = yield self.port
            check_present(message)
            if message.kind == last and message.epoch == epoch:
                return message
            if message.kind != Kind.REQUEST:
                raise ProtocolError.expected(f"a request or {last} of epoch {epoch}", message.kind)
            self._answer(message)

    def _answer(self, request: Message) -> None:
        part, number = str(request.fields["part"]), int(request.fields["batch"])
        if part not in HELD_OUT:
            raise ProtocolError.expected(f"a request for {' or '.join(HELD_OUT)} rows", repr(part)[:80])
        batches = evaluation_batches(self.split.part(part), EVALUATION_ROWS)
        if not 0 <= number < len(batches) or rows_digest(batches[number]) != request.rows:
            raise ProtocolError(f"{self.port.peer} asked for batch {number} of {part}, which holds other rows here")
        rows = batches[number]
        with torch.no_grad():
            view = PassiveView(Mode.EVALUATE, request.epoch, request.step, rows, self._embed)
            released = self.half.chain.embedding_out(self._embed(rows), view)
        self.port.send(
            Kind.EVALUATION,
            epoch=request.epoch,
            step=request.step,
            rows=request.rows,
            tensors={"embedding": released},
        )
        self.half.sent["embedding_out"] += 1

    def _embed(self, rows: Tensor) -> Tensor:
        codes, numbers = self.store.gather(rows)
        embedding: Tensor = self.bottom(codes, numbers)
        return embedding

    def _farewell(self, epochs: int) -> PassiveOutcome:
        evidence = tuple(self.half.chain.proof(self.half.sent))
        self.port.send(Kind.EVIDENCE, fields={"json": json.dumps([asdict(item) for item in evidence])})
        self.port.send(Kind.FAREWELL, fields={"reason": DONE})
        inputs = self.inputs
        return PassiveOutcome(evidence, self.half.parameters, inputs.numbers, len(inputs.cardinalities), epochs)
