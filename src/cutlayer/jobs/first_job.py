"""A first job from the tables in a folder: what is guessed, and the files that are written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import FeaturesConfig, IdConfig, TableConfig, near_miss
from cutlayer.config.base import validated
from cutlayer.config.job import TaskKind
from cutlayer.data.align import intersect
from cutlayer.data.columns import is_text, without_nan
from cutlayer.data.distinct_ids import DistinctIds, Identified
from cutlayer.data.party_data import PartyTable
from cutlayer.data.profile import ColumnProfile, label_profile
from cutlayer.data.sources import SOURCES, open_source
from cutlayer.data.sources.csv import has_decimal_commas, unusual_delimiter
from cutlayer.data.sources.csv_layout import uncompressed_name
from cutlayer.errors import ConfigError, DataError, NothingInCommon
from cutlayer.models.fitting.sketch import SketchFit

Protected = Literal["labels", "columns", "both", "nothing"]

LABEL_NAMES = re.compile(r"(^|_)(y|(label|target|outcome|default|class|churn|income)(s|e?d)?)($|_)", re.IGNORECASE)
ID_NAMES = re.compile(r"(^|_)(id|key|uuid|customer|person|client|patient)($|_)|id$", re.IGNORECASE)
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


PUBLIC_SPLIT = (
    "train.split.public: partners are sent which rows have the largest values of this column. It states that they may",
    "know this, whatever it shows of the labels, and the guarantee of the labels is given that. A date of application",
    "may be public; a column that follows the label, as days past due do, is not: leave train.split out then.",
)
"""What the file of a job says of a split by a column beside protected labels."""


@dataclass(frozen=True)
class TableSummary:
    """A table that was found.

    Attributes:
        path: Path of the file.
        columns: Names of the columns.
        rows: Number of rows.
        distinct: Number of different values of each column.
        folded: Number of different values of each column of text after trimming and lower-casing.
        frequent: Number of values of each column of text that have a vector of their own in a sketch.
        has_missing_numbers: Whether a number is missing.
        delimiter: Delimiter of a CSV file, where it is not the one that its ending stands for.
        decimal: Character before the decimals of its numbers.
    """

    path: Path
    columns: tuple[str, ...]
    rows: int
    distinct: Mapping[str, int]
    folded: Mapping[str, int] = field(default_factory=dict)
    frequent: Mapping[str, int] = field(default_factory=dict)
    has_missing_numbers: bool = False
    delimiter: str | None = None
    decimal: str = "."

    @property
    def config(self) -> TableConfig:
        """The table's section of a job."""
        return _config_of(self.path, self.delimiter, self.decimal)

    @property
    def party(self) -> str:
        """A name for its owner, from the file's name."""
        plain = unicodedata.normalize("NFKD", self.path.name.partition(".")[0].replace("ß", "ss"))
        plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("-")
        return "party_kind" if name == "kind" else name or "party"


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


def find_tables(folder: Path, named: Collection[str] = ()) -> tuple[TableSummary, ...]:
    """The tables of a folder, by name.

    Args:
        folder: The folder.
        named: Names of the files that take part; all files are read without any, and if one of them is not there.

    Raises:
        DataError: There are fewer than two, or one cannot be read.
    """
    endings = tuple(ending for kind in ("csv", "parquet") for ending in SOURCES[kind].endings)
    files = sorted(path for path in folder.iterdir() if path.is_file() and uncompressed_name(path).endswith(endings))
    if len({*named}) > 1 and {*named} <= {path.name for path in files}:
        files = [path for path in files if path.name in named]
    try:
        tables = tuple(read_table(path) for path in files)
    except DataError as failure:
        raise DataError(f"{failure}; if it takes no part, name those that do with --labels and --partner") from None
    if len(tables) < 2:
        got = ", ".join(table.path.name for table in tables) or "none"
        raise DataError.expected(
            f"two tables or more in {folder} ({', '.join(endings)})", got, "or see cutlayer demo --copy for an example"
        )
    return tables


