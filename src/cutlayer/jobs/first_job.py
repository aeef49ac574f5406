"""A first job from the answers to the questions about tables: its task, its overlap and its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.attacks import column_attacks
from cutlayer.config import FeaturesConfig, IdConfig, near_miss
from cutlayer.config.job import TaskKind
from cutlayer.data.align import intersect
from cutlayer.data.distinct_ids import DistinctIds, Identified
from cutlayer.data.feature_columns import without_nan
from cutlayer.data.party_data import PartyTable
from cutlayer.data.profile import ColumnProfile, label_profile
from cutlayer.data.sources import open_source
from cutlayer.errors import ConfigError, DataError, NothingInCommon
from cutlayer.jobs.found_tables import TableSummary
from cutlayer.kernels.noise.informative_rows import ENOUGH, FEW, informative_rows

Protected = Literal["labels", "columns", "both", "nothing"]

CLASS_NAMES = re.compile(
    r"(^|_)(class|category|type|kind|group|species|segment|code|id)(es|s)?($|_)|[a-z](Id|ID|Code)$", re.I
)
"""Names of labels whose numbers are codes of classes."""
MAX_CLASSES = 10
"""Number of different values up to which numbers are taken for classes."""
MIN_SKETCH, MAX_SKETCH = 32, 256
"""Columns of the release of each partner, where labels are protected: as many as its table has after encoding."""
STEP_INTERVALS = 64
"""Intervals of each number in runs on all rows that are trained by steps. Rows that no partner has are predicted from
the owner's columns alone, of which networks use skewed numbers as well as trees do by their intervals only: see
docs/how-to/all-rows.md."""


LABEL_EPSILONS = (0.5, 1.0, 2.0)
"""Label epsilons of jobs with grades, of which the least is taken that is worth enough rows."""
HELD_OUT = 0.2
"""Share of the rows that a job holds out by default."""
GRADES = (
    "Labels: each partner is sent one drawn label a training row, once; label_dp.eps bounds what it tells of a label.",
    "Columns: each partner sends one drawn grade of sixteen a row, once: four bits at most, and grade_dp.epsilon.",
    "What they carry of each column is in checkpoint/PARTNER/carried.json of the run, and fit.limits bounds it:",
    "see docs/how-to/grades.md.",
)
"""Comment in the file of a job whose partners release grades."""
PUBLIC_SPLIT = (
    "train.split.public: partners are sent which rows have the largest values of this column. It states that they may",
    "know this, whatever it shows of the labels, and the guarantee of the labels is given that. A date of application",
    "may be public; a column that follows the label, as days past due do, is not: leave train.split out then.",
)
"""Comment in the file of a job that splits by a column beside protected labels."""


@dataclass(frozen=True)
class FirstJob:
    """The answers to the questions.

    Attributes:
        owner: Table with the labels.
        partners: Tables of the other parties.
        label: Column of the labels.
        ids: Column that identifies a row, by the name of the table's file.
        protect: What is protected.
        apart: Whether each organisation runs its own part, with a private file each.
        split_by: Column of the owner's table by which the newest rows are tested on; `None` for rows at random.
        positive: The label that is called positive, of two; `None` for the greater one.
        task: Kind of the task; `None` for a guess.
        rows: Rows of the run: those of the owner, or those that all have.
        repeats: Whether an id of the owner has several rows, which are all kept.
        whole_ids: Whether ids are compared as whole numbers, since a program wrote some as `7.0` or `007`.
        unlabelled: Number of the owner's rows without a label, which the job leaves out.
    """

    owner: TableSummary
    partners: tuple[TableSummary, ...]
    label: str
    ids: Mapping[str, str]
    protect: Protected = "labels"
    apart: bool = False
    split_by: str | None = None
    positive: str | None = None
    task: TaskKind | None = None
    rows: Literal["common", "all"] = "common"
    repeats: bool = False
    whole_ids: bool = False
    unlabelled: int = 0

    @property
    def has_features(self) -> bool:
        """Whether the owner has a column besides id, label and that of the split."""
        return bool(set(self.owner.columns) - {self.ids[self.owner.path.name], self.label, self.split_by})

    def id_of(self, table: TableSummary, **rules: Any) -> dict[str, Any]:
        """How a table's rows are identified, as a section of the job."""
        rules |= {"normalise": "integer"} if self.whole_ids else {}
        return {"column": self.ids[table.path.name], **rules}


def sketch_width(table: TableSummary, key: str) -> int:
    """Columns of a release that keeps what a table has after encoding, within limits.

    Args:
        table: Table of a partner.
        key: Its id column.
    """
    # A number; where missing ones are flagged, two categories and their count as well.
    number = 4 if table.has_missing_numbers else 1
    inputs = (table.frequent[name] + 1 if name in table.frequent else number for name in table.columns if name != key)
    return min(max(sum(inputs), MIN_SKETCH), MAX_SKETCH)


