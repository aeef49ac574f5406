"""A first job from the answers to the questions about tables: its task, its overlap and its files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.alignment.local_tables import all_positions
from cutlayer.config import FeaturesConfig, IdConfig, Job, SplitConfig, near_miss
from cutlayer.config.base import validated
from cutlayer.config.job import TaskKind
from cutlayer.config.names import GRADE_CHOICES
from cutlayer.config.party import PrivatePart
from cutlayer.config.target import NUMBERS, SECOND_COLUMNS, TARGETS, Target
from cutlayer.data.align import intersect
from cutlayer.data.classes import class_rows, spelling_note
from cutlayer.data.distinct_ids import DistinctIds
from cutlayer.data.feature_columns import without_nan
from cutlayer.data.id_examples import with_examples
from cutlayer.data.party_data import PartyTable
from cutlayer.data.profile import ColumnProfile, label_profile
from cutlayer.data.sources import open_source
from cutlayer.errors import ConfigError, DataError, NothingInCommon
from cutlayer.jobs.found_tables import MAX_CLASSES, TableSummary, plain_name
from cutlayer.jobs.grades_choice import GradesChoice, choose_grades
from cutlayer.jobs.private_part import (
    PartnerTerms,
    column_terms,
    features_section,
    grade_bottom,
    model_columns,
    number_section,
    partner_section,
    sketch_width,
    table_section,
)

ProtectChoice = Literal["auto", "labels", "columns", "both", "proof", "nothing"]

CLASS_NAMES = re.compile(
    r"(^|_)(class|category|type|kind|group|species|segment|code|id)(es|s)?($|_)|[a-z](Id|ID|Code)$", re.I
)
"""Names of labels whose numbers are codes of classes."""
COUNT_NAMES = re.compile(r"(^|_)(counts?|num|number|n|visits?|claims?|events|orders|purchases|stays|calls)($|_)", re.I)
"""Names of labels of which few different whole numbers are counts, rather than classes."""
MIN_COUNT_ZEROS = 0.1
"""Share of zeros from which on whole numbers are taken for counts."""
DEFAULT_WIDTH = 64
"""Columns of the release of a partner whose table is not here."""
GRADES_COMMENT = (
    "Labels: each partner is sent one drawn label a training row, once; label_dp.eps bounds what it tells of a label.",
    "Columns: each partner sends one drawn grade of sixteen a row, once: four bits at most, and grade_dp.epsilon.",
    "What they carry of each column is in checkpoint/PARTNER/carried.json of the run, and fit.limits bounds it:",
    "see docs/how-to/grades.md.",
)
"""Comment in the file of a job whose partners release grades."""
WIDTHS_COMMENT = (
    "model.bottom.PARTNER.width: columns that it releases, as many as its table has after encoding, 32 to 256.",
)
"""Comment in the file of a job whose partners release their columns."""
FLAGS_COMMENT = ("features.numbers.quantiles: 1 flags missing numbers.",)
"""Comment in a file of a party that lacks some numbers."""
PUBLIC_SPLIT_COMMENT = (
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
        protect: What is protected; not `auto` by the time that files are written.
        apart: Whether each organisation runs its own part, with a private file each.
        remote_partners: Parties whose tables are not here, in place of `partners`, with the columns of their releases.
        first_rows: Files of partners in which some ids have several rows, of which the first is taken.
        split_by: Column of the owner's table by which the newest rows are tested on; `None` for rows at random.
        positive: The label that is called positive, of two; `None` for the greater one.
        task: The task, as a job names it; `None` for a guess.
        second: Second column of the label: its exposures, or its events.
        rows: Rows of the run: those of the owner, or those that all have.
        repeats: Whether an id of the owner has several rows, which are all kept.
        whole_ids: Whether ids are compared as whole numbers, since a program wrote some as `7.0` or `007`.
        unlabelled: Number of the owner's rows without a label, which the job leaves out.
        further_labels: Further label columns of the same task.
        federation: Name of the federation, as the owner's certificate has it; `None` for the default.
        referring: Column of the owner's table that refers to the rows of a partner, by the name of the partner's file;
            empty where all tables have one id.
        overlap: How the ids of the tables meet, where they have been matched: with millions of rows it takes a minute.
    """

    owner: TableSummary
    partners: tuple[TableSummary, ...]
    label: str
    ids: Mapping[str, str]
    protect: ProtectChoice = "labels"
    apart: bool = False
    remote_partners: Mapping[str, int] = field(default_factory=dict)
    first_rows: frozenset[str] = frozenset()
    split_by: str | None = None
    positive: str | None = None
    task: TaskKind | Target | None = None
    second: str | None = None
    rows: Literal["common", "all"] = "common"
    repeats: bool = False
    whole_ids: bool = False
    unlabelled: int = 0
    further_labels: tuple[str, ...] = ()
    federation: str | None = None
    referring: Mapping[str, str] = field(default_factory=dict)
    overlap: Overlap | None = None

    @property
    def has_features(self) -> bool:
        """Whether the owner has a column besides id, label and that of the split."""
        return bool(model_columns(self.owner, self.reserved))

    @property
    def reserved(self) -> set[str | None]:
        """Columns of the owner's table that are no features: id, those of the labels, and that of the split."""
        own = {self.ids[self.owner.path.name], *self.referring.values()}
        return {*own, self.label, *self.further_labels, self.second, self.split_by}

    @property
    def partner_ids(self) -> dict[str, Any]:
        """How the owner's rows refer to those of each partner, as a section of the job."""
        rule = {"normalise": "integer"} if self.whole_ids else {}
        files = {table.path.name: table.party for table in self.partners}
        return {files[file]: {"column": name, **rule} if rule else name for file, name in self.referring.items()}

    def id_of(self, table: TableSummary, **rules: Any) -> dict[str, Any]:
        """How a table's rows are identified, as a section of the job."""
        rules |= {"normalise": "integer"} if self.whole_ids and not (self.referring and table is self.owner) else {}
        rules |= {"duplicates": "first"} if table.path.name in self.first_rows else {}
        return {"column": self.ids[table.path.name], **rules}


