"""Records of a run: its job, data, parties and epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import Field

from cutlayer.alignment.disclosure import AlignmentRecord
from cutlayer.config import FrozenModel
from cutlayer.config.device import Precision
from cutlayer.config.job import TaskKind
from cutlayer.config.party import Role
from cutlayer.config.target import Target
from cutlayer.data.column_note import ColumnNote
from cutlayer.results.number import Number


class RunKind(StrEnum):
    """How a training that is reported differs from the job as configured."""

    THIS_RUN = "this run"
    UNDEFENDED = "undefended"
    UNCOMPRESSED = "uncompressed"
    PROTECTION = "protection alone"
    ALTERNATIVE = "alternative"
    MALICIOUS = "malicious"
    CENTRALISED = "centralised"
    ALONE = "alone"
    BOOSTING = "boosting"
    RETRAINED = "retrained"
    FINETUNED = "fine-tuned"
    CHANCE = "chance"


@dataclass(frozen=True)
class RunId:
    """Identifies one training among those of a job.

    Attributes:
        kind: How it differs from the job.
        parties: The parties that the kind is about: attackers, the party that trains alone, or those that departed;
            of a protection alone its owner, where other parties have a protection of that name.
        protection: Name of the protection alone, or of the alternative.
        attack: Name of the attack by which the parties depart from the protocol, other than by their optimisers.
    """

    kind: RunKind
    parties: tuple[str, ...] = ()
    protection: str = ""
    attack: str = ""

    @property
    def label(self) -> str:
        """Its name in the report, unique within a job.

        >>> RunId(RunKind.ALONE, ("bank",)).label, RunId(RunKind.RETRAINED, ("telco", "shop")).label
        ('bank alone', 'retrained without telco, shop')
        """
        names = ", ".join(self.parties)
        match self.kind:
            case RunKind.PROTECTION:
                return f"{self.protection} of {names}" if names else self.protection
            case RunKind.ALTERNATIVE:
                return self.protection
            case RunKind.MALICIOUS:
                malicious = f"malicious {names}" if len(self.parties) == 1 else "malicious passive parties"
                return f"{self.attack} by {malicious}" if self.attack else malicious
            case RunKind.CENTRALISED:
                return "all columns in one place"
            case RunKind.BOOSTING:
                return "gradient boosting, all columns"
            case RunKind.ALONE:
                return f"{names} alone"
            case RunKind.RETRAINED | RunKind.FINETUNED:
                return f"{self.kind} without {names}"
        return str(self.kind)

    @property
    def note(self) -> str:
        """Description of the training."""
        if self.attack:
            return "the same job with attackers who do not follow the protocol"
        return _NOTES[self.kind].format(self.label)


_NOTES = {
    RunKind.THIS_RUN: "the job as configured",
    RunKind.UNDEFENDED: "the same job without any protection",
    RunKind.UNCOMPRESSED: "the same job with embeddings and gradients as float32 on the link",
    RunKind.PROTECTION: "only {} on",
    RunKind.ALTERNATIVE: "the same job with other protections",
    RunKind.MALICIOUS: "the same job with the optimiser of active_model_completion at the passive parties",
    RunKind.CENTRALISED: "the same network without a cut, trained where all columns lie together",
    RunKind.ALONE: "only the active party's own columns",
    RunKind.BOOSTING: "scikit-learn's gradient boosting, with its default settings, where all columns lie together",
    RunKind.RETRAINED: "the same network without a cut, trained from the start without that party",
    RunKind.FINETUNED: "the top model of this run trained on after the departure, all bottom models as they were",
    RunKind.CHANCE: "the best constant prediction",
}


class RunInfo(FrozenModel):
    """Settings, data and end of a run.

    Attributes:
        id: First 12 digits of the job's digest.
        name: Name of the job.
        created: Start of the run, ISO 8601.
        cutlayer: Version of this package.
        torch: Version of PyTorch.
        python: Version of Python.
        threads: Threads of the tensor library.
        devices: What each party trained on, by name, as far as this process knows; `cpu` or a GPU with its model.
        precision: Precision of the layers of all models.
        seed: Seed of the schedule.
        seconds: Wall-clock time of training.
        rows_per_second: Training rows per second over all epochs.
        epochs_run: Number of epochs trained.
        epochs_planned: Number of epochs in the job.
        stopped_early: Whether early stopping ended the run.
        selected: The reported models: of the `best` or of the `last` epoch.
        selected_epoch: That epoch, from 1.
        reproducible_noise: Whether the noise key was supplied, so that its holder can subtract the noise.
        job_digest: Digest of what the parties agreed on.
        folder: Path of the run folder.
        training: Identifier of the training that all its parties have, drawn at its last start; also in the parties'
            egress trails and model cards.
    """

    id: str
    name: str
    created: str
    cutlayer: str
    torch: str
    python: str
    threads: int
    devices: Mapping[str, str] = Field(default_factory=dict)
    precision: Precision = "float32"
    seed: int
    seconds: float
    rows_per_second: Number
    epochs_run: int
    epochs_planned: int
    stopped_early: bool
    selected: Literal["best", "last"]
    selected_epoch: int
    reproducible_noise: bool
    job_digest: str
    folder: str
    training: str = ""


class TaskInfo(FrozenModel):
    """Prediction task of a run.

    Attributes:
        kind: Binary, multiclass or regression.
        classes: Names of the classes; none for regression.
        positive_share: Share of positive training rows of a binary task.
        positive: Code of the positive class of a binary task.
        target: What the numbers of a regression are.
    """

    kind: TaskKind
    classes: tuple[str, ...] = ()
    positive_share: Number = None
    positive: int = 1
    target: Target = "value"


class DataInfo(FrozenModel):
    """Numbers of rows of the run, and how they were split.

    Attributes:
        common: Number of rows: those that all parties have; of a run on all rows those of the active party.
        train: Number of rows to train on.
        validation: Number of rows to validate on.
        test: Number of rows to test on.
        held: Number of these rows that each passive party has, in a run on all rows; else empty.
        lacking: Number of rows of the active party's table that each passive party lacks, in a run on common rows.
        alignment: What the alignment made known to each party.
    """

    common: int
    train: int
    validation: int
    test: int
    held: Mapping[str, int] = Field(default_factory=dict)
    lacking: Mapping[str, int] = Field(default_factory=dict)
    alignment: AlignmentRecord | None = None

    @property
    def reported(self) -> tuple[int, str]:
        """Number and name of the held-out rows of the utility: without test rows those that chose the epoch."""
        return (self.test, "test rows") if self.test else (self.validation, "validation rows")


class PartyInfo(FrozenModel):
    """One party: its columns, its part of the model, and the traffic on its link.

    Attributes:
        name: Name in the job.
        role: Active or passive.
        rows_own: Rows of its own table, before alignment.
        columns: Number of columns of its own table besides id and label; `None` where the party ran elsewhere.
        numeric: Number of numeric inputs after encoding; `None` where the party ran elsewhere.
        categorical: Number of categorical inputs after encoding, of which the quantiles of a number are one; `None`
            where the party ran elsewhere.
        width: Width of its embedding; `None` where it has none.
        parameters: Number of model parameters; `None` where the party ran elsewhere.
        released_once: Whether it sent each row's embedding a single time, before the epochs that use it.
        bytes_sent: bytes sent over all starts of the run.
        bytes_received: bytes received over all starts of the run.
        traffic: bytes of tensors sent and received by kind of message, over all starts of the run.
        left_out: Number of rows of its file that are no rows of its table, by the reason; empty where it ran elsewhere.
        notes: Oddities of its columns; empty where it ran elsewhere.
    """

    name: str
    role: Role
    rows_own: int
    columns: int | None = None
    numeric: int | None
    categorical: int | None
    width: int | None
    parameters: int | None
    released_once: bool = False
    bytes_sent: int
    bytes_received: int
    traffic: Mapping[str, tuple[int, int]] = Field(default_factory=dict)
    left_out: Mapping[str, int] = Field(default_factory=dict)
    notes: tuple[ColumnNote, ...] = ()


class EpochResult(FrozenModel):
    """One epoch of one run.

    Attributes:
        run: Label of the run.
        epoch: Number from 1.
        loss: Mean training loss.
        seconds: Wall-clock time.
        rows_per_second: Training rows per second.
        metrics: Metrics on held-out rows.
        leak: Leak of this epoch by `party/message/attack`.
    """

    run: str
    epoch: int = Field(ge=1)
    loss: Number
    seconds: Number
    rows_per_second: Number
    metrics: Mapping[str, Number] = Field(default_factory=dict)
    leak: Mapping[str, Number] = Field(default_factory=dict)