def read_table(path: Path) -> TableSummary:
    """Names and numbers of values of a table's columns.

    Raises:
        DataError: It cannot be read.
    """
    delimiter = unusual_delimiter(path)
    decimal = "," if has_decimal_commas(path, delimiter) else "."
    source = open_source(_config_of(path, delimiter, decimal), path.name, path.name)
    table = source.read(source.names)
    distinct = {name: int(pc.count_distinct(table.column(name)).as_py()) for name in source.names}
    texts = [name for name in source.names if is_text(table.column(name).type)]
    folded = {name: _distinct_folded(table.column(name)) for name in texts}
    frequent = {name: _count_frequent(table.column(name)) for name in texts}
    missing = any(without_nan(table.column(name)).null_count for name in source.names if name not in texts)
    return TableSummary(
        path, tuple(source.names), table.num_rows, distinct, folded, frequent, missing, delimiter, decimal
    )


def _distinct_folded(column: pa.ChunkedArray) -> int:
    alike = pc.utf8_lower(pc.utf8_trim_whitespace(pc.unique(column)))
    return int(pc.count_distinct(alike).as_py())


def _count_frequent(column: pa.ChunkedArray) -> int:
    counts = pc.value_counts(column.drop_null()).field("counts")
    return int(np.count_nonzero(counts.to_numpy() >= SketchFit().min_count))


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

    A rotation hides no more of them from a receiver who knows twenty rows: see docs/results/release-forms.md.
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


def _config_of(path: Path, delimiter: str | None, decimal: str) -> TableConfig:
    return validated(TableConfig, {"path": path, "delimiter": delimiter, "decimal": decimal}, "table")


def label_of(job: FirstJob) -> ColumnProfile:
    """What the label column is taken for: its classes, and what is odd about them."""
    return label_profile(job.owner.party, job.label, _labels(job), task_of(job), job.owner.path.name)


def _labels(job: FirstJob) -> pa.ChunkedArray:
    name = job.owner.path.name
    return without_nan(open_source(job.owner.config, name, name).read([job.label]).column(job.label))


def id_columns(tables: Sequence[TableSummary], named: Sequence[str] = ()) -> dict[str, str]:
    """The column that identifies a row in each table, by the name of its file.

    Args:
        tables: Tables of all parties.
        named: Names of the column; several where the tables name it differently. Without a name it is guessed.

    Raises:
        ConfigError: A table has no column of these names.
        DataError: Nothing is named, and there is no column of one name whose values are all different.
    """
    if named:
        return {table.path.name: _first_named(table, named) for table in tables}
    for alike in (str, _letters):  # the same name, then the same letters: Customer No and customer_no
        identifying = [
            [name for name in table.columns if table.distinct[name] == table.rows and alike(name) in names]
            for names in [_shared_names(tables, alike)]
            for table in tables
        ]
        if all(identifying):
            first = next((name for name in identifying[0] if ID_NAMES.search(name)), identifying[0][0])
            matching = [[name for name in columns if alike(name) == alike(first)] for columns in identifying]
            if all(matching):
                return {table.path.name: names[0] for table, names in zip(tables, matching, strict=True)}
    if (found := _equal_values(tables)) is not None:
        return found
    same = [name for name in tables[0].columns if all(name in table.columns for table in tables)]
    repeated = [
        f"{name} with {table.distinct[name]:,} values in {table.rows:,} rows of {table.path.name}"
        for name in same
        for table in tables
        if table.distinct[name] < table.rows
    ]
    raise DataError.expected(
        "a column of one name in every table whose values are all different",
        ", ".join(repeated[:3]) or "no column in common",
        "name it with --id, once for each name that it has; a partner's table has one row per id",
    )


def _equal_values(tables: Sequence[TableSummary]) -> dict[str, str] | None:
    """The columns whose values meet, whatever their names: half of those of the shorter table, or more."""
    first, *others = [_unique_columns(table) for table in tables]
    for name in sorted(first, key=lambda name: not ID_NAMES.search(name)):  # before a number of the row, say
        found, values = {tables[0].path.name: name}, first[name]
        for table, columns in zip(tables[1:], others, strict=True):
            met = {other: int(pc.sum(pc.is_in(column, values)).as_py() or 0) for other, column in columns.items()}
            best = max(met, key=lambda other: (met[other], bool(ID_NAMES.search(other))), default=None)
            if best is not None and 2 * met[best] >= min(len(values), table.rows):
                found[table.path.name] = best
        if len(found) == len(tables):
            return found
    return None


