"""Record of a party's trained model besides the weights, with which the model can be used later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from cutlayer.config import FrozenModel, Job
from cutlayer.data.labels import LabelKind
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.agreement.split import split_of_run
from cutlayer.parties.passive import PassiveParty
from cutlayer.problem.task import Task
from cutlayer.results.document import Document
from cutlayer.training.folder import RunFolder


class TrainedTask(FrozenModel):
    """The task of a trained top model; it is derived from labels, so it stays with the active party.

    Attributes:
        task: The task, to predict and evaluate with.
        labels: Type of the labels in the table.
    """

    task: Task
    labels: LabelKind = "text"


class ModelRecord(Document):
    """A party's `model.json`, written at the end of a training.

    Attributes:
        party: Name of the party.
        job: Digest of the shared job.
        training: Id of the training, equal at all parties: halves of different trainings do not fit together.
        partners: Id by partner where it has another: its release was a file of its own.
        rows: Number of common rows.
        widths: Number of columns of the embeddings that the party makes or receives, by party in the job's order.
        task: Task, at the active party.
    """

    title: ClassVar[str] = "the record of a trained model"

    party: str
    job: str
    training: str
    partners: Mapping[str, str] = Field(default_factory=dict)
    rows: int = Field(ge=1)
    widths: Mapping[str, int]
    task: TrainedTask | None = None

    def training_with(self, partner: str) -> str:
        """Id of the training at a partner."""
        return self.partners.get(partner, self.training)

    def training_rows(self, job: Job, folder: RunFolder) -> Tensor:
        """Row numbers of the training rows in the common order, int64.

        Args:
            job: Job of the run.
            folder: Folder of the run, with this party's part.
        """
        return split_of_run(job, folder.path, self.party, self.rows).part("train")


def record_path(folder: RunFolder, party: str) -> Path:
    """Path of a party's record in a run folder."""
    return folder.path / "checkpoint" / party / "model.json"


def record_passive(folder: RunFolder, party: PassiveParty) -> None:
    """Write the record of a passive party that has ended its training."""
    name = party.local.name
    record = ModelRecord(
        party=name,
        job=party.job.digest(),
        training=party.port.run,
        rows=party.setup.store.rows,
        widths={name: party.setup.bottom.width},
    )
    record.write(record_path(folder, name))


def record_active(folder: RunFolder, party: ActiveParty) -> None:
    """Write the record of an active party that has ended its training."""
    record = ModelRecord(
        party=party.local.name,
        job=party.job.digest(),
        training=party.run_id,
        partners={name: run for name, run in party.runs.items() if run != party.run_id},
        rows=len(party.setup.truth),
        widths=party.setup.widths,
        task=TrainedTask(task=party.setup.task, labels=party.setup.label_kind),
    )
    record.write(record_path(folder, party.local.name))
