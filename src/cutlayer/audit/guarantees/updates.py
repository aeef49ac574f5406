"""Canaries against DP-SGD: two opposite rows, and every noisy gradient that the passive party's optimiser takes."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from cutlayer.audit.empirical import Score
from cutlayer.audit.guarantees.embeddings import sides
from cutlayer.audit.guarantees.wire import Parties, train_on_canaries
from cutlayer.channel import Kind, Message
from cutlayer.config import Job, validated
from cutlayer.models import Inputs

ID, LABEL, SLOT, SIDE = "id", "label", "slot", "side"
BATCH = 512
LENGTH = 1e4
"""How much longer a canary's gradient is than its share of the loss: any clipping makes it as long as it lets pass."""


class SlotBottom(nn.Module):
    """A bottom model with one weight for each slot, of which a row uses its own with its own sign.

    The gradient of a row so has one entry, whose sign is the secret; the other rows of a batch have entries elsewhere.

    Args:
        inputs: a column of slots and a column of sides, both categorical.
        length: factor of the weight.
    """

    def __init__(self, inputs: Inputs, length: float) -> None:
        super().__init__()
        self.width = 1
        self.length = length
        self.weight = nn.Parameter(torch.zeros(inputs.cardinalities[0], 1))

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch; see `BottomModel.forward`."""
        del numbers
        return self.length * sides(codes)[:, None] * self.weight[codes[:, 0].long()]


def update_scores(job: Job, party: str, protection: str, canaries: int, key: bytes) -> list[Score]:
    """Train on canaries with the job's schedule and this protection alone; score every update of the bottom model.

    Args:
        job: of the run.
        party: the passive party whose guarantee is tested.
        protection: name of the mechanism, whose `clip` bounds each row's gradient.
        canaries: number of rows; about half of them train.
        key: 32 bytes in place of all keys and secrets.

    Returns:
        The scores of `_UpdateReader`.
    """
    draw = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
    side = torch.randint(2, (canaries,), generator=draw).tolist()
    ids = [f"canary {number}" for number in range(canaries)]
    slots = [f"{number % BATCH:04d}" for number in range(canaries)]
    tables = {
        job.active: pa.table({ID: ids, LABEL: [str(number % 2) for number in range(canaries)]}),
        party: pa.table({ID: ids, SLOT: slots, SIDE: ["ab"[bit] for bit in side]}),
    }
    options = job.parties[party].protections[protection] or {}
    reader = _UpdateReader(canaries, float(options["clip"]))
    train_on_canaries(_job(job, party, protection), tables, key, reader, reader.wrap)
    return reader.scores()


class _UpdateReader:
    """Adds up, over all updates, what differs between the two neighbours of a row.

    - `sum`: the entry of the row's slot less what the other rows of the batch add to it, times the sign that the row's
      own gradient would have there.
    - `repeat`: the same after the noise in the same entry of the update before was subtracted, where another row stood
      there. It finds noise that steps share.

    Args:
        rows: number of canaries.
        clip: the norm that each row's gradient is clipped to.
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
        codes, _ = parties.passive.store.gather(rows)
        slots = codes[:, 0].long()
        # What the neighbour with side 1 adds to its slot; its own side gives the sign.
        line = self.clip * message.tensors["gradient"][:, 0].sign().double()
        own = line * sides(codes).double()
        whole = len(rows) * update[:, 0].double()
        noise = whole - torch.zeros_like(whole).index_add(0, slots, own)
        before = noise if self._last is None else self._last
        self._last = noise
        self.totals["sum"][rows] += (noise[slots] + own) * line
        self.totals["repeat"][rows] += (noise[slots] - before[slots] + own) * line if before is not noise else 0.0

    def scores(self) -> list[Score]:
        """Each statistic of the training rows, with the neighbour that each row is."""
        rows = self.passive.split.part("train")
        present = sides(self.passive.store.gather(rows)[0]) > 0
        return [Score(name, total[rows], present) for name, total in self.totals.items()]


def _job(job: Job, party: str, protection: str) -> Job:
    """The run's own schedule and the mechanism, on a table of canaries and with a bottom model of theirs."""
    train: dict[str, Any] = job.train.model_dump(mode="json") | {
        "batch_size": BATCH // 4,
        "threads": 1,
        "early_stop": None,
        "seed": 0,
        "split": {"test": 0.1, "validation": 0.0},
        # Weights that hardly move: the gradients stay as long as at the start.
        "optimizer": {"kind": "sgd", "lr": 1e-9},
        "release": "every_step",
        "warmup_epochs": 0,
    }
    common: dict[str, Any] = {"id": ID, "audit": {"every": "never"}}
    privacy = {protection: job.parties[party].protections[protection]}
    raw = {
        "task": "binary",
        "parties": {
            job.active: {**common, "role": "active", "label": LABEL, "features": {"include": "none"}},
            party: {**common, "role": "passive", "privacy": privacy},
        },
        "model": {
            "bottom": {"kind": "python", "path": f"{__name__}:SlotBottom", "args": {"length": LENGTH}},
            "top": {"kind": "mlp", "hidden": []},
        },
        "train": train,
    }
    return validated(Job, raw, "canaries")
