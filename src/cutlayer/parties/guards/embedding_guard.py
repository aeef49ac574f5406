"""The active party's scrutiny of embeddings: against those of the last batches, and of the same rows an epoch ago."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cutlayer.config.guard import GuardConfig
from cutlayer.parties.guards.guard import Guard

MIN_ROWS = 16
"""Rows of a batch below which its variance is a rough one."""
BATCH_DECAY = 0.5
"""Weight of a batch's variance after the next one."""
VARIANCE_FACTOR, MAX_SHIFT = 5.0, 4.0
"""Change of the variance of a party's embeddings that is an alarm, and change of their mean in variances. Where the
party protects them, both are measured by the largest usual variance so far, and a fall is none: a penalty may draw all
rows together, and let them go again. Honest ones under `nopeek` had up to 2.4 times that variance."""
MAX_ROW_ENERGY = 40.0
"""Energy of a row's distance from the mean, over the mean of all rows, that is an alarm."""
MEMORY_DIRECTIONS = 4
"""Random directions in which each row's embedding is remembered for an epoch."""
MOVED_ENERGY, MAX_MOVED_ENERGY, MAX_TURNED_COSINE = 14.0, 20.0, 0.5
"""As `MAX_ROW_ENERGY`, of a row whose distance from the mean has turned since the epoch before, by a cosine below the
third number. The limit is the first number. It rises, up to the second, where batches usually have far rows, as those
of tables with rare values have."""
FARTHEST_FACTOR, FARTHEST_DECAY = 2.5, 0.95
"""The limit is then this multiple of the usual energy of a batch's farthest row; and the weight of former batches
in that. Nine of 1,560 honest trainings, all of Adult, had 14.0 to 17.8, 1.7 to 2.4 times that of such rows."""
FIRST_COMPARED_EPOCH, MIN_LIKENESS, MIN_CHANGE = 2, 0.35, 1e-6
"""First epoch in which embeddings are compared with those of the same rows an epoch ago; their minimum likeness, the
larger of slope and correlation, since noise on gradients shrinks honest ones and models that learn stretch them: in
honest trainings it is 0.5 or more; and the part of their energy that has to change in any epoch."""


@dataclass
class Memory:
    """State of the guard for one peer.

    Attributes:
        mean: Running mean of its embeddings (width,).
        variance: Their running variance, the sum over the columns.
        largest: The largest it has been.
        farthest: Running mean of the energy of each batch's farthest row, over the mean of all rows.
        rows: Each row's last embedding in random directions, float32 (N, MEMORY_DIRECTIONS); NaN before the first.
        directions: These directions (width, MEMORY_DIRECTIONS).
    """

    mean: Tensor
    variance: float
    largest: float
    farthest: float
    rows: Tensor
    directions: Tensor


