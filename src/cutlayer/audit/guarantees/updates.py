"""Canaries against DP-SGD: rows with two opposite gradients, tested on every noisy gradient of the passive party."""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor, nn

from cutlayer.audit.empirical import Score
from cutlayer.audit.guarantees.canaries import LENGTH_FACTOR, canary_job, neighbour_tables, scores_of, sides_of
from cutlayer.audit.guarantees.wire import Parties, train_on_canaries
from cutlayer.channel import Kind, Message
from cutlayer.config import Job
from cutlayer.models import Inputs

_SLOTS = 512


class SlotBottom(nn.Module):
    """A bottom model with one weight for each slot; a row uses its slot's weight with its own sign.

    The gradient of a row therefore has one entry, whose sign is the secret; the other rows of a batch use other slots.

    Args:
        inputs: Inputs with a column of slots and a column of sides, both categorical.
        length: Factor of the weight.
    """

    def __init__(self, inputs: Inputs, length: float) -> None:
        super().__init__()
        self.width = 1
        self.length = length
        self.weight = nn.Parameter(torch.zeros(inputs.cardinalities[0], 1))

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch; see `BottomModel.forward`."""
        del numbers
        return self.length * sides_of(codes)[:, None] * self.weight[codes[:, 0].long()]


def update_scores(job: Job, party: str, protection: str, canaries: int, key: bytes) -> list[Score]:
    """Train on canaries with the job's schedule and this protection alone; score every update of the bottom model.

    Args:
        job: Job of the run.
        party: Passive party whose guarantee is tested.
        protection: Name of the mechanism, whose `clip` bounds each row's gradient.
        canaries: Number of rows; about half of them train.
        key: 32 bytes that replace all keys and secrets.

    Returns:
        The scores of `_UpdateReader`.
    """
    clip = float((job.parties[party].protections[protection] or {})["clip"])
    reader = _UpdateReader(canaries, clip)
    tables = neighbour_tables(job.active, party, canaries, _SLOTS, key)
    train_on_canaries(_job(job, party, protection), tables, key, reader, reader.wrap)
    return reader.scores()


class _UpdateReader:
    """Adds up, over all updates, what differs between the two neighbours of a row.

    - `sum`: the entry of the row's slot minus the share of the other rows of the batch, times the sign of the row's
      own gradient there.
    - `repeat`: the same minus the noise in the same entry of the previous update, if another row used it. It detects
      noise that steps share.

    Args:
        rows: Number of canaries.
        clip: Norm that each row's gradient is clipped to.
    """

    def __init__(self, rows: int, clip: float) -> None:
        self.clip = clip
        self.totals = {name: torch.zeros(rows, dtype=torch.float64) for name in ("sum", "repeat")}
        self._pending: tuple[Message, Parties] | None = None
        self._seen = set[bytes]()
        self._last: Tensor | None = None

    def __call__(self, message: Message, parties: Parties) -> None:
        if message.kind is Kind.GRADIENT:
            self._pending = message, parties

    def wrap(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Read the gradients that the optimiser is about to take."""
        optimizer.register_step_pre_hook(lambda taken, *_: self._read(taken.param_groups[0]["params"][0].grad))
        return optimizer

    def _read(self, update: Tensor) -> None:
        digest = blake2b(update.numpy().tobytes(), digest_size=16).digest()
        if self._pending is None or digest in self._seen:
            return
        self._seen.add(digest)
        message, parties = self._pending
        self.passive = parties.passive
        rows = list(parties.passive.schedule.epoch(message.epoch))[message.step]
        codes, _ = parties.passive.setup.store.gather(rows)
        slots = codes[:, 0].long()
        # What the neighbour with side 1 adds to its slot; its own side gives the sign.
        contribution = self.clip * message.tensors["gradient"][:, 0].sign().double()
        added = contribution * sides_of(codes).double()
        whole = len(rows) * update[:, 0].double()
        noise = whole - torch.zeros_like(whole).index_add(0, slots, added)
        before = noise if self._last is None else self._last
        self._last = noise
        self.totals["sum"][rows] += (noise[slots] + added) * contribution
        repeated = (noise[slots] - before[slots] + added) * contribution
        self.totals["repeat"][rows] += repeated if before is not noise else 0.0

    def scores(self) -> list[Score]:
        """Each statistic of the training rows, with the neighbour that each row is."""
        return scores_of(self.totals, self.passive, self.passive.split.part("train"))


def _job(job: Job, party: str, protection: str) -> Job:
    """The run's own schedule and the mechanism alone, with the bottom model of the canaries."""
    train = job.train.model_dump(mode="json") | {
        "batch_size": _SLOTS // 4,
        "split": {"test": 0.1, "validation": 0.0},
        # Weights that hardly move: the gradients stay as long as at the start.
        "optimizer": {"kind": "sgd", "lr": 1e-9},
        "release": "every_step",
        "warmup_epochs": 0,
    }
    bottom = {"kind": "python", "path": f"{__name__}:SlotBottom", "args": {"length": LENGTH_FACTOR}}
    privacy = {protection: job.parties[party].protections[protection]}
    return canary_job(job.active, party, bottom, train, features=privacy)
