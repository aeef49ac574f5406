"""What one party brings to a run and shares with nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from cutlayer.channel.transcript import Sampling
from cutlayer.config import AuditConfig, Job
from cutlayer.data.party_data import PartyTable
from cutlayer.protections.chain import Chain
from cutlayer.protections.label_memory import LabelMemory

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
        starting_key: 32 bytes for the initial weights and all else that is drawn from the global random state.
        audit: what to record.
        label_column: of the active party; empty on a passive one.
        label_memory: what labels were drawn for in this and earlier runs; `None` with a supplied key.
        resume: continue from the committed checkpoint in `folder`.
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
    starting_key: bytes = field(repr=False)
    audit: AuditConfig
    label_column: str = ""
    label_memory: LabelMemory | None = field(default=None, repr=False)
    resume: bool = False
    wrap: Callable[[torch.optim.Optimizer], torch.optim.Optimizer] | None = None

    def sampling(self, job: Job, steps_per_epoch: int) -> Sampling:
        """Which steps this party records."""
        limit = self.audit.max_megabytes * 2**20
        train = job.train
        return Sampling.of(steps_per_epoch, train.batch_size, self.audit.rows, train.epochs, limit)