def _sketch(table: TableSummary, key: str) -> dict[str, Any]:
    """The form of a partner's release: columns apart, which trees predict better from, unless there are too many.

    Neither this nor a rotation hides any of them, also from a receiver who knows no row: see
    docs/results/release-forms.md.
    """
    number = 2 if table.has_missing_numbers else 1  # the number, and how many rows lack it as this one does
    least = sum(1 if name in table.frequent else number for name in table.columns if name != key)
    return {"kind": "sketch", **({"map": "permutation"} if least <= MAX_SKETCH else {})}


class Overlap(NamedTuple):
    """How the ids of the tables meet.

    Attributes:
        rows: Number of the owner's rows.
        common: Number of those that every partner has.
        repeats: Whether an id of the owner has several rows.
    """

    rows: int
    common: int
    repeats: bool


def overlap_of(job: FirstJob) -> Overlap | None:
    """How the ids of the tables meet; `None` where a partner's are not in order yet, which the check explains."""
    try:
        own, *others = [_identified(job, table) for table in (job.owner, *job.partners)]
    except DataError:
        return None
    has = np.zeros(own.rows, dtype=bool)
    with suppress(NothingInCommon):
        digests = {"own": own.digests} | {str(number): other.digests for number, other in enumerate(others)}
        has[intersect(digests)["own"]] = True
    if isinstance(own, DistinctIds):
        has = has[own.of_rows]
    return Overlap(len(has), int(has.sum()), repeats=isinstance(own, DistinctIds))


def _identified(job: FirstJob, table: TableSummary) -> Identified:
    ids = IdConfig(**job.id_of(table, duplicates="keep" if table is job.owner else "refuse"))
    return PartyTable(table.party, table.config, ids, features=FeaturesConfig(include="none")).identified


def releases_once(job: FirstJob) -> bool:
    """Whether the partners release each row once, which protects the labels."""
    return job.protect in ("labels", "both")


def label_of(job: FirstJob) -> ColumnProfile:
    """Profile of the label column: its classes and their oddities."""
    return label_profile(job.owner.party, job.label, _labels(job), task_of(job), job.owner.path.name)


def _labels(job: FirstJob) -> pa.ChunkedArray:
    name = job.owner.path.name
    return without_nan(open_source(job.owner.config, name, name).read([job.label]).column(job.label))


def task_of(job: FirstJob) -> TaskKind:
    """The kind of the task: what is stated, or a guess by the labels' number, kind and name.

    Text is classes. Of numbers up to ten are classes, and more of them quantities, unless they are whole and the
    column's name says that they are codes.
    """
    if job.task is not None:
        return job.task
    distinct = job.owner.distinct[job.label]
    alike = job.owner.folded.get(job.label, distinct)
    if distinct == 2 or alike == 2:  # yes and YES are one class that is written in two ways
        return "binary"
    if distinct <= MAX_CLASSES or job.label in job.owner.folded:
        return "multiclass"
    return "multiclass" if CLASS_NAMES.search(job.label) and has_whole_labels(job) else "regression"


def has_whole_labels(job: FirstJob) -> bool:
    """Whether the labels are whole numbers, which may be quantities or codes."""
    labels = _labels(job)
    if not pa.types.is_floating(labels.type):
        return bool(pa.types.is_integer(labels.type))
    return bool(pc.all(pc.equal(labels, pc.floor(labels)), skip_nulls=True).as_py())


def check_task(job: FirstJob) -> None:
    """Refuse a stated task that the labels do not fit.

    Raises:
        ConfigError: Two classes of other than two labels, a regression of text, or classes of fractions.
    """
    name = f"{job.label} of {job.owner.path.name}"
    distinct = job.owner.distinct[job.label]
    if job.task == "binary" and task_of(replace(job, task=None)) != "binary":
        fitting = "multiclass" if job.label in job.owner.folded else "multiclass or regression"
        raise ConfigError.expected(f"two different labels in {name} with --task binary", distinct, f"take {fitting}")
    if job.task == "regression" and job.label in job.owner.folded:
        raise ConfigError.expected(f"numbers in {name} with --task regression", "text", "take multiclass")
    if job.task == "multiclass" and pa.types.is_floating(_labels(job).type) and not has_whole_labels(job):
        raise ConfigError.expected(f"classes in {name} with --task multiclass", "fractions", "take regression")


def grades_epsilon(job: FirstJob) -> float | None:
    """The label epsilon of a job whose partners release grades; `None` where they release their columns.

    It is the least of `LABEL_EPSILONS` at which the drawn labels are worth enough rows, or the largest, if they are
    worth any there. Labels that are numbers need a range, which is public and so not in the tables.
    """
    kind = task_of(job)
    if job.protect != "both" or kind == "regression":
        return None
    overlap = overlap_of(job)
    counts = [*label_of(job).classes.values()]
    if overlap is None or len(counts) < 2:
        return None
    rows = int((1 - HELD_OUT) * (overlap.common if job.partners else overlap.rows))
    worth = {epsilon: informative_rows(rows, [n / sum(counts) for n in counts], epsilon) for epsilon in LABEL_EPSILONS}
    enough = next((epsilon for epsilon, found in worth.items() if found >= ENOUGH), None)
    last = LABEL_EPSILONS[-1]
    return last if enough is None and worth[last] >= FEW else enough


