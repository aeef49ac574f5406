"""The active party's record of what crossed: the messages of sampled steps, and those of followed rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy.typing as npt
import torch
from numpy import int64
from torch import Tensor

from cutlayer.alignment.held_rows import HeldRows
from cutlayer.channel.transcript import LAYER_ROWS, Step, Transcript
from cutlayer.config import Job
from cutlayer.data.batches import Schedule
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.session.checkpoint import State
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.state import part_of, with_part


class ActiveRecords:
    """Records messages of rows that all parties have.

    Args:
        job: The shared job.
        local: The party's private side.
        held: Which of the party's rows each passive party has.
        schedule: The batches.
        training: Training rows that all parties have, int64 (n,).

    Attributes:
        transcript: Record of the sampled steps.
        followed: The followed rows, int64 (m,); `None` where none are.
    """

    def __init__(
        self, job: Job, local: LocalSide, held: HeldRows, schedule: Schedule, training: npt.NDArray[int64]
    ) -> None:
        self._local, self._held = local, held
        steps = schedule.steps_per_epoch
        recorded = max(1, -(-len(training) // steps)) if job.draws_batches else schedule.batch_size
        self._sampling = local.sampling(job, steps, recorded)
        self.transcript = Transcript(local.transcript, self._sampling)
        follows = len(training) > 0
        self._follower = local.follower(torch.from_numpy(training), self._sampling) if follows else None
        self.followed = None if self._follower is None else self._follower.rows

    def records_step(self, epoch: int, step: int) -> bool:
        """Whether anything of a step is recorded."""
        follows = self._follower is not None and self._sampling.takes_epoch(epoch)
        return follows or self._local.records(self._sampling, epoch, step)

    def records_layers(self, epoch: int, step: int) -> bool:
        """Whether the outputs of the layers in a step are recorded."""
        return self._local.records_layers(self._sampling, epoch, step)

    def add(
        self,
        order: StepOrder,
        seen: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        layers: Mapping[str, Tensor],
    ) -> None:
        """Add the messages of a step, as far as it has them."""
        epoch, step, rows, sent = order.epoch, order.step, order.rows, gradients
        if parts := self._held.parts(rows):
            common = torch.stack([part.mask for part in parts.values()]).all(dim=0).nonzero().flatten()
            rows, layers = rows[common], {name: output[common] for name, output in layers.items()}
            seen = {name: rows_of_all[common] for name, rows_of_all in seen.items()}
            gradients = {name: rows_of_all[common] for name, rows_of_all in gradients.items()}
        if self._follower is not None:
            self._follower.add(epoch, step, rows, seen, gradients, sent)
        if self._local.records(self._sampling, epoch, step):
            first = {name: output[:LAYER_ROWS] for name, output in layers.items()}
            self.transcript.add(Step(epoch, step, rows, seen, gradients, first))

    def close(self, epoch: int) -> None:
        """Write what was recorded of an epoch."""
        self.transcript.close(epoch)
        if self._follower is not None:
            self._follower.close(epoch)

    def with_records(self, state: State) -> State:
        """A checkpoint within an epoch with what was recorded of it."""
        state = with_part(state, "transcript", *self.transcript.snapshot())
        return state if self._follower is None else with_part(state, "followed", self._follower.snapshot(), {})

    def load(self, state: State, epoch: int) -> None:
        """Go on with what was recorded of an epoch before a checkpoint within it."""
        self.transcript.load(*part_of(state, "transcript"))
        if self._follower is not None:
            self._follower.load(epoch, part_of(state, "followed")[0])
