"""Canaries against noisy embeddings: two opposite rows, and every message that the passive party sends of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from cutlayer.accounting import GaussianRelease
from cutlayer.audit.empirical import Score
from cutlayer.audit.guarantees.wire import Parties, train_on_canaries
from cutlayer.channel import Kind, Message, rows_digest
from cutlayer.config import Job, validated
from cutlayer.data.batches import evaluation_batches
from cutlayer.kernels.float_noise import impossible_entries
from cutlayer.kernels.row_norms import clip_rows
from cutlayer.models import Inputs
from cutlayer.parties.local import EVALUATION_ROWS, HELD_OUT
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.release import release_batches

ID, LABEL, LINE, SIDE = "id", "label", "line", "side"
_BATCH = 4096
_LINES = 64
SCORES = ("sum", "pair", "repeat", "exclusion")
LENGTH = 1e4
"""Norm of a canary's embedding in units of the clipping norm: any clipping makes it as long as it lets pass."""


class CanaryBottom(nn.Module):
    """A bottom model that sends a row to one of two opposite points, and exchanges them in every epoch.

    The content of a release so changes although the row does not, as it does in a training: noise that is repeated for
    other content cancels in the sum over the epochs.

    Args:
        inputs: a column of lines and a column of sides, both categorical.
        width: columns of the embedding.
        length: norm of each row.
    """

    def __init__(self, inputs: Inputs, width: int, length: float) -> None:
        super().__init__()
        self.width = width
        draw = torch.Generator().manual_seed(0)
        lines = torch.randn(inputs.cardinalities[0], width, generator=draw)
        self.register_buffer("lines", length * nn.functional.normalize(lines, dim=1))
        # Part of the checkpoint: a resumed epoch must repeat the content of the interrupted one.
        self.register_buffer("epochs", torch.zeros(()))
        self.lines: Tensor
        self.epochs: Tensor

    def train(self, mode: bool = True) -> CanaryBottom:
        """Count the epochs: each begins with one call."""
        super().train(mode)
        if mode:
            self.epochs += 1
        return self

    @property
    def direction(self) -> float:
        """1 or -1: which way round the two points are in this epoch."""
        return 1.0 if int(self.epochs) % 2 else -1.0

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch; see `BottomModel.forward`."""
        del numbers
        return self.direction * sides(codes)[:, None] * self.lines[codes[:, 0].long()]


def sides(codes: Tensor) -> Tensor:
    """Which of the two neighbours each row is, 1.0 or -1.0, from its codes (n, 2)."""
    return codes[:, 1].float().remainder(2) * 2 - 1


def scores_of(
    job: Job, party: str, protection: str, event: GaussianRelease, width: int, canaries: int, key: bytes
) -> list[Score]:
    """Train on canaries with the job's schedule and the party's protections; score what was sent.

    Args:
        job: of the run.
        party: the passive party whose guarantee is tested.
        protection: name of the mechanism, whose `clip` bounds each row.
        event: what the ledger says it releases.
        width: columns of its embedding.
        canaries: number of rows; about half of them train.
        key: 32 bytes in place of all keys and secrets.

    Returns:
        For the training rows and for the held-out rows, each score of `_EmbeddingReader`.
    """
    draw = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
    side = torch.randint(2, (canaries,), generator=draw).tolist()
    ids = [f"canary {number}" for number in range(canaries)]
    tables = {
        job.active: pa.table({ID: ids, LABEL: [str(number % 2) for number in range(canaries)]}),
        party: pa.table(
            {ID: ids, LINE: [f"{number % _LINES:02d}" for number in range(canaries)], SIDE: ["ab"[bit] for bit in side]}
        ),
    }
    clip = float((job.parties[party].protections[protection] or {})["clip"])
    reader = _EmbeddingReader(canaries, clip, event.noise_multiplier * 2 * clip)
    train_on_canaries(_job(job, party, width, clip * LENGTH, canaries), tables, key, reader)
    return reader.scores()


class _EmbeddingReader:
    """Adds up, over all messages, four statistics of each row that differ between the two neighbours.

    - `sum`: the release along the line between the neighbours. The best test where the noise is as stated.
    - `pair`: the same after the noise of another row of the batch was subtracted, whose content is known. It finds
      noise that rows share.
    - `repeat`: the same after the noise at this position of the last message of the same size was subtracted, where
      another row stood there. It finds noise that messages share.
    - `exclusion`: how many numbers could not have come from the one neighbour less how many could not have come from
      the other, if float32 noise was added to float32 rows (Mironov 2012; Jin et al., arXiv 2112.05307).

    Args:
        rows: number of canaries.
        clip: the norm that each row is clipped to.
        sigma: standard deviation of the noise.
    """

    def __init__(self, rows: int, clip: float, sigma: float) -> None:
        self.clip, self.sigma = clip, sigma
        self.totals = {name: torch.zeros(rows, dtype=torch.float64) for name in SCORES}
        self._last: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, message: Message, parties: Parties) -> None:
        if message.kind not in (Kind.EMBEDDING, Kind.EVALUATION, Kind.RELEASE):
            return
        self.passive = parties.passive
        rows, released = _rows_of(parties.passive, message), message.tensors["embedding"]
        codes, numbers = parties.passive.store.gather(rows)
        with torch.no_grad():
            content = clip_rows(parties.passive.bottom(codes, numbers), self.clip)
        side = sides(codes).double()
        # Both neighbours of a row are content times its side: the difference between them is what is scored.
        line = side[:, None] * content.double()
        noise = released.double() - content.double()
        self.totals["sum"][rows] += (released.double() * line).sum(1)
        self.totals["pair"][rows] += ((released.double() - noise.roll(1, 0)) * line).sum(1)
        self.totals["repeat"][rows] += ((released.double() - self._noise_before(rows, noise)) * line).sum(1)
        against = [impossible_entries(released, point.float(), self.sigma) for point in (-line, line)]
        self.totals["exclusion"][rows] += (against[0] - against[1]).double()

    def _noise_before(self, rows: Tensor, noise: Tensor) -> Tensor:
        """The noise of the last message of as many rows, zeros where it was of the same row; keeps this message's."""
        last_rows, last_noise = self._last.get(len(rows), (rows, noise))
        self._last[len(rows)] = (rows, noise)
        return last_noise * (last_rows != rows)[:, None]

    def scores(self) -> list[Score]:
        """Each statistic of training and of held-out rows, with the neighbour that each row is."""
        split, store = self.passive.split, self.passive.store
        groups = {"training": split.part("train"), "held-out": torch.cat([split.part(part) for part in HELD_OUT])}
        return [
            Score(f"{name} of {group} rows", total[rows], sides(store.gather(rows)[0]) > 0)
            for group, rows in groups.items()
            if len(rows)
            for name, total in self.totals.items()
        ]


