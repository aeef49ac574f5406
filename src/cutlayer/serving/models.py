"""The trained models of a run, loaded from its folder: one party's part, or all of them together."""

from __future__ import annotations

import filecmp
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.data.align import Positions
from cutlayer.data.encoding import Encoder
from cutlayer.data.ids import Digests
from cutlayer.data.numbered_ids import numbered_ids
from cutlayer.data.prepared import EncodedColumns
from cutlayer.data.row_values import ValuesOf
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, RunFolderError
from cutlayer.kernels.rows.grade_columns import columns_of_grades
from cutlayer.models import BottomModel, TopModel, bottom_of, top_of
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.session.checkpoint import RELEASED_FILE, TABLE_FILE, Checkpoints, State
from cutlayer.problem.task import Task
from cutlayer.storage.row_arrays import gathered_rows
from cutlayer.training.file_digests import warn_of_changes
from cutlayer.training.finetuning import checked_absent
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import check_not_forgotten
from cutlayer.training.model_record import ModelRecord, record_path
from cutlayer.training.trained import RESTORE_REMEDY, checkpoint_of, restored_model


@dataclass(frozen=True)
class PartyModel:
    """One party's part of a trained model, in evaluation mode.

    Attributes:
        record: Record of the training.
        encoder: Fitted encoder of the party's columns; `None` where it has none.
        bottom: Bottom model; `None` where the party has no columns.
        top: Top model; `None` at a passive party.
    """

    record: ModelRecord
    encoder: Encoder | None
    bottom: BottomModel | None
    top: TopModel | None = None

    @classmethod
    def load(cls, job: Job, folder: RunFolder, party: str) -> PartyModel:
        """Load a party's part from the folder of a finished run.

        Args:
            job: Job of the run; of the private parts none is read.
            folder: Folder of the run.
            party: Name of the party.

        Raises:
            RunFolderError: The folder does not have this party's part of a finished run, or one that was forgotten.
            CheckpointError: The weights are missing, damaged, or of another job.
            ConfigError: A user's model that was not allowed, or a partner's part of a pilot: a prediction would
                release rows that the pilot held back.
        """
        check_not_forgotten(folder.path, party, job.digest())
        record, state = _record(job, folder, party), checkpoint_of(job, folder, party)
        begun = Checkpoints.of_run(job, folder.path, party).read_state(TABLE_FILE)
        if party != job.active and begun is not None and "pilot" in begun[1]:
            got = f"a pilot, in which {party} released {begun[1]['pilot']} rows alone"
            raise ConfigError.expected(f"a full run in {folder.path}", got, "predict with a run of the whole job")
        with torch.random.fork_rng(devices=[]):  # the initial weights are drawn, then replaced
            encoder, bottom = _bottom(job, folder, party, state)
            loaded = cls(record, encoder, bottom, _top(job, record, state))
        weights = (f"checkpoint/{party}/{part}" for part in ("best*", "epoch*", "model.json"))
        warn_of_changes(folder.path, *weights, f"data/{party}/encoder.json")
        return loaded

    @property
    def bottom_model(self) -> BottomModel:
        """The bottom model of a party that must have one.

        Raises:
            RunFolderError: It has none.
        """
        if self.bottom is None:
            raise RunFolderError.expected(f"a bottom model of {self.record.party}", "none")
        return self.bottom

    @property
    def top_model(self) -> TopModel:
        """The top model of the active party.

        Raises:
            RunFolderError: This is the part of a passive party.
        """
        if self.top is None:
            wanted = f"the top model at {self.record.party}"
            raise RunFolderError.expected(wanted, "none", "it is at the active party")
        return self.top

    @property
    def task(self) -> Task:
        """Task of the top model.

        Raises:
            RunFolderError: This is the part of a passive party, which does not know it.
        """
        if self.record.task is None:
            raise RunFolderError.expected("the part of the active party", f"that of {self.record.party}")
        return self.record.task.task


def further_models(job: Job, folder: RunFolder) -> dict[str, PartyModel]:
    """The label owner's model of each further label of a run, by its name: of the same releases and encoded columns.

    Labels that have grades of their own are predicted by their own folders.

    Raises:
        RunFolderError: A label has no trained model, or one of another training.
    """
    parts = dict[str, PartyModel]()
    for label in job.parties[job.active].further_labels if Phase.LABELS not in job.phases else ():
        place = folder.of_label(label)
        parts[label] = PartyModel.load(job, place, job.active)
        of_party = (Path("checkpoint") / job.active / RELEASED_FILE, Path("data") / job.active / "encoder.json")
        if not all(_is_equal(folder.path / path, place.path / path) for path in of_party):
            wanted = f"a model of the releases and columns of {folder.path} in {place.path}"
            raise RunFolderError.expected(wanted, "one of others", RESTORE_REMEDY)
    return parts


def _is_equal(path: Path, other: Path) -> bool:
    """Whether two files have one content, or neither is there."""
    if not (path.exists() and other.exists()):
        return path.exists() == other.exists()
    return path.samefile(other) or filecmp.cmp(path, other, shallow=False)


