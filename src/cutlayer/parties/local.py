"""What one party brings to a run and shares with nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from cutlayer.accounting import MARKER, ReleaseLog
from cutlayer.channel.transcript import Sampling
from cutlayer.config import AuditConfig, Job, LimitsConfig
from cutlayer.data.party_data import PartyTable
from cutlayer.kernels.noise import derive
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
        releases: folder of this party's release logs, beside its secret; `None` where nothing leaves the process or
            anybody can repeat the noise: they are then in the run folder.
        forget_peer_progress: go on where a peer names an earlier epoch than this party has saved, and count what is
            released again.
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
    starting_key: bytes = field(repr=False)
    audit: AuditConfig
    label_column: str = ""
    label_memory: LabelMemory | None = field(default=None, repr=False)
    resume: bool = False
    releases: Path | None = None
    forget_peer_progress: bool = False
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    wrap: Callable[[torch.optim.Optimizer], torch.optim.Optimizer] | None = None

    def release_log(self, job: Job, rows: bytes) -> ReleaseLog:
        """The log of what this run releases, by the run's noise key.

        Logs of one job share a folder, whose name tells nobody without the secret which they are. It does not hang on
        the common rows: which those are, and in which order, is a peer's word, and another one must not hide what
        earlier runs released.

        Args:
            job: whose schedule is run.
            rows: digest of the ids of the common rows, in their order.
        """
        own = self.folder / "checkpoint" / self.name
        which = derive(self.secret, b"release logs", self.name.encode(), job.digest().encode(), size=8).hex()
        run = derive(self.noise_key, b"release log", size=8).hex()
        identity = {"party": self.name, "job": job.digest(), "rows": rows.hex(), "folder": str(self.folder.resolve())}
        if self.releases is None:
            return ReleaseLog(own / "releases" / which / f"{run}.jsonl", identity)
        return ReleaseLog(self.releases / which / f"{run}.jsonl", identity, own / MARKER)

    def sampling(self, job: Job, steps_per_epoch: int) -> Sampling:
        """Which steps this party records."""
        limit = self.audit.max_megabytes * 2**20
        train = job.train
        return Sampling.of(steps_per_epoch, train.batch_size, self.audit.rows, train.epochs, limit)