def _unique_columns(table: TableSummary) -> dict[str, pa.ChunkedArray]:
    """Columns whose values are all different, as text, by name; no fractions, which identify nothing."""
    source = open_source(table.config, table.path.name, table.path.name)
    names = [name for name in table.columns if table.distinct[name] == table.rows]
    columns = {name: source.read([name]).column(name) for name in names}
    return {name: column.cast(pa.string()) for name, column in columns.items() if not pa.types.is_floating(column.type)}


def _shared_names(tables: Sequence[TableSummary], alike: Callable[[str], str]) -> set[str]:
    """Names that every table has, in a form that makes like names equal."""
    return set.intersection(*({alike(name) for name in table.columns} for table in tables))


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _first_named(table: TableSummary, named: Sequence[str]) -> str:
    for name in named:
        if name in table.columns:
            return name
    wanted = f"expected a column of {table.path.name}, got {' or '.join(map(repr, named))}"
    near = near_miss(named[0], list(table.columns))
    raise ConfigError(f"{wanted}{near}; give --id once for each name that the column has")


def guess(tables: Sequence[TableSummary], ids: Mapping[str, str]) -> tuple[TableSummary, str]:
    """The table that most likely has the labels, and their column.

    Raises:
        DataError: No column's name says that it is the label.
    """
    for table in tables:
        if (label := _label(table, ids[table.path.name])) is not None:
            return table, label
    few = [f"{name} of {table.path.name}" for table in tables for name in candidates(table, ids[table.path.name])[:2]]
    raise DataError.expected(
        "a column whose name says that it is the label", f"others, such as {', '.join(few)}", "name it with --label"
    )


def _label(table: TableSummary, key: str) -> str | None:
    other_columns = [name for name in table.columns if name != key]
    named = [name for name in other_columns if LABEL_NAMES.search(name) and table.distinct[name] >= 2]
    return named[0] if named else None


def candidates(table: TableSummary, key: str) -> list[str]:
    """Columns that may be the label: likely names first, then those of few values."""
    other_columns = [name for name in table.columns if name != key and table.distinct[name] >= 2]
    return sorted(other_columns, key=lambda name: (not LABEL_NAMES.search(name), table.distinct[name]))


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
    name, distinct = f"{job.label} of {job.owner.path.name}", job.owner.distinct[job.label]
    if job.task == "binary" and task_of(replace(job, task=None)) != "binary":
        fitting = "multiclass" if job.label in job.owner.folded else "multiclass or regression"
        raise ConfigError.expected(f"two different labels in {name} with --task binary", distinct, f"take {fitting}")
    if job.task == "regression" and job.label in job.owner.folded:
        raise ConfigError.expected(f"numbers in {name} with --task regression", "text", "take multiclass")
    if job.task == "multiclass" and pa.types.is_floating(_labels(job).type) and not has_whole_labels(job):
        raise ConfigError.expected(f"classes in {name} with --task multiclass", "fractions", "take regression")


def files_of(job: FirstJob, folder: Path) -> dict[str, dict[str, Any]]:
    """The files to write into a folder, by name: `job.yaml`, and between organisations one for each party.

    Raises:
        ConfigError: A column that is not there, or two parties of one name.
    """
    parties = (job.owner, *job.partners)
    names = [table.party for table in parties]
    if len(set(names)) < len(names):
        raise ConfigError.expected("a file name of its own for each party's table", ", ".join(names), "rename one")
    private = dict(zip(names, _private(job, folder), strict=True))
    release = releases_once(job)
    shared: dict[str, Any] = {"name": folder.resolve().name or "job", "task": task_of(job), "parties": {}}
    if job.rows == "all":
        shared["rows"] = "all"
    for table in parties:
        shared["parties"][table.party] = {"role": "active" if table is job.owner else "passive"}
    if release:
        bottoms: dict[str, Any] = {names[0]: {"kind": "auto"}}
        for table in job.partners:
            bottoms[table.party] = {"kind": "linear", "width": sketch_width(table, job.ids[table.path.name])}
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


def _private(job: FirstJob, folder: Path) -> Iterator[dict[str, Any]]:
    """The private part of each party."""
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
                section["privacy"] = {"label_free": None}
        else:
            if job.protect in ("labels", "both"):
                section["fit"] = _sketch(table, key)
                numbers["scale"] = "robust"  # bounded: the release as a whole has a mean square of 1
            if job.protect in ("columns", "both"):
                section["privacy"] = {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}
        if numbers:
            section.setdefault("features", {})["numbers"] = numbers
        yield section


def _relative(path: Path, folder: Path) -> str:
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
