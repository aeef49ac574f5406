"""One party's part of a trained model as files that need no run folder: weights, encoder, architecture, programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from cutlayer.config import FrozenModel, Job
from cutlayer.config.device import Precision
from cutlayer.config.extras import check_extra
from cutlayer.config.phases import grades_rows
from cutlayer.consent import check_files
from cutlayer.data.encoding import Encoder
from cutlayer.errors import RunFolderError
from cutlayer.models import BottomModel, Inputs, TopModel, build_bottom, build_top, resolved_section
from cutlayer.problem.task import Task
from cutlayer.results.document import Document
from cutlayer.serving.models import PartyModel
from cutlayer.storage.durable import check_new, make_folder, write_whole
from cutlayer.storage.tensor_file import read_tensors, write_tensors
from cutlayer.training.model_record import TrainedTask
from cutlayer.training.trained import with_weights
from cutlayer_export.onnx_program import onnx_bytes, trace_model

WEIGHTS = "weights.safetensors"
ENCODER = "encoder.json"
ARCHITECTURE = "architecture.json"
CARD = "README.md"
BOTTOM, TOP = "bottom", "top"
ONNX = ".onnx"
_EXAMPLE_ROWS = 3


class BottomArchitecture(FrozenModel):
    """Specification of a bottom model.

    Attributes:
        section: Section of the job, with its kind.
        cardinalities: As in `Inputs`.
        numbers: As in `Inputs`.
        image: As in `Inputs`.
        width: Number of columns of the embedding.
    """

    section: Mapping[str, Any]
    cardinalities: tuple[int, ...]
    numbers: int = Field(ge=0)
    image: tuple[int, int, int] | None = None
    width: int

    def built(self, precision: Precision) -> BottomModel:
        """The model, with initial weights."""
        inputs = Inputs(self.cardinalities, self.numbers, self.image)
        return build_bottom(self.section, inputs, BOTTOM, precision=precision)


class TopArchitecture(FrozenModel):
    """Specification of a top model.

    Attributes:
        section: Section of the job, with its kind.
        widths: Number of columns of each embedding, by party in the job's order.
        passives: Names of the passive parties, which may be absent.
        grades: Those of them whose embedding is a grade.
        task: Task of the training.
    """

    section: Mapping[str, Any]
    widths: Mapping[str, int]
    passives: tuple[str, ...]
    grades: tuple[str, ...] = ()
    task: TrainedTask

    def built(self, precision: Precision) -> TopModel:
        """The model, with initial weights."""
        outputs = self.task.task.outputs
        return build_top(self.section, self.widths, outputs, TOP, may_leave=self.passives, precision=precision)


class Architecture(Document):
    """The file `architecture.json` of an exported part.

    Attributes:
        format: Name of the format.
        party: Name of the party.
        role: Its role.
        training: Id of the training: parts of one training fit together.
        job: Digest of the shared job.
        bottom: Bottom model; `None` where the party has no features.
        top: Top model; `None` at a passive party.
        precision: Precision that the models were trained in, and compute in.
    """

    title: ClassVar[str] = "the architecture of an exported model"

    format: Literal["cutlayer-export-1"] = "cutlayer-export-1"
    party: str
    role: Literal["active", "passive"]
    training: str
    job: str
    bottom: BottomArchitecture | None = None
    top: TopArchitecture | None = None
    precision: Precision = "float32"


class ExportResult(NamedTuple):
    """Result of an export.

    Attributes:
        folder: Folder of the files.
        files: Names of the files, without the model card.
    """

    folder: Path
    files: tuple[str, ...]


@dataclass(frozen=True)
class ExportedPart:
    """A part of a trained model, loaded from an export; models are in evaluation mode.

    Attributes:
        architecture: Content of `architecture.json`.
        encoder: Fitted encoder; `None` where the party has no features.
        bottom: Bottom model; `None` where the party has no features.
        top: Top model; `None` at a passive party.
    """

    architecture: Architecture
    encoder: Encoder | None
    bottom: BottomModel | None
    top: TopModel | None

    @property
    def task(self) -> Task:
        """Task of the top model.

        Raises:
            RunFolderError: This is the part of a passive party, which does not know it.
        """
        if self.architecture.top is None:
            raise RunFolderError.expected("the part of the active party", f"that of {self.architecture.party}")
        return self.architecture.top.task.task


def export_part(job: Job, model: PartyModel, out: Path, *, onnx: bool = False) -> ExportResult:
    """Write a party's part of a trained model.

    Args:
        job: Job of the run.
        model: The party's part.
        out: New or empty folder.
        onnx: Whether to write the models as ONNX too. A bottom model reads `codes` and `numbers`, and gives
            `embedding/PARTY`; a top model reads these and gives `logits`.

    Raises:
        RunFolderError: The folder holds other files, or cannot be made.
        ConfigError: A model has no ONNX form, or the extra `onnx` is not installed; nothing was written.
    """
    check_new(out)
    architecture = _architecture(job, model)
    modules = {name: part for name, part in ((BOTTOM, model.bottom), (TOP, model.top)) if part is not None}
    converted = {name: _converted(architecture, name, part) for name, part in modules.items()} if onnx else {}
    make_folder(out)
    with _emptied_on_failure(out):
        weights = {f"{name}.{key}": value for name, part in modules.items() for key, value in part.state_dict().items()}
        write_tensors(out / WEIGHTS, weights, {"party": architecture.party, "training": architecture.training})
        if model.encoder is not None:
            write_whole(out / ENCODER, json.dumps(json.loads(model.encoder.to_json()), indent=1) + "\n")
        architecture.write(out / ARCHITECTURE)
        for name, content in converted.items():
            write_whole(out / f"{name}{ONNX}", content)
    return ExportResult(out, tuple(sorted(path.name for path in out.iterdir())))


@contextmanager
def _emptied_on_failure(folder: Path) -> Iterator[None]:
    """Remove the files of a folder that was empty if they are not all written, so that the export can be repeated."""
    try:
        yield
    except BaseException:
        for path in folder.iterdir():
            path.unlink()
        raise


def load_part(folder: Path) -> ExportedPart:
    """Load what `export_part` wrote, from weights, encoder and architecture alone.

    Raises:
        RunFolderError: A file is missing or damaged, or they do not fit together.
        ConfigError: A user's model that was not allowed.
        DataError: The encoder is damaged.
    """
    check_files(folder)
    architecture = Architecture.read(folder / ARCHITECTURE)
    try:
        weights, header = read_tensors(folder / WEIGHTS)
        text = (folder / ENCODER).read_text(encoding="utf-8") if architecture.bottom is not None else ""
    except (OSError, ValueError) as damage:
        raise RunFolderError.expected(f"an exported model in {folder}", damage, "export it again") from None
    if header.get("training") != architecture.training:
        wanted = f"weights of training {architecture.training} in {folder}"
        raise RunFolderError.expected(wanted, header.get("training"), "export it again")
    encoder = Encoder.from_json(text, str(folder / ENCODER)) if text else None
    with torch.random.fork_rng(devices=[]):  # the initial weights are drawn, then replaced
        bottom = _restored(architecture.bottom, BOTTOM, architecture.precision, weights, folder)
        top = _restored(architecture.top, TOP, architecture.precision, weights, folder)
    return ExportedPart(architecture, encoder, bottom, top)


def _architecture(job: Job, model: PartyModel) -> Architecture:
    record = model.record
    bottom = top = None
    if model.encoder is not None and model.bottom is not None:
        inputs = model.encoder.columns.inputs
        bottom = BottomArchitecture(
            section=resolved_section(job.bottom_of(record.party), inputs),
            cardinalities=inputs.cardinalities,
            numbers=inputs.numbers,
            image=inputs.image,
            width=model.bottom.width,
        )
    if record.task is not None:
        graded = tuple(name for name in job.passives if grades_rows(job, name))
        top = TopArchitecture(
            section=job.top, widths=record.widths, passives=job.passives, grades=graded, task=record.task
        )
    role = job.parties[record.party].role
    return Architecture(
        party=record.party,
        role=role,
        training=record.training,
        job=record.job,
        bottom=bottom,
        top=top,
        precision=job.train.precision,
    )


def _restored(
    stated: BottomArchitecture | TopArchitecture | None,
    name: str,
    precision: Precision,
    weights: Mapping[str, Tensor],
    folder: Path,
) -> Any:
    if stated is None:
        return None
    try:
        return with_weights(partial(stated.built, precision), f"{name}.", weights)
    except ValueError as mismatch:
        raise RunFolderError.expected(f"weights of the {name} model in {folder}", mismatch, "export it again") from None


def _arguments(architecture: Architecture, name: str) -> tuple[Any, ...]:
    """Example arguments of a model, of a few rows."""
    if name == TOP and architecture.top is not None:
        return ({party: torch.zeros(_EXAMPLE_ROWS, width) for party, width in architecture.top.widths.items()},)
    if architecture.bottom is None:
        raise RunFolderError.expected("a bottom model", "none")
    codes = torch.zeros(_EXAMPLE_ROWS, len(architecture.bottom.cardinalities), dtype=torch.int32)
    return codes, torch.zeros(_EXAMPLE_ROWS, architecture.bottom.numbers)


def _converted(architecture: Architecture, name: str, module: nn.Module) -> bytes:
    """A model as ONNX; its tensors have the same names in all parts of a training."""
    check_extra("onnx")
    program = trace_model(name, module, _arguments(architecture, name))
    if name == TOP and architecture.top is not None:
        return onnx_bytes(program, name, [f"embedding/{party}" for party in architecture.top.widths], "logits")
    return onnx_bytes(program, name, ("codes", "numbers"), f"embedding/{architecture.party}")
