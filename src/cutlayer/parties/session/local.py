"""The private side of a party in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cutlayer.accounting import MARKER, ReleaseLog
from cutlayer.alignment.intersection import Alignment
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.channel import Port
from cutlayer.channel.compression import Compression, GradeBytes
from cutlayer.channel.row_history import Follower, draw_followed
from cutlayer.channel.transcript import Sampling
from cutlayer.config import AuditConfig, Job
from cutlayer.config.party import PartyConfig
from cutlayer.config.phases import grades_rows
from cutlayer.config.sampled_rows import sampled_rows
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.kernels.noise.aes import Part, derive
from cutlayer.kernels.rows.to_device import to_device
from cutlayer.models import stated_width
from cutlayer.parties.compute.device import CPU
from cutlayer.parties.compute.readings import Readings
from cutlayer.parties.compute.resident import ResidentRows
from cutlayer.parties.faults import FaultPoint, Faults, no_faults
from cutlayer.parties.grade_memory import GradeMemory
from cutlayer.parties.session.checkpoint import Checkpoints
from cutlayer.parties.session.plan import plan_of
from cutlayer.protections.contract.base import Context
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.label_memory.memory import LabelMemory
from cutlayer.storage.row_arrays import computed_rows

EVALUATION_ROWS = 4096
"""Number of rows of a request for held-out rows."""
HELD_OUT = ("validation", "test")
"""Parts of the rows that may be requested; training rows are sent on schedule only."""


class RunCharge(Protocol):
    """Counts a run in a party's ledger of all runs."""

    def set_up(self, digests: Digests, draws: Callable[[], str]) -> None:
        """State the digests of the ids of the common rows, and what returns the fingerprint of the draws of labels."""

    def charge(self) -> None:
        """Count the run, once, before its first release."""

    def check(self) -> None:
        """Refuse a run as `charge` would, and count nothing."""

    def charge_split(self, digests: Digests) -> None:
        """Count a split by a column that is sent before labels are drawn."""

    def charge_beyond_plan(self, releases: int, steps: int) -> None:
        """Count releases and private steps beyond the plan, before the first of them."""

    def count_other_grades(self, known: Mapping[str, float | None]) -> int:
        """Number of releases of drawn grades of the same rows but these, by name of the draws and epsilon."""


