"""What one party brings to a run and shares with nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from cutlayer.channel.transcript import Sampling
from cutlayer.config import AuditConfig, Job, LimitsConfig
from cutlayer.data.party_data import PartyTable
from cutlayer.protections.chain import Chain

EVALUATION_ROWS = 4096
"""Rows per request for held-out rows."""
HELD_OUT = ("validation", "test")
"""The parts of the rows that may be asked for; training rows are sent on schedule and no other way."""


@dataclass(frozen=True)
class Local:
    """One party's own side of a job.

    Attributes:
        name: of the party.
        table: its rows.
        chain: its protections.
        folder: the run folder; this party writes only below its own names in it.
        data: where the encoded columns are stored; several runs on the same rows may share it.
        secret: long-lived, for draws that must repeat in the next run on the same rows.
        noise_key: 32 bytes for this run's noise.
        audit: what to record.
        resume: continue from the committed checkpoint in `folder`.
        limits: of the numbers that it sends and accepts.
        wrap: what a passive party that attacks does to its own optimiser; what it remembers must be in the optimiser's
            state, so that a resume continues it.
    """

    name: str
    table: PartyTable
    chain: Chain
    folder: Path
    data: Path
    secret: bytes = field(repr=False)
    noise_key: bytes = field(repr=False)
    audit: AuditConfig
    label_column: str = ""
    resume: bool = False
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    wrap: Callable[[torch.optim.Optimizer], torch.optim.Optimizer] | None = None

    def sampling(self, job: Job, steps_per_epoch: int) -> Sampling:
        """Which steps this party records."""
        limit = self.audit.max_megabytes * 2**20
        train = job.train
        return Sampling.of(steps_per_epoch, train.batch_size, self.audit.rows, train.epochs, limit)
