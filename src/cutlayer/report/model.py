"""The report as one JSON document: frozen records, written once, read by the page, the terminal and other programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from cutlayer.config import Section
from cutlayer.config.job import Role, TaskKind
from cutlayer.errors import RunFolderError

SCHEMA_VERSION = 1
THIS_RUN = "this run"
UNDEFENDED = "undefended"
CHANCE = "chance"


def _finite(value: Any) -> Any:
    """NaN and infinity are not JSON: both become `None`, which every view shows as "n/a"."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Figure = Annotated[float | None, BeforeValidator(_finite)]


class RunPart(Section):
    """What was run, on what, and how it ended.

    Attributes:
        created: ISO 8601 time of the start.
        seconds: wall-clock time of training. rows_per_second: over all epochs.
        kept: which epoch's models the figures of utility belong to; `kept_epoch` counts from 1.
        reproducible_noise: the noise key was supplied, so whoever has it can subtract the noise.
        folder: where the run lies.
    """

    id: str
    name: str
    created: str
    cutlayer: str
    torch: str
    python: str
    threads: int
    seed: int
    seconds: float
    rows_per_second: float
    epochs_run: int
    epochs_planned: int
    stopped_early: bool
    kept: Literal["best", "last"]
    kept_epoch: int
    reproducible_noise: bool
    job_digest: str
    folder: str


class TaskPart(Section):
    """What the model predicts; `positive_share` is that of the training rows of a binary task."""

    kind: TaskKind
    classes: tuple[str, ...] = ()
    positive_share: Figure = None


class DataPart(Section):
    """Rows that all parties have in common, and how they were split."""

    common: int
    train: int
    validation: int
    test: int

    @property
    def reported(self) -> tuple[int, str]:
        """How many held-out rows the utility is of, and which: without test rows those that chose the epoch."""
        return (self.test, "test rows") if self.test else (self.validation, "validation rows")


class PartyPart(Section):
    """One party: what it brought, its half of the model, and what crossed its link.

    Attributes:
        rows_own: rows of its own table, before the join.
        width: of the embedding it sends; `None` where it sends none.
        numeric, categorical, parameters: `None` where the party ran elsewhere and keeps them to itself.
    """

    name: str
    role: Role
    rows_own: int
    numeric: int | None
    categorical: int | None
    width: int | None
    parameters: int | None
    bytes_sent: int
    bytes_received: int


class UtilityRow(Section):
    """One model on the test rows; `low` and `high` bound the headline metric (95 % bootstrap)."""

    name: str
    note: str = ""
    metrics: Mapping[str, Figure]
    low: Figure = None
    high: Figure = None


class UtilityPart(Section):
    """This run against its references, by the headline metric and others."""

    metric: str
    higher_is_better: bool = True
    rows: tuple[UtilityRow, ...] = ()


class EpochPart(Section):
    """One epoch of one run.

    Attributes:
        metrics: on held-out rows.
        leak: leak AUC of this epoch by "party/message/attack".
    """

    run: str
    epoch: int = Field(ge=1)
    loss: Figure
    seconds: Figure
    rows_per_second: Figure
    metrics: Mapping[str, Figure] = Field(default_factory=dict)
    leak: Mapping[str, Figure] = Field(default_factory=dict)


class LeakPart(Section):
    """One cell of the leak matrix: one attack on one kind of message of one party, in one run.

    Attributes:
        auc: the leak AUC at the worst epoch; `low` and `high` bound it (95 % bootstrap).
        epoch: the worst epoch, from 1; `epochs_seen` is how many the worst was taken over.
        pooled_auc, batch_auc: over all sampled rows at once, and the mean over batches, at that epoch.
        also: AUC of other scores the paper names.
        hard_accuracy, hard_auc: of the attack's own decisions, where the paper defines them.
        rows, positives: scored at that epoch.
        knowledge: what the attacker was given.
    """

    run: str
    protections: tuple[str, ...] = ()
    party: str
    message: Literal["gradient", "embedding"]
    attack: str
    auc: float
    low: Figure
    high: Figure
    epoch: int = Field(ge=1)
    epochs_seen: int
    pooled_auc: Figure
    batch_auc: Figure
    first_epoch_auc: Figure
    also: Mapping[str, Figure] = Field(default_factory=dict)
    hard_accuracy: Figure = None
    hard_auc: Figure = None
    rows: int
    positives: int
    knowledge: tuple[str, ...] = ()