@dataclass(frozen=True)
class LocalSide:
    """The private side of a party in a job.

    Attributes:
        name: Name of the party.
        table: Rows of the party.
        chain: Protections of the party.
        folder: Run folder; this party writes only below its own names in it.
        data: Folder of the encoded columns; several runs on the same rows may share it.
        secret: Long-lived secret, for draws that must repeat in the next run on the same rows.
        noise_key: 32 bytes for this run's noise.
        starting_key: 32 bytes for the initial weights and everything else drawn from the global random state.
        config: Its private part of the job.
        label_memory: Record of the labels that this and earlier runs drew for, of the whole table where rows have no
            ids; `None` with a supplied key and ids, or in a simulation.
        resume: Whether to continue from the committed checkpoint in `folder`.
        releases: Folder of this party's release logs, next to its secret; `None` where nothing leaves the process or
            anybody can repeat the noise: the logs are then in the run folder.
        forget_peer_progress: Whether to go on where a peer names an earlier epoch than this party has saved, and to
            count what is released again.
        alignment: How it finds the common rows; plainly where all parties are in one process, and nothing crosses.
        wrap: Applied by a passive party that attacks to its own optimiser; what it remembers must be in the optimiser's
            state, so that a resume continues it.
        tampering: What a malicious party sends in place of its embeddings or cut gradients; `None` where it is honest.
        grades: The grades that it released in all of its jobs; `None` as of `releases`.
        all_runs: Counts the run in the party's ledger of all runs; `None` where nothing leaves the process or the noise
            is no secret.
        device: Device that its models train on, and its protections compute on as far as they can.
        resident: Gathers its rows on that device.
        fit: Section `fit` that its columns have to suit, in this run or the one that this is a baseline of.
        faults: Called at the points of the run at which a test can fail it.
        readings: Reads the losses and norms of its steps, at once unless all parties share this process.
    """

    name: str
    table: PartyTable
    chain: Chain
    folder: Path
    data: Path
    secret: bytes = field(repr=False)
    noise_key: bytes = field(repr=False)
    starting_key: bytes = field(repr=False)
    config: PartyConfig
    label_memory: LabelMemory | None = field(default=None, repr=False)
    resume: bool = False
    releases: Path | None = None
    forget_peer_progress: bool = False
    alignment: Alignment = field(default_factory=Alignment)
    wrap: Callable[[torch.optim.Optimizer], torch.optim.Optimizer] | None = None
    tampering: Tampering | None = None
    grades: GradeMemory | None = field(default=None, repr=False)
    all_runs: RunCharge | None = field(default=None, repr=False)
    device: torch.device = CPU
    fit: Mapping[str, Any] | None = None
    readings: Readings = field(default_factory=Readings, repr=False)
    faults: Faults = no_faults
    resident: ResidentRows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "resident", ResidentRows(self.device))

    def charge_run(self, digests: Digests, draws: Callable[[], str] = str) -> Callable[[], None] | None:
        """Return what counts this run in the ledger of all runs before each release; `None` without a ledger.

        A release is counted after the numbers are read that it may follow from: steps that a bad number makes vain
        must not use up the account, which a resume finds on disk.

        Args:
            digests: Digests of the ids of the common rows, uint8 (n, 16).
            draws: Returns the fingerprint of the draws of labels, or of grades, once they are drawn.
        """
        all_runs = self.all_runs
        if all_runs is None:
            self.chain.before_release = self.readings.read
            return None
        all_runs.set_up(digests, draws)
        self.chain.exceeding = all_runs.charge_beyond_plan

        def before_release() -> None:
            self.readings.read()
            all_runs.charge()

        # Before the release log too: a run that is refused has released nothing, and none of its releases must be in
        # the account of the next one.
        self.chain.before_release = before_release
        return all_runs.charge

    def release_log(self, job: Job, rows: bytes) -> ReleaseLog:
        """The log of this run's releases, by the run's noise key.

        Logs of one job share a folder, whose name reveals the job only to a reader with the secret. It does not depend
        on the common rows: which rows those are, and in which order, is stated by a peer, and a false statement must
        not hide what earlier runs released.

        Args:
            job: Job that is run.
            rows: Digest of the ids of the common rows, in their order.
        """
        party_folder = self.folder / "checkpoint" / self.name
        which = derive(self.secret, b"release logs", self.name.encode(), job.digest().encode(), size=8).hex()
        run = derive(self.noise_key, b"release log", size=8).hex()
        identity = {"party": self.name, "job": job.digest(), "rows": rows.hex(), "folder": str(self.folder.resolve())}
        if self.releases is None:
            return ReleaseLog(party_folder / "releases" / which / f"{run}.jsonl", identity)
        return ReleaseLog(self.releases / which / f"{run}.jsonl", identity, party_folder / MARKER)

    def draw_ids(self, digests: Digests) -> Digests:
        """Input of the draws of each row's label: the digest of its id, uint8 (n, 16).

        Row numbers name other rows in another table, so that there the labels themselves become part of it: drawn alike
        in two tables, the known labels of one would reveal the draws of the other. They are those of the whole table:
        which rows are common is stated by a peer, and another answer must not draw every label again.

        Args:
            digests: Digests of the ids of the common rows, in their order.
        """
        if self.table.id_kind != "row":
            return digests
        labels_digest = np.frombuffer(self.table.labels_digest, dtype=np.uint8)
        return computed_rows(len(digests), np.uint8, lambda part: digests[part] ^ labels_digest, digests.shape[1:])

    def draw_fingerprint(self, draws: tuple[str | None, ...], rows: bytes, truth: Tensor) -> str:
        """Hash of what a row's draws depend on besides the settings of a protection; see `ActiveOutcome.fingerprint`.

        Args:
            draws: Names of the draws, as `Chain.draws`; `None` among them where draws are not remembered.
            rows: Digest of the ids of the common rows, in their order.
            truth: True labels of the common rows.
        """
        # With a label memory, each row has one draw per generation, whatever its label is now.
        labels = (truth.numpy().data.cast("B"), self.table.labels_digest) if None in draws else ()
        return fingerprint_of_draws(self.secret, self.config.label or "", (rows, *labels), draws)

    def context(self, job: Job, widths: Mapping[str, int], training: Tensor, **more: Any) -> Context:
        """The context of this party's protections; see `context_of`."""
        return context_of(job, self.name, widths, training, self.secret, self.noise_key, device=self.device, **more)

    def checkpoints(self, job: Job) -> Checkpoints:
        """This party's checkpoints of the run."""
        return Checkpoints(self.folder / "checkpoint" / self.name, self.name, job.digest(), self.faults)

    def sampling(self, job: Job, steps: int, batch_size: int) -> Sampling:
        """The choice of the steps that this party records, as `sampling_of`."""
        return sampling_of(job, self.name, self.config.audit, steps, batch_size)

    def follower(self, training: Tensor, sampling: Sampling) -> Follower | None:
        """The record of the followed rows, drawn by this run's key; `None` where nothing is recorded.

        Args:
            training: Row numbers of the training rows, int64.
            sampling: Chooses the epochs that are written.
        """
        if self.config.audit.every == "never":
            return None
        seed = int.from_bytes(derive(self.noise_key, b"followed rows", size=16))
        return Follower(self.transcript, draw_followed(training, self.config.audit.followed, seed), sampling)

    def placed(self, tensor: Tensor) -> Tensor:
        """A tensor on this party's device: columns, labels and messages arrive there by this."""
        return to_device(tensor, self.device)

    @property
    def transcript(self) -> Path:
        """Folder of this party's transcript."""
        return self.folder / "transcript" / self.name

    def records(self, sampling: Sampling, epoch: int, step: int) -> bool:
        """Whether this party records a step of an epoch."""
        return self.config.audit.every != "never" and sampling.takes_epoch(epoch) and sampling.takes(step)

    def records_layers(self, sampling: Sampling, epoch: int, step: int) -> bool:
        """Whether this party records the outputs of its layers in a step of an epoch."""
        return self.records(sampling, epoch, step) and self.config.audit.layers and sampling.takes_layers(epoch, step)