def files_of(job: FirstJob, folder: Path) -> dict[str, dict[str, Any]]:
    """The files to write into a folder, by name: `job.yaml`, and between organisations one for each party.

    Raises:
        ConfigError: A column that is not there, or two parties of one name.
    """
    parties = (job.owner, *job.partners)
    names = [table.party for table in parties]
    if len(set(names)) < len(names):
        raise ConfigError.expected("a file name of its own for each party's table", ", ".join(names), "rename one")
    labels = grades_epsilon(job)
    private = dict(zip(names, _private(job, folder, labels), strict=True))
    release = releases_once(job)
    shared: dict[str, Any] = {"name": folder.resolve().name or "job", "task": task_of(job), "parties": {}}
    if job.rows == "all":
        shared["rows"] = "all"
    for table in parties:
        shared["parties"][table.party] = {"role": "active" if table is job.owner else "passive"}
    if release:
        bottoms: dict[str, Any] = {names[0]: {"kind": "auto"}}
        for table in job.partners:
            width = sketch_width(table, job.ids[table.path.name])
            bottoms[table.party] = {"kind": "linear", "width": width} if labels is None else {"kind": "grade"}
        shared["model"] = {"bottom": bottoms, "top": {"kind": "auto"}}
        shared["train"] = {"release": "once"}
    elif job.rows == "all":
        shared["model"] = {"bottom": {"kind": "tabular"}}
    if split := _split(job, labels_protected=release):
        shared.setdefault("train", {})["split"] = split
    if job.apart:
        shared["parties"][names[0]]["address"] = f"{names[0]}.example:7070"
        return {"job.yaml": shared, **{f"{name}.yaml": section for name, section in private.items()}}
    for name, section in private.items():
        shared["parties"][name] |= section
    # Where nobody else has a row, the undefended baseline, which is trained by steps, reads own columns alone.
    trains_by_steps = job.rows == "common" or job.has_features
    compare = [*(["undefended"] if trains_by_steps else []), *(["alone"] if job.has_features else [])]
    if compare:
        shared["compare"] = compare
    return {"job.yaml": shared}


def _split(job: FirstJob, *, labels_protected: bool) -> dict[str, Any]:
    """Settings of the split: by a column if one is named, else stratified unless labels are protected or ids repeat.

    A stratified split reveals a little of the labels: far less than gradients do, but it would void a guarantee. So
    would one by a column that is not stated to be public.

    Raises:
        ConfigError: The owner's table has no such column.
    """
    if job.split_by is not None:
        if job.split_by not in job.owner.columns:
            near = near_miss(job.split_by, list(job.owner.columns))
            raise ConfigError(f"no column {job.split_by!r} in {job.owner.path.name}{near}")
        return {"by": job.split_by} | ({"public": True} if labels_protected else {})
    return {} if labels_protected or job.repeats or task_of(job) == "regression" else {"stratify": True}


def _private(job: FirstJob, folder: Path, labels: float | None) -> Iterator[dict[str, Any]]:
    """The private part of each party; `labels` is the epsilon of the labels to which partners fit grades, if any."""
    for table in (job.owner, *job.partners):
        key = job.ids[table.path.name]
        for name in (key, *((job.label,) if table is job.owner else ())):
            if name not in table.columns:
                raise ConfigError.expected(f"a column {name!r} in {table.path.name}", ", ".join(table.columns))
        file = _relative(table.path, folder)
        stated = {"path": file} | ({} if table.delimiter is None else {"delimiter": table.delimiter})
        if table.decimal != ".":
            stated["decimal"] = table.decimal
        ids = job.id_of(table, **({"duplicates": "keep"} if table is job.owner and job.repeats else {}))
        section: dict[str, Any] = {"table": stated if len(stated) > 1 else file, "id": ids if len(ids) > 1 else key}
        numbers: dict[str, Any] = {"quantiles": 1} if table.has_missing_numbers else {}  # flags them
        if job.rows == "all" and not releases_once(job):
            numbers["quantiles"] = STEP_INTERVALS
        if table is job.owner:
            section["label"] = job.label
            if job.unlabelled:
                section["unlabelled"] = "drop"
            if job.positive is not None:
                section["positive"] = job.positive
            if not job.has_features:
                section["features"] = {"include": "none"}
            if job.protect in ("labels", "both"):
                section["privacy"] = {"label_free": None} if labels is None else {"label_dp": {"eps": labels}}
        else:
            if labels is not None:
                section["fit"] = {"kind": "grade"}
            elif job.protect in ("labels", "both"):
                section["fit"] = _sketch(table, key)
                numbers["scale"] = "robust"  # bounded: the release as a whole has a mean square of 1
            if job.protect in ("columns", "both"):
                noise = {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}
                section["privacy"] = noise if labels is None else {"grade_dp": {"epsilon": 8.0}}
                measuring = column_attacks(task_of(job), once=releases_once(job), graded=labels is not None)
                section["audit"] = {"attacks": [*measuring]}
        if numbers:
            section.setdefault("features", {})["numbers"] = numbers
        yield section


def _relative(path: Path, folder: Path) -> str:
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