class Overlap(NamedTuple):
    """How the ids of the tables meet.

    Attributes:
        rows: Number of the owner's rows.
        common: Number of those that every partner has.
        repeats: Whether an id of the owner has several rows.
        min_common_ids: Number of the owner's ids that the partner with the fewest has: each has one drawn label.
    """

    rows: int
    common: int
    repeats: bool
    min_common_ids: int


def with_matching_ids(job: FirstJob) -> tuple[FirstJob, Overlap]:
    """The job with the normal form of ids by which rows meet, and how they do.

    Raises:
        DataError: The ids of a table are not in order, or no row is with every party.
    """
    try:
        return job, overlap_of(job)
    except NothingInCommon as failure:
        whole = replace(job, whole_ids=True)
        with suppress(DataError):
            return whole, overlap_of(whole)
        raise with_examples(failure, _id_tables(job)) from None


def overlap_of(job: FirstJob) -> Overlap:
    """How the ids of the tables meet.

    Raises:
        DataError: The ids of a table are not in order, or no row is with every party.
    """
    tables, name = _id_tables(job), job.owner.party
    if job.referring:
        _, in_run = all_positions(name, {}, tables)
        met = [len(ids) for ids in in_run.ids.values()]  # each row of a partner has one drawn label
        return Overlap(tables[name].rows, int(in_run.held_by_all().sum()), False, min(met))
    identified = {name: table.id_table for name, table in tables.items()}
    own = identified[name]
    digests = {party: each.digests for party, each in identified.items()}

    def held(parties: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Whether each id is with all of some parties."""
        has = np.zeros(own.rows, dtype=bool)
        has[intersect({party: digests[party] for party in (name, *parties)})[name]] = True
        return has

    partners = [party for party in digests if party != name]
    common = held(partners)
    fewest = min(int(held([party]).sum()) for party in partners) if len(partners) > 1 else int(common.sum())
    by_row = common[own.id_numbers] if isinstance(own, DistinctIds) else common
    return Overlap(len(by_row), int(by_row.sum()), isinstance(own, DistinctIds), fewest)


def _id_tables(job: FirstJob) -> dict[str, PartyTable]:
    """The tables with their ids alone, by party."""
    tables = {}
    for table in (job.owner, *job.partners):
        keeps, none = table is job.owner and not job.referring, FeaturesConfig(include="none")
        ids = IdConfig(**job.id_of(table, duplicates="keep" if keeps else "refuse"))
        refers = {"partner_ids": job.partner_ids if table is job.owner else {}}
        partner_ids = validated(PrivatePart, refers, "").partner_ids
        tables[table.party] = PartyTable(table.party, table.config, ids, features=none, partner_ids=partner_ids)
    return tables


def releases_once(job: FirstJob) -> bool:
    """Whether the partners release each row once, which protects the labels."""
    return job.protect in ("labels", *GRADE_CHOICES)


def label_of(job: FirstJob) -> ColumnProfile:
    """Profile of the label column: its classes and their oddities."""
    return label_profile(job.owner.party, job.label, _labels(job), label_kind(job), job.owner.path.name, job.positive)


def _labels(job: FirstJob) -> pa.ChunkedArray:
    name, key = job.owner.path.name, f"{job.label} {job.owner.layout}"
    if key not in job.owner.label_columns:
        column = open_source(job.owner.config, name, name).read([job.label]).column(job.label)
        job.owner.label_columns[key] = without_nan(column)
    return job.owner.label_columns[key]


def task_of(job: FirstJob) -> TaskKind | Target:
    """The task: what is stated, or a guess by the labels' number, kind and name.

    Text is classes. Of numbers up to ten are classes, and more of them quantities, unless they are whole and the
    column's name says that they are codes. Whole numbers from 0 on of which many are 0 are counts.
    """
    if job.task is not None:
        return job.task
    distinct = job.owner.distinct[job.label]
    alike = job.owner.distinct_folded.get(job.label, distinct)
    if distinct == 2 or alike == 2:  # yes and YES are one class that is written in two ways
        return "binary"
    zeros = count_zeros(job)
    if zeros is not None and (distinct > MAX_CLASSES or COUNT_NAMES.search(job.label)) and zeros >= MIN_COUNT_ZEROS:
        return "count"
    if distinct <= MAX_CLASSES or job.label in job.owner.distinct_folded:
        return "multiclass"
    return "multiclass" if CLASS_NAMES.search(job.label) and has_whole_labels(job) else "regression"


def label_kind(job: FirstJob) -> TaskKind:
    """The kind of the labels: of each task of numbers a regression."""
    task = task_of(job)
    return task if task in ("binary", "multiclass") else "regression"


def count_zeros(job: FirstJob) -> float | None:
    """Share of zeros among labels that are whole numbers, 0 or more; `None` of others."""
    if job.label in job.owner.distinct_folded or not has_whole_labels(job):
        return None
    labels = _labels(job)
    least = pc.min(labels).as_py()
    if least is None or least < 0 or CLASS_NAMES.search(job.label):
        return None
    return float(pc.mean(pc.equal(labels, 0)).as_py())


def has_whole_labels(job: FirstJob) -> bool:
    """Whether the labels are whole numbers, which may be quantities or codes."""
    labels = _labels(job)
    if not pa.types.is_floating(labels.type):
        return bool(pa.types.is_integer(labels.type))
    return bool(pc.all(pc.equal(labels, pc.floor(labels)), skip_nulls=True).as_py())


def check_task(job: FirstJob) -> None:
    """Refuse a stated task that the labels do not fit.

    Raises:
        ConfigError: Two classes of other than two labels, a regression of text, or classes of fractions; or two labels
            that are written in several ways.
    """
    name = f"{job.label} of {job.owner.path.name}"
    distinct = job.owner.distinct[job.label]
    if job.task == "binary" and task_of(replace(job, task=None)) != "binary":
        fitting = "multiclass" if job.label in job.owner.distinct_folded else "multiclass or regression"
        raise ConfigError.expected(f"two different labels in {name} with --task binary", distinct, f"take {fitting}")
    if task_of(job) == "binary" and distinct > 2:
        spelling = spelling_note([*class_rows(_labels(job), name)])
        raise ConfigError(f"{name}: {spelling}, or take --task multiclass, where each is a class")
    if job.task in NUMBERS and job.label in job.owner.distinct_folded:
        raise ConfigError.expected(f"numbers in {name} with --task {job.task}", "text", "take multiclass")
    if job.task in TARGETS and not releases_once(job) and job.protect != "auto":
        remedy = "take --protect labels, where a top model is fitted at once"
        raise ConfigError.expected(f"--protect labels with --task {job.task}", job.protect, remedy)
    if job.task == "multiclass" and pa.types.is_floating(_labels(job).type) and not has_whole_labels(job):
        raise ConfigError.expected(f"classes in {name} with --task multiclass", "fractions", "take regression")


def check_further_labels(job: FirstJob, stated: TaskKind | Target | None) -> None:
    """Refuse further labels that one job does not have: of another task, or not in every row.

    Args:
        job: The job.
        stated: The task of all labels, where it is no guess.

    Raises:
        ConfigError: A column is not there, is used already, is of another task, or lacks a label.
    """
    file, task = job.owner.path.name, task_of(job)
    for number, name in enumerate(job.further_labels):
        if name not in job.owner.columns:
            raise ConfigError(
                f"--further-label: no column {name!r} in {file}{near_miss(name, list(job.owner.columns))}"
            )
        if name in {*job.further_labels[:number], job.ids[file], job.label, job.second, job.split_by}:
            raise ConfigError.expected("--further-label with a column of its own", f"{name!r}, which is used already")
        other = replace(job, label=name, second=None, positive=None, task=stated)
        check_task(other)
        if (of_other := task_of(other)) != task:
            got = f"{task} of {job.label}, {of_other} of {name}"
            raise ConfigError.expected("labels of one task", got, "state --task if that is wrong, or write two jobs")
        if job.positive is not None and not all_have_class(replace(job, further_labels=(name,)), job.positive):
            raise ConfigError.expected(f"--positive with a class of {name} too", repr(job.positive), "write two jobs")
        if missing := job.unlabelled + label_of(other).missing:
            raise ConfigError.expected(
                f"a row of {file} with every label", f"{missing:,} without one", "write two jobs"
            )


def all_have_class(job: FirstJob, name: str | None) -> bool:
    """Whether all further labels have a class of this name; also where it is `None`."""
    there = [label for label in job.further_labels if label in job.owner.columns]  # others are refused
    return name is None or all(name in (label_of(replace(job, label=label)).classes or {}) for label in there)


def grades_choice(job: FirstJob) -> GradesChoice:
    """Whether the partners of a job release grades, and of one that protects what is best, which that is."""
    if job.further_labels and not job.apart:  # the label that is worth least
        labels = (job.label, *job.further_labels)
        each = (grades_choice(replace(job, label=label, further_labels=())) for label in labels)
        return max(each, key=lambda choice: math.inf if choice.epsilon is None else choice.epsilon)
    refused, task, counts, rows = "", task_of(job), list[int](), 0
    if job.further_labels:
        refused = "grades of several labels are for one process"
    elif job.second is not None:
        refused = f"labels with a column of {SECOND_COLUMNS[task]} are not drawn"
    elif task not in NUMBERS:
        overlap, split = job.overlap or overlap_of(job), SplitConfig()
        counts = [*label_of(job).classes.values()]
        # Each partner fits to the labels of its own rows, one of each id.
        met = overlap.min_common_ids if job.rows == "all" else overlap.common
        labelled = sum(counts) / max(sum(counts) + job.unlabelled, 1)  # others are left out of the run
        rows = int((1 - split.test - split.validation) * labelled * met)
    return choose_grades(task, counts, rows, protect=job.protect, refused=refused)


def job_files(job: FirstJob, folder: Path) -> dict[str, dict[str, Any]]:
    """The files to write into a folder, by name: `job.yaml`, and between organisations one for each party that is here.

    Raises:
        ConfigError: A column that is not there, or two parties of one name.
    """
    tables = {table.path.name: table.party for table in (job.owner, *job.partners)}
    names = [*tables.values(), *job.remote_partners]
    if len(set(names)) < len(names):
        stated = "" if job.owner.owner_name is None else f", of which {names[0]!r} is that of the certificate in keys"
        raise ConfigError.expected("a name of its own for each party", f"{', '.join(names)}{stated}", "rename a table")
    if job.apart and "job" in names:
        raise ConfigError.expected("other names than job, whose private file were job.yaml", "job", "rename it")
    labels = grades_choice(job).epsilon if job.protect in GRADE_CHOICES else None
    private = dict(zip(tables.values(), _private_sections(job, folder, labels), strict=True))
    shared: dict[str, Any] = {"name": plain_name(folder.resolve().name) or "job", "task": task_of(job), "parties": {}}
    if job.rows == "all":
        shared["rows"] = "all"
    if job.federation is not None:
        shared["federation"] = job.federation
    for name in names:
        shared["parties"][name] = {"role": "active" if name == names[0] else "passive"}
    shared |= _model(job, labels, names[0])
    if split := _split(job, labels_protected=releases_once(job)):
        shared.setdefault("train", {})["split"] = split
    if job.apart:
        shared["parties"][names[0]]["address"] = f"{names[0]}.example:7070"
        validated(Job, shared, "job.yaml", folder)
        return {"job.yaml": shared, **{f"{name}.yaml": section for name, section in private.items()}}
    for name, section in private.items():
        shared["parties"][name] |= section
    # Where nobody else has a row, the undefended baseline, which is trained by steps, reads own columns alone.
    trains_by_steps = job.rows == "common" or job.has_features
    trains_by_steps = trains_by_steps and task_of(job) not in TARGETS and not job.referring
    trains_by_steps = trains_by_steps and (job.protect != "proof" or labels is None)  # nor by numbers without a scale
    compare = [*(["undefended"] if trains_by_steps else []), *(["alone"] if job.has_features else [])]
    if compare:
        shared["compare"] = compare
    validated(Job, shared, "job.yaml", folder)
    return {"job.yaml": shared}


def _model(job: FirstJob, labels: float | None, owner: str) -> dict[str, Any]:
    """The sections `model` and `train`; `labels` is the epsilon of labels to which partners fit grades, if any."""
    if not releases_once(job):
        return {"model": {"bottom": {"kind": "tabular"}}} if job.rows == "all" else {}
    widths = {table.party: sketch_width(table, job.ids[table.path.name]) for table in job.partners}
    bottoms: dict[str, Any] = {owner: {"kind": "auto"}}
    for name, width in {**widths, **job.remote_partners}.items():
        bottoms[name] = {"kind": "linear", "width": width} if labels is None else grade_bottom(labels)
    return {"model": {"bottom": bottoms, "top": {"kind": "auto"}}, "train": {"release": "once"}}


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
    return {} if labels_protected or job.repeats or task_of(job) in NUMBERS else {"stratify": True}


def _private_sections(job: FirstJob, folder: Path, labels: float | None) -> Iterator[dict[str, Any]]:
    """The private part of each party; `labels` is the epsilon of the labels to which partners fit grades, if any."""
    once = releases_once(job)
    keys = {table.path.name: job.ids[table.path.name] for table in (job.owner, *job.partners)}
    for table in (job.owner, *job.partners):
        for name in (keys[table.path.name], *((job.label,) if table is job.owner else ())):
            if name not in table.columns:
                raise ConfigError.expected(f"a column {name!r} in {table.path.name}", ", ".join(table.columns))
    yield _owner_section(job, folder, labels)
    release: Literal["sketch", "grade"] | None = None if not once else "sketch" if labels is None else "grade"
    terms = PartnerTerms(release, label_kind(job), job.rows == "all", *column_terms(job.protect))
    for table in job.partners:
        yield partner_section(table, keys[table.path.name], _ids(job, table), folder, terms)


def _ids(job: FirstJob, table: TableSummary, **rules: Any) -> Any:
    ids = job.id_of(table, **rules)
    return ids if len(ids) > 1 else ids["column"]


def _owner_section(job: FirstJob, folder: Path, labels: float | None) -> dict[str, Any]:
    """The private part of the owner of the labels."""
    repeats = {"duplicates": "keep"} if job.repeats else {}
    section = {**table_section(job.owner, folder), "id": _ids(job, job.owner, **repeats)}
    section |= {"partner_ids": job.partner_ids} if job.referring else {}
    section["label"] = job.label
    if job.further_labels:
        section["further_labels"] = [*job.further_labels]
    if job.second is not None:
        section[SECOND_COLUMNS[task_of(job)]] = job.second
    if job.unlabelled:
        section["unlabelled"] = "drop"
    if job.positive is not None:
        section["positive"] = job.positive
    if releases_once(job):
        section["privacy"] = {"label_free": None} if labels is None else {"label_dp": {"eps": labels}}
    steps_on_all_rows = job.rows == "all" and not releases_once(job)
    numbers = number_section(job.owner, steps_on_all_rows=steps_on_all_rows)
    return section | features_section(job.owner, job.reserved, numbers)