def _rows_of(party: PassiveParty, message: Message) -> Tensor:
    """The rows of a message, from the party's own schedule."""
    if message.kind is Kind.EMBEDDING:
        return list(party.schedule.epoch(message.epoch))[message.step]
    if message.kind is Kind.RELEASE:
        candidates = [rows for _, rows in release_batches(party.split, party.bottom.width)]
    else:
        candidates = [rows for part in HELD_OUT for rows in evaluation_batches(party.split.part(part), EVALUATION_ROWS)]
    return next(rows for rows in candidates if rows_digest(rows) == message.rows)


def _job(job: Job, party: str, width: int, length: float, rows: int) -> Job:
    """The run's own schedule and the party's own protections, on canaries and with a bottom model of theirs."""
    split = job.train.split
    held_out = [share > 0 for share in (split.test, split.validation)]
    train: dict[str, Any] = job.train.model_dump(mode="json") | {
        "batch_size": min(_BATCH, rows // 4),
        "threads": 1,
        "early_stop": None,
        "seed": 0,
        # Half of the rows train; the others are held out in the same parts as in the run.
        "split": {
            name: share * 0.5 / sum(held_out) for name, share in zip(("test", "validation"), held_out, strict=True)
        },
        "release": "once" if job.train.releases_once(party) else "every_step",
    }
    common: dict[str, Any] = {"id": ID, "audit": {"every": "never"}}
    bottom: Mapping[str, Any] = {
        "kind": "python",
        "path": f"{__name__}:CanaryBottom",
        "args": {"width": width, "length": length},
    }
    raw = {
        "task": "binary",
        "parties": {
            job.active: {**common, "role": "active", "label": LABEL, "features": {"include": "none"}},
            party: {**common, "role": "passive", "privacy": dict(job.parties[party].privacy)},
        },
        "model": {"bottom": bottom, "top": {"kind": "mlp", "hidden": []}},
        "train": train,
    }
    return validated(Job, raw, "canaries")
