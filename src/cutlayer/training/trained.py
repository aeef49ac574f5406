"""A finished run: its rows with their true labels, and its final models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn

from cutlayer.alignment.held_rows import HeldRows, held_of_run
from cutlayer.config import Job
from cutlayer.data.ids import Digests
from cutlayer.data.split import Split
from cutlayer.data.store import Store
from cutlayer.errors import CheckpointError
from cutlayer.models import BottomModel, Inputs, TopModel, bottom_of, top_of
from cutlayer.parties.agreement.split import split_of_run
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints, State
from cutlayer.problem.task import Task
from cutlayer.storage.row_tensors import first_column, number_equal, rows_of, where_equal
from cutlayer.training.folder import RunFolder
from cutlayer.training.recorder import read_truth

M = TypeVar("M", bound=nn.Module)
RESTORE_REMEDY = "restore the run folder, or run the job again"


class Run:
    """Opens the run folder of a finished run; each file is read once, when it is needed.

    Args:
        job: The job as run.
        folder: The run folder, which is only read.
        origin: The run that holds the encoded columns, where this one was trained on the columns of another.
        classes: Classes of the task; read from the summary by default.
    """

    def __init__(
        self, job: Job, folder: RunFolder, *, origin: RunFolder | None = None, classes: tuple[str, ...] | None = None
    ) -> None:
        self.job = job
        self.folder = folder
        self.origin = origin or folder
        self._classes = classes

    @property
    def truth(self) -> Tensor:
        """True labels by row of the common order, (N,), or (N, 2) where a label has two columns."""
        return self._labels[0]

    @property
    def training(self) -> Tensor:
        """Row numbers of the training rows, int64; of a run on all rows those that all parties have."""
        return self._labels[1]

    @cached_property
    def leak_labels(self) -> Tensor:
        """True labels as leaks are measured on them (N,): whether positive in a binary task, else as `truth`.

        Of two columns it is the first: a rate, or a time.
        """
        truth = first_column(self.truth)
        return where_equal(truth, 1) if self.task.kind == "binary" else truth

    @cached_property
    def class_shares(self) -> tuple[float, ...]:
        """Share of each class among the training rows; empty for regression."""
        return class_shares(rows_of(self.leak_labels, self.training), self.task)

    @cached_property
    def split(self) -> Split:
        """Rows that train, validate and test."""
        return split_of_run(self.job, self.folder.path, self.job.active, len(self.truth))

    @property
    def reported_rows(self) -> Tensor:
        """Row numbers of the held-out rows that are reported, int64: the test rows, else the validation rows.

        Of a run on all rows those that all parties have.
        """
        rows = self.split.part("test" if len(self.split.test) else "validation")
        return torch.from_numpy(self.held.select_held_by_all(rows.numpy()))

    @cached_property
    def held(self) -> HeldRows:
        """Which of the active party's rows each passive party has."""
        return held_of_run(self.job, self.folder.path)

    @cached_property
    def task(self) -> Task:
        """The task with its classes and target scale."""
        classes = self.folder.summary.task.classes if self._classes is None else self._classes
        of_all = not self.held.by_party and not self.job.train.takes_some_rows
        training = self.training if of_all else self.split.part("train")
        task = Task.fitted(self.job.task, classes, rows_of(self.truth, training), self.job.target)
        return task.with_positive(self.job.parties[self.job.active].positive, self.job.active)

    @cached_property
    def stores(self) -> dict[str, Store]:
        """Encoded columns of every party that has any here, in the job's order."""
        return stores_of(self.job, self.origin, self.held)

    def inputs(self, party: str) -> Inputs:
        """Shape of one party's encoded columns."""
        return self.stores[party].columns.inputs

    def bottom(self, party: str) -> BottomModel:
        """The bottom model of one party, in evaluation mode."""
        return restored_model(lambda: bottom_of(self.job, party, self.inputs(party)), "bottom", self.checkpoint(party))

    def top(self, widths: Mapping[str, int]) -> TopModel:
        """The top model, in evaluation mode.

        Args:
            widths: Width of every party's embedding, in the job's order.
        """
        state = self.checkpoint(self.job.active)
        return restored_model(lambda: top_of(self.job, widths, self.task.outputs), "top", state)

    def checkpoint(self, party: str) -> State:
        """Tensors and state of a party at the final epoch of the run."""
        return checkpoint_of(self.job, self.folder, party)

    def restore(self, module: nn.Module, name: str, party: str) -> None:
        """Load the weights that the run ended with into `module`, which `party` calls `name`."""
        restored_model(lambda: module, name, self.checkpoint(party))

    @cached_property
    def _labels(self) -> tuple[Tensor, Tensor]:
        return read_truth(self.folder.transcript(self.job.active))