def sampling_of(job: Job, name: str, audit: AuditConfig, steps: int, batch_size: int) -> Sampling:
    """The choice of the steps that a party records.

    Args:
        job: The shared job.
        name: Name of the party.
        audit: Settings of its audit.
        steps: Number of steps of an epoch.
        batch_size: Number of rows of a step that are recorded.
    """
    limit = audit.max_megabytes * 2**20 // 2  # the other half is for the followed rows
    rows = sampled_rows(job, name, steps, batch_size)
    every_epoch = Sampling.of(steps, batch_size, rows, job.train.max_epochs, limit)
    return replace(every_epoch, stride=audit.stride, warmup=job.train.warmup_epochs)


def fingerprint_of_draws(secret: bytes, column: str, what: Part, draws: tuple[str | None, ...]) -> str:
    """Hash of what the draws of labels depend on besides the settings of a protection.

    Args:
        secret: Long-lived secret of the active party.
        column: Name of the label column.
        what: The rows, where draws depend on which are common, and the labels, where draws are not remembered.
        draws: Names of the draws, as `Chain.draws`.
    """
    return derive(secret, b"ledger", column.encode(), what, repr(draws).encode(), size=16).hex()


def prepare_links(job: Job, local: LocalSide, ports: Iterable[Port]) -> None:
    """Set how rows cross a party's links, if the job says how, and the point of the run before each message."""
    for port in ports:
        port.sending = partial(local.faults, FaultPoint.SENDING, local.name)
        port.compression = packing_of(job, port.peer if local.name == job.active else local.name, local.noise_key)


def packing_of(job: Job, passive: str, noise_key: bytes = b"") -> Compression | GradeBytes | None:
    """How rows cross the link of a passive party; `None` for float32.

    Args:
        job: The shared job.
        passive: Name of the passive party.
        noise_key: 32 bytes of the party's own, for the draws of a rounding; grades need none.
    """
    if grades_rows(job, passive):
        return GradeBytes(stated_width(job.bottom_of(passive)) or 1)
    form = job.channel.compress
    return None if form is None else Compression(form, noise_key)


def context_of(
    job: Job, party: str, widths: Mapping[str, int], training: Tensor, secret: bytes, noise_key: bytes, **more: Any
) -> Context:
    """The context that the protections of a party are set up with.

    Args:
        job: The shared job.
        party: Name of the party.
        widths: Number of columns of each embedding that crosses at this party, by the name of its sender.
        training: Row numbers of the training rows, int64 (n,).
        secret: The party's long-lived secret.
        noise_key: 32 bytes for the noise of this run.
        more: Further fields of `Context`; without a task and labels, the party has none.
    """
    fields: dict[str, Any] = {"task": None, "labels": None, **more}
    return Context(
        party=party,
        peers=job.peers_of(party),
        widths=widths,
        training=training,
        secret=secret,
        noise=Noise(noise_key),
        epochs=job.train.max_epochs,
        batch_size=job.train.rows_per_step(len(training)),
        plan=plan_of(job, party),
        **fields,
    )
