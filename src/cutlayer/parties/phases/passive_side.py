"""A passive party's side of a run: what its phases share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import torch
from torch import Tensor

from cutlayer.alignment.disclosure import AlignmentRecord
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import check_not_closed
from cutlayer.channel.transcript import Step, Transcript
from cutlayer.config import Job
from cutlayer.data.batches import Schedule
from cutlayer.data.split import Split
from cutlayer.errors import ProtocolError
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.parties.guards.numbers import check_weights
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.passive_step import PassiveStep
from cutlayer.parties.phases import answers
from cutlayer.parties.session.checkpoint import START_POINT, Point, State
from cutlayer.parties.session.local import EVALUATION_ROWS, LocalSide, prepare_links
from cutlayer.parties.session.state import PartyState, part_of


class PassiveSide:
    """Sends embeddings of its rows and trains on the gradients that come back.

    Args:
        job: The shared job.
        local: This party's own table, protections and folder.
        port: Port to the active party.

    Attributes:
        phases: The party's phases.
        epoch: Number of the next epoch; set by the agreement, as all that follows.
        step: Number of its steps that are done.
        alignment: What the alignment made known.
        split: Rows for training, validation and testing.
        pilot: Row numbers of the pilot, int64 (m,), ascending; `None` where all rows are released.
        schedule: The batches of the training rows.
        setup: Columns, bottom model and protections.
        transcript: Record of the sampled steps.
        training_step: Takes the steps.
        drawn_labels: Drawn labels of its training rows; `None` where none were sent.
        released: Embeddings of the single release by row, (n, width); `None` before it.
        stopped: Whether the active party has ended the training.
        best_epoch: Epoch of the best weights so far; -1 before the first.
        fit_losses: Loss after each epoch of the fit that comes before a single release.
        when_fitted: Called once the party has fitted a model to drawn labels, before any grade is drawn.
    """

    epoch: int
    step: int
    alignment: AlignmentRecord | None
    split: Split
    pilot: Tensor | None
    schedule: Schedule
    setup: PassiveSetup
    transcript: Transcript
    training_step: PassiveStep

    def __init__(self, job: Job, local: LocalSide, port: Port) -> None:
        self.job, self.local, self.port = job, local, port
        self.phases = job.phases_of(local.name)
        prepare_links(job, local, [port])
        self.checkpoints = local.checkpoints(job)
        self.stopped, self.best_epoch = False, -1
        self.released: Tensor | None = None
        self.drawn_labels: DrawnLabels | None = None
        self.fit_losses: tuple[float, ...] = ()
        self.when_fitted: Callable[[], object] = lambda: None

    def begin(self, point: Point) -> None:
        """Make what takes steps, and continue from a checkpoint.

        Args:
            point: Point of the checkpoint.
        """
        job, local = self.job, self.local
        sampling = local.sampling(job, self.schedule.steps_per_epoch, self.schedule.batch_size)
        self.transcript = Transcript(local.transcript, sampling)
        self.training_step = PassiveStep(job, local, self.setup, self.port, self.transcript, sampling)
        if point == START_POINT:
            return
        # After the chain is set up: this restores the state of its protections, and the random state.
        saved = self.checkpoints.load_at(point)
        self.state.load(saved)
        self.stopped, self.best_epoch = bool(saved[1]["stop"]), int(saved[1]["best_epoch"])
        self.training_step.warmup_gradients = saved[0].get("warmup_gradients")
        if "transcript" in saved[1]:
            self.transcript.load(*part_of(saved, "transcript"))

    @property
    def state(self) -> PartyState:
        """The bottom model with its optimiser, and the protections."""
        return self.setup.state

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

    def answer_until(self, last: Kind, epoch: int) -> Generator[Port, Message, Message]:
        """Serve requests for rows until a message of kind `last` arrives."""
        self.setup.bottom.eval()
        while True:
            message = yield self.port
            check_not_closed(message)
            if message.kind == last and message.epoch == epoch:
                return message
            if message.kind != Kind.REQUEST:
                raise ProtocolError.expected(f"a request or {last} of epoch {epoch}", message.kind)
            answers.answer_request(self, message, epoch)

    def snapshot(self, epoch: int) -> State:
        """This party's part of a checkpoint."""
        self.local.readings.read()
        tensors, plain = self.state.snapshot()
        check_weights(tensors, self.local.name, epoch)
        if self.training_step.warmup_gradients is not None and self.released is None:
            tensors["warmup_gradients"] = self.training_step.warmup_gradients
        return self.state.with_guard((tensors, plain | {"stop": self.stopped, "best_epoch": self.best_epoch}))