class EmbeddingGuard(Guard):
    """Scrutinises the embeddings that the active party receives.

    A probe replaces, scales or swaps the embeddings of whole batches, a replay repeats them, and a trigger stands out
    of its batch. In an honest training variance and mean change slowly from batch to batch, a row's embedding
    resembles that of the epoch before and is never the same, and no row is far from all others. What this cannot see:
    smaller changes (docs/results/malicious.md).

    Args:
        party: The active party.
        settings: Its settings.
        rows: Number of common rows.
        seed: Seed of the directions, which no peer knows.
    """

    def __init__(self, party: str, settings: GuardConfig, rows: int, seed: int) -> None:
        super().__init__(party, settings)
        self._rows, self._seed = rows, seed
        self._peers: dict[str, Memory] = {}

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """State for each peer."""
        tensors, plain = super().snapshot()
        for peer, memory in self._peers.items():
            tensors |= {f"{peer}/mean": memory.mean, f"{peer}/rows": memory.rows}
        known = {peer: [each.variance, each.largest, each.farthest] for peer, each in self._peers.items()}
        return tensors, plain | {"peers": known}

    def load(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        super().load(tensors, plain)
        for peer, (variance, largest, farthest) in plain.get("peers", {}).items():
            mean, rows = tensors[f"{peer}/mean"], tensors[f"{peer}/rows"]
            self._peers[peer] = Memory(mean, variance, largest, farthest, rows, self._directions(len(mean)))

    def add(self, epoch: int, step: int, peer: str, rows: Tensor, embedding: Tensor) -> None:
        """Compare a batch of a peer with those before.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            peer: The passive party.
            rows: Row numbers, int64 (n,).
            embedding: As received, float32 (n, width).

        Raises:
            ProtocolError: The alarm, where the settings say stop.
        """
        sent = embedding.detach().flatten(1).double().cpu()
        if len(sent) < MIN_ROWS:
            return
        mean, variance = sent.mean(dim=0), float(sent.var(dim=0, correction=0).sum())
        if not math.isfinite(variance):  # refused elsewhere, where it comes from this party's own training too
            return
        distances = (sent - mean).square().sum(dim=1)
        distances = distances / variance if variance else distances
        far = float(distances.max())
        if peer not in self._peers:
            unseen = torch.full((self._rows, MEMORY_DIRECTIONS), math.nan)
            self._peers[peer] = Memory(mean, variance, variance, far, unseen, self._directions(sent.shape[1]))
        memory = self._peers[peer]
        # Not in the first epoch: the embeddings of honest models that have just begun change by any factor.
        if epoch and (detail := self._departure(memory, epoch, rows, sent, mean, variance, distances)):
            self._raise_alarm(peer, epoch, step, detail)
        memory.rows[rows] = (sent @ memory.directions).float()
        memory.mean = BATCH_DECAY * memory.mean + (1 - BATCH_DECAY) * mean
        memory.variance = BATCH_DECAY * memory.variance + (1 - BATCH_DECAY) * variance
        memory.largest = max(memory.largest, memory.variance)
        memory.farthest = FARTHEST_DECAY * memory.farthest + (1 - FARTHEST_DECAY) * far

    def _departure(
        self, memory: Memory, epoch: int, rows: Tensor, sent: Tensor, mean: Tensor, variance: float, distances: Tensor
    ) -> str:
        """Departures from an honest training, in words; empty where there are none."""
        protected = self.settings.protected
        usual = memory.largest if protected else memory.variance
        least = 0.0 if protected else usual / VARIANCE_FACTOR
        shift = float((mean - memory.mean).square().sum())
        if usual > 0 and not least <= variance <= usual * VARIANCE_FACTOR:
            return f"embeddings of {variance / usual:.2g} times their usual variance"
        if usual > 0 and shift > MAX_SHIFT * usual:
            return f"embeddings whose mean moved by {(shift / usual) ** 0.5:.2g} deviations"
        if protected:  # a penalty draws all rows together but rare ones
            return ""
        if (largest := float(distances.max())) > MAX_ROW_ENERGY:
            return f"an embedding {largest**0.5:.2g} times as far from the mean as usual"
        return self._departure_from_before(memory, epoch, rows, sent, distances)

    def _departure_from_before(self, memory: Memory, epoch: int, rows: Tensor, sent: Tensor, distances: Tensor) -> str:
        """The same by what the rows' embeddings were an epoch ago."""
        before, now = memory.rows[rows].double(), sent @ memory.directions
        known = ~before.isnan().any(dim=1)
        if int(known.sum()) < MIN_ROWS:
            return ""
        before, now = (part[known] - part[known].mean(dim=0) for part in (before, now))
        if float((now - before).square().sum()) < MIN_CHANGE * float(before.square().sum()):
            return "embeddings that are those of the epoch before"
        products = (before * now).sum(dim=1)
        turned = products < MAX_TURNED_COSINE * before.norm(dim=1) * now.norm(dim=1)
        limit = min(max(MOVED_ENERGY, FARTHEST_FACTOR * memory.farthest), MAX_MOVED_ENERGY)
        if (moved := float((distances[known] * turned).max())) > limit:
            return f"an embedding {moved**0.5:.2g} times as far from the mean as usual, and elsewhere than an epoch ago"
        likeness = float(products.sum() / before.norm() / torch.minimum(before.norm(), now.norm()))
        # The likeness is NaN where all embeddings are the same: a change of variance.
        if epoch >= FIRST_COMPARED_EPOCH and likeness < MIN_LIKENESS:
            return f"embeddings that follow those of the same rows in the epoch before by {likeness:.2g}"
        return ""

    def _directions(self, width: int) -> Tensor:
        draw = torch.Generator().manual_seed(self._seed)
        return torch.randn(width, MEMORY_DIRECTIONS, generator=draw, dtype=torch.double)