class LayerPart(Section):
    """The leak AUC of one layer's output; `place` is its order along the network."""

    run: str
    party: str
    side: Role
    layer: str
    place: int
    auc: float
    epoch: int


class ProtectionPart(Section):
    """What one protection was set to, what it did, and what is proved about it.

    Attributes:
        covered, sent, changed: in `unit`s: applied to, sent, and different from what they would have been.
        figures: the protection's own evidence.
        formal: whether a theorem holds; `statement` is that theorem's sentence, or why there is none.
    """

    name: str
    party: str
    protects: Literal["labels", "features", "model"]
    reference: str
    settings: Mapping[str, Any] = Field(default_factory=dict)
    unit: Literal["messages", "rows"]
    covered: int
    sent: int
    changed: int
    figures: Mapping[str, Figure] = Field(default_factory=dict)
    formal: bool
    statement: str


class GatePart(Section):
    """One limit of `fail_above`, the worst figure against it, and where that was measured.

    `worst` is `None` where nothing could be measured; such a gate does not pass.
    """

    name: str
    limit: float
    worst: Figure
    where: str
    passed: bool


class FindingPart(Section):
    """Something a reviewer should know, with a stable code and what to do about it."""

    code: str
    severity: Literal["error", "warning", "note"]
    title: str
    detail: str
    remedy: str


class Report(Section):
    """Everything a reviewer reads about one run.

    Attributes:
        history: all epochs of this run and of the runs it is compared with.
        leaks: the cells of the matrix protection x attack x message.
        limits: which attacks were not possible, and why.
        job: the job as run, YAML.
    """

    schema_version: int = SCHEMA_VERSION
    run: RunPart
    task: TaskPart
    data: DataPart
    parties: tuple[PartyPart, ...]
    utility: UtilityPart
    history: tuple[EpochPart, ...] = ()
    leaks: tuple[LeakPart, ...] = ()
    layers: tuple[LayerPart, ...] = ()
    protections: tuple[ProtectionPart, ...] = ()
    gates: tuple[GatePart, ...] = ()
    findings: tuple[FindingPart, ...] = ()
    limits: tuple[str, ...] = ()
    job: str = ""

    @classmethod
    def read(cls, path: Path | str) -> Report:
        """Read `report.json`.

        Raises:
            RunFolderError: there is no such file, it is no JSON, or it is no report of this version.
        """
        path = Path(path)
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except OSError as failure:
            raise RunFolderError.expected(f"a report at {path}", failure.strerror or failure) from None
        except ValueError as failure:
            raise RunFolderError.expected(f"JSON in {path}", failure, "write the report again") from None
        version = raw.get("schema_version", SCHEMA_VERSION) if isinstance(raw, dict) else None
        if version != SCHEMA_VERSION:
            raise RunFolderError.expected(f"schema_version {SCHEMA_VERSION} in {path}", version)
        try:
            return cls.model_validate(raw)
        except ValidationError as failure:
            fault = failure.errors(include_url=False)[0]
            place = ".".join(str(part) for part in fault["loc"])
            raise RunFolderError.expected(f"a report in {path}", f"{place}: {fault['msg']}") from None

    def write(self, path: Path | str) -> Path:
        """Write `report.json` in one move, so that a reader never meets half of it."""
        path = Path(path)
        part = path.with_name(path.name + ".part")
        part.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return part.replace(path)