def _record(job: Job, folder: RunFolder, party: str) -> ModelRecord:
    path = record_path(folder, party)
    if not path.exists():
        raise RunFolderError.expected(
            f"{party}'s part of a finished run at {folder.path}",
            f"no {path.relative_to(folder.path)}",
            "a run between organisations leaves each part with its party: use party predict there; a run that has not "
            "ended leaves none",
        )
    record = ModelRecord.read(path)
    if (record.party, record.job) != (party, job.digest()):
        wanted = f"the record of {party} for job {job.digest()[:8]} at {path}"
        got = f"that of {record.party[:64]!a} for job {record.job[:8]}"
        raise RunFolderError.expected(wanted, got, RESTORE_REMEDY)
    return record


def _bottom(job: Job, folder: RunFolder, party: str, state: State) -> tuple[Encoder, BottomModel] | tuple[None, None]:
    path = folder.data(party) / "encoder.json"
    if not any(name.startswith("module/bottom.") for name in state[0]) and not path.exists():
        return None, None
    try:
        encoder = Encoder.from_json(path.read_bytes(), f"{path}")
    except OSError as failure:
        raise RunFolderError.expected(f"the encoder of {party} at {path}", failure.strerror) from None
    return encoder, restored_model(lambda: bottom_of(job, party, encoder.columns.inputs), "bottom", state)


def _top(job: Job, record: ModelRecord, state: State) -> TopModel | None:
    if (trained := record.task) is None:
        return None
    return restored_model(lambda: top_of(job, record.widths, trained.task.outputs), "top", state)


@dataclass(frozen=True)
class TrainedModels:
    """The trained parts of all parties.

    Attributes:
        active: Name of the active party.
        encoders: Encoders of the parties that have features, by name in the job's order.
        bottoms: Bottom models of the same parties.
        task: Task of the run.
        top: Top model.
        tuned: Top models that were fine-tuned after a departure, by the departed parties.
    """

    active: str
    encoders: Mapping[str, Encoder]
    bottoms: Mapping[str, BottomModel]
    task: Task
    top: TopModel
    tuned: dict[frozenset[str], TopModel] = field(default_factory=dict)

    @classmethod
    def load(cls, job: Job, folder: RunFolder) -> TrainedModels:
        """Load the trained models and fitted encoders of all parties from a run folder.

        Raises:
            RunFolderError: The folder does not have the parts of all parties.
        """
        parts = {name: PartyModel.load(job, folder, name) for name in job.parties}
        active = parts[job.active]
        _check_same_training(parts)
        encoders = {name: part.encoder for name, part in parts.items() if part.encoder is not None}
        bottoms = {name: part.bottom for name, part in parts.items() if part.bottom is not None}
        return cls(job.active, encoders, bottoms, active.task, active.top_model)

    def absent_parties(self, names: Collection[str], epochs: int = 1) -> tuple[str, ...]:
        """The absent parties in the job's order; see `checked_absent`."""
        return checked_absent(names, [*self.encoders], self.active, epochs)

    @property
    def widths(self) -> dict[str, int]:
        """Width of the embedding of each party that has features, in the job's order."""
        return {name: bottom.width for name, bottom in self.bottoms.items()}

    def answer(self, embeddings: Mapping[str, Tensor], absent: Collection[str]) -> Tensor:
        """Logits (n, outputs), of the top model that was fine-tuned for just these absent parties if there is one.

        Args:
            embeddings: Embeddings (n, width) of all parties that have features, in the job's order; of absent parties
                only the shape counts.
            absent: Passive parties whose embeddings do not count.
        """
        with torch.no_grad():
            if not absent:
                return self.top(embeddings)
            top = self.tuned.get(frozenset(absent), self.top)
            return top.answer(embeddings, embeddings.keys() - set(absent))


def _check_same_training(parts: Mapping[str, PartyModel]) -> None:
    """Raise unless all parts come from one training."""
    if len({part.record.training for part in parts.values()}) > 1:
        got = ", ".join(f"{name} {part.record.training}" for name, part in parts.items())
        raise RunFolderError.expected("the parts of one training", got, "restore the run folder, or run the job again")


class RowEmbedder:
    """The bottom model on rows of a store.

    Args:
        bottom: Bottom model.
        store: Encoded rows.
        digests: Digests of their ids, uint8 (n, 16); `None` where rows have none.

    Attributes:
        grades: Grades of all rows where they are known, int64 (n,).
        values: Words of the values of all rows, where the table is at hand.
        limited: Their columns with a limit, as `PartyTable.limited_columns`, where the table is at hand.
        numbers: Their row numbers in the table, int64 (n,), where they have no ids; `None` for its own order.
    """

    def __init__(self, bottom: BottomModel, store: Store, digests: Digests | None = None) -> None:
        self.bottom, self.store, self.digests = bottom, store, digests
        self.grades: Tensor | None = None
        self.values: ValuesOf = lambda _: None
        self.limited: EncodedColumns | None = None
        self.numbers: Positions | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        """Embeddings of rows, int64 (m,) -> (m, width)."""
        if self.grades is not None:
            return columns_of_grades(self.grades[rows], self.bottom.width)
        named = self.digests is not None or isinstance(self.bottom, GradeBottom)  # whose folds are by ids
        return self.bottom.of_rows(*self.store.gather(rows), self.ids(rows) if named else None)

    def ids(self, rows: Tensor) -> Tensor:
        """Digests of the ids of rows, int64 (m,) -> uint8 (m, 16); see `numbered_ids` where they have none."""
        return torch.from_numpy(gathered_rows(self._ids, rows.numpy()))

    @cached_property
    def _ids(self) -> Digests:
        return numbered_ids(self.store, self.numbers) if self.digests is None else self.digests