def stores_of(job: Job, folder: RunFolder, held: HeldRows) -> dict[str, Store]:
    """Encoded columns of every party that has any in a folder, in the job's order, numbered as at the active party.

    Args:
        job: Job of the run.
        folder: Folder of the encoded columns.
        held: Which of the active party's rows each passive party has; all other rows read as zeros.
    """
    names = [name for name in job.parties if (folder.data(name) / "store.json").exists()]
    return held.numbered({name: Store.open(folder.data(name)) for name in names})


def class_shares(labels: Tensor, task: Task) -> tuple[float, ...]:
    """Share of each class among labels (n,), bool or class codes; empty for regression."""
    if task.kind == "regression":
        return ()
    codes = range(2 if task.kind == "binary" else len(task.classes))
    return tuple(number_equal(labels, code) / len(labels) if len(labels) else math.nan for code in codes)


def checkpoint_of(job: Job, folder: RunFolder, party: str) -> State:
    """Tensors and state of a party at the final epoch of a finished run.

    Raises:
        CheckpointError: Missing, damaged, or of another job.
    """
    return Checkpoints.of_run(job, folder.path, party).load_final(best=job.keeps_best)


def released_ids(job: Job, folder: RunFolder, party: str) -> Digests:
    """Digests of the ids of the rows that a party graded, uint8 (n, 16), by its own row numbers.

    Raises:
        CheckpointError: They are missing, or of another job.
    """
    kept = Checkpoints.of_run(job, folder.path, party).read_state(RELEASED_FILE)
    if kept is None or "ids" not in kept[0]:
        raise CheckpointError.expected(f"the grades of {party} in {folder.path}", "none", RESTORE_REMEDY)
    return kept[0]["ids"].numpy()


def restored_model(build: Callable[[], M], name: str, state: State) -> M:
    """Build the model that a party calls `name` with its weights in a checkpoint, in evaluation mode.

    Raises:
        CheckpointError: They are of another model, or not finite.
    """
    try:
        return with_weights(build, f"module/{name}.", state[0])
    except ValueError as mismatch:
        raise CheckpointError.expected(f"weights of the {name} model of this run", mismatch, RESTORE_REMEDY) from None


def with_weights(build: Callable[[], M], prefix: str, tensors: Mapping[str, Tensor]) -> M:
    """Build a model, and load the tensors whose name begins with a prefix; then set evaluation mode.

    Its shapes are stated by a file. So it is built without memory first, and has no more numbers than its weights have.

    Raises:
        ValueError: They are of another model, or not finite.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        wanted = sum(tensor.numel() for tensor in build().state_dict().values())
    stored = sum(tensor.numel() for name, tensor in tensors.items() if name.startswith(prefix))
    if wanted > stored:
        raise ValueError(f"{stored:,} numbers for a model of {wanted:,}")
    module = build()
    load_weights(module, prefix, tensors)
    return module


def load_weights(module: nn.Module, prefix: str, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors whose name begins with a prefix into `module`; then set evaluation mode.

    Raises:
        ValueError: They are of another model, or not finite.
    """
    weights = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    # Under dp_embedding a row that is not finite is released as noise alone: predictions would not show it.
    broken = next((name for name, tensor in weights.items() if not bool(tensor.isfinite().all())), None)
    if broken is not None:
        raise ValueError(f"a number that is not finite in {broken}")
    try:
        module.load_state_dict(weights)
    except RuntimeError as mismatch:
        raise ValueError(str(mismatch).splitlines()[-1].strip()) from None
    module.eval()
