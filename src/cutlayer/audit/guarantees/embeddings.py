"""Canaries against noisy embeddings: rows with two opposite embeddings, tested on every message of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cutlayer.accounting import GaussianRelease
from cutlayer.audit.empirical import Score
from cutlayer.audit.guarantees.canaries import BATCH, LENGTH_FACTOR, canary_job, neighbour_tables, scores_of, sides_of
from cutlayer.audit.guarantees.wire import Parties, train_on_canaries
from cutlayer.channel import Kind, Message, rows_digest
from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.data.batches import evaluation_batches
from cutlayer.kernels.noise.float_noise import impossible_entries
from cutlayer.kernels.rows.row_norms import clip_rows
from cutlayer.models import Inputs
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.phases.release import release_batches
from cutlayer.parties.session.local import EVALUATION_ROWS, HELD_OUT

_LINES = 64
"""Number of lines, each through two opposite points."""
SCORES = ("sum", "pair", "repeat", "exclusion")


class CanaryBottom(nn.Module):
    """A bottom model that maps a row to one of two opposite points, which swap in every epoch.

    As in a real training, the content of a release changes although the row does not: noise that is repeated for
    other content cancels in the sum over the epochs.

    Args:
        inputs: Inputs with a column of lines and a column of sides, both categorical.
        width: Number of columns of the embedding.
        length: Norm of each row.
    """

    def __init__(self, inputs: Inputs, width: int, length: float) -> None:
        super().__init__()
        self.width = width
        generator = torch.Generator().manual_seed(0)
        lines = torch.randn(inputs.cardinalities[0], width, generator=generator)
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
        """Sign of the two points in this epoch, 1 or -1."""
        return 1.0 if int(self.epochs) % 2 else -1.0

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch; see `BottomModel.forward`."""
        del numbers
        return self.direction * sides_of(codes)[:, None] * self.lines[codes[:, 0].long()]


def embedding_scores(
    job: Job, party: str, protection: str, event: GaussianRelease, width: int, canaries: int, key: bytes
) -> list[Score]:
    """Train on canaries with the job's schedule and the party's protections; score what was sent.

    Args:
        job: Job of the run.
        party: Passive party whose guarantee is tested.
        protection: Name of the mechanism, whose `clip` bounds each row.
        event: Releases of the mechanism according to the ledger.
        width: Number of columns of the party's embedding.
        canaries: Number of rows; about half of them train.
        key: 32 bytes that replace all keys and secrets.

    Returns:
        For the training rows and for the held-out rows, each score of `_EmbeddingReader`.
    """
    clip = float((job.parties[party].protections[protection] or {})["clip"])
    reader = _EmbeddingReader(canaries, clip, event.noise_multiplier * 2 * clip)
    tables = neighbour_tables(job.active, party, canaries, _LINES, key)
    train_on_canaries(_job(job, party, width, clip * LENGTH_FACTOR, canaries), tables, key, reader)
    return reader.scores()


class _EmbeddingReader:
    """Adds up, over all messages, four statistics of each row that differ between the two neighbours.

    - `sum`: the release along the line between the neighbours. The best test where the noise is as stated.
    - `pair`: the same minus the noise of another row of the batch, whose content is known. It detects noise that rows
      share.
    - `repeat`: the same minus the noise at this position of the last message of the same size, if another row was
      there. It detects noise that messages share.
    - `exclusion`: the number of entries that the first neighbour cannot have produced, minus that of the second, if
      float32 noise was added to float32 rows (Mironov 2012; Jin et al., arXiv 2112.05307).

    Args:
        rows: Number of canaries.
        clip: Norm that each row is clipped to.
        sigma: Standard deviation of the noise.
    """

    def __init__(self, rows: int, clip: float, sigma: float) -> None:
        self.clip = clip
        self.sigma = sigma
        self.totals = {name: torch.zeros(rows, dtype=torch.float64) for name in SCORES}
        self._last: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, message: Message, parties: Parties) -> None:
        if message.kind not in (Kind.EMBEDDING, Kind.EVALUATION, Kind.RELEASE):
            return
        self.passive = parties.passive
        rows = _rows_of(parties.passive, message)
        released = message.tensors["embedding"]
        codes, numbers = parties.passive.setup.store.gather(rows)
        with torch.no_grad():
            content = clip_rows(parties.passive.setup.bottom(codes, numbers), self.clip)
        side = sides_of(codes).double()
        # Both neighbours of a row are content times its side: the difference between them is what is scored.
        line = side[:, None] * content.double()
        noise = released.double() - content.double()
        self.totals["sum"][rows] += (released.double() * line).sum(1)
        self.totals["pair"][rows] += ((released.double() - noise.roll(1, 0)) * line).sum(1)
        self.totals["repeat"][rows] += ((released.double() - self._noise_before(rows, noise)) * line).sum(1)
        against = [impossible_entries(released, point.float(), self.sigma) for point in (-line, line)]
        self.totals["exclusion"][rows] += (against[0] - against[1]).double()

    def _noise_before(self, rows: Tensor, noise: Tensor) -> Tensor:
        """The noise of the last message of this size, zeros where its row was the same; stores this message's noise."""
        last_rows, last_noise = self._last.get(len(rows), (rows, noise))
        self._last[len(rows)] = (rows, noise)
        return last_noise * (last_rows != rows)[:, None]

    def scores(self) -> list[Score]:
        """Each statistic of training and of held-out rows, with the neighbour that each row is."""
        split = self.passive.split
        groups = {"training": split.part("train"), "held-out": torch.cat([split.part(part) for part in HELD_OUT])}
        return [
            score
            for group, rows in groups.items()
            if len(rows)
            for score in scores_of(self.totals, self.passive, rows, f" of {group} rows")
        ]


def _rows_of(party: PassiveParty, message: Message) -> Tensor:
    """The rows of a message, from the party's own schedule."""
    if message.kind is Kind.EMBEDDING:
        return list(party.schedule.epoch(message.epoch))[message.step]
    if message.kind is Kind.RELEASE:
        candidates = [rows for _, rows in release_batches(party.split, party.setup.bottom.width)]
    else:
        candidates = [rows for part in HELD_OUT for rows in evaluation_batches(party.split.part(part), EVALUATION_ROWS)]
    return next(rows for rows in candidates if rows_digest(rows) == message.rows)


def _job(job: Job, party: str, width: int, length: float, rows: int) -> Job:
    """The run's own schedule and the party's own protections, with the bottom model of the canaries."""
    parts = [part for part in ("test", "validation") if getattr(job.train.split, part) > 0]
    train = job.train.model_dump(mode="json") | {
        "batch_size": min(BATCH, rows // 4),
        # Half of the rows train; the rest is held out in the same parts as in the run.
        "split": {"test": 0.0, "validation": 0.0} | dict.fromkeys(parts, 0.5 / len(parts)),
        "release": "once" if Phase.RELEASE in job.phases_of(party) else "every_step",
    }
    bottom = {"kind": "python", "path": f"{__name__}:CanaryBottom", "args": {"width": width, "length": length}}
    return canary_job(job.active, party, bottom, train, features=job.parties[party].privacy)
