"""The private part of a partner in a first job: its table as it is written, its columns, its release."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cutlayer.attacks import column_attacks
from cutlayer.config.job import Job, TaskKind
from cutlayer.config.names import GRADE_CHOICES
from cutlayer.config.table import expand
from cutlayer.errors import DataError
from cutlayer.jobs.found_tables import TableSummary

MIN_SKETCH, MAX_SKETCH = 32, 256
"""Columns of the release of each partner, where labels are protected: as many as its table has after encoding."""
STEP_INTERVALS = 64
"""Intervals of each number in runs on all rows that are trained by steps. Rows that no partner has are predicted from
the owner's columns alone, of which networks use skewed numbers as well as trees do by their intervals only: see
docs/how-to/all-rows.md."""
COLUMN_EPSILON = 8.0
"""Epsilon of a partner's rows, where its columns are protected."""
FIT_EPSILON = 2.0
"""Epsilon of the model of a partner's grades, where it is private."""
PRIVATE_NUMBERS = {"scale": "none", "missing": "zero"}
"""How a private model has numbers encoded: by nothing that a row decides on."""


class PartnerTerms(NamedTuple):
    """What a job asks of a partner.

    Attributes:
        release: What it releases once: a sketch of its columns, or a grade; `None` where it trains by steps.
        task: Kind of the task.
        all_rows: Whether the run is on all rows of the owner.
        protects_columns: Whether it protects its columns by noise.
        fits_privately: Whether the model of its grades is private.
        width: Columns of its sketch, where the job states them; `None` for as many as its table has.
    """

    release: Literal["sketch", "grade"] | None
    task: TaskKind
    all_rows: bool = False
    protects_columns: bool = False
    fits_privately: bool = False
    width: int | None = None

    @classmethod
    def of(cls, job: Job, name: str, protect: str) -> PartnerTerms:
        """The terms of a shared job for one of its passive parties, which protects what a word says."""
        bottom = job.bottom_of(name)
        once = job.train.release_of(name) == "once"
        kinds: dict[object, Literal["sketch", "grade"]] = {"linear": "sketch", "grade": "grade"}
        release = kinds.get(bottom["kind"]) if once else None
        # A grade is drawn, so its epsilon is stated whatever the partner wants to protect besides.
        protects, privately = column_terms(protect)
        protects = protects or release == "grade"
        return cls(release, job.task, job.rows == "all", protects, privately, bottom.get("width"))


def column_terms(protect: str) -> tuple[bool, bool]:
    """Whether a word of `init --protect` protects columns, and whether grades are then of private models."""
    return protect in ("columns", *GRADE_CHOICES), protect == "proof"


def grade_fit(*, private: bool) -> dict[str, Any]:
    """The fit of a partner that grades rows, as a section."""
    return {"kind": "grade", **({"epsilon": FIT_EPSILON} if private else {})}


def model_columns(table: TableSummary, reserved: Collection[str | None]) -> tuple[str, ...]:
    """Columns of a table that are features.

    Args:
        table: The table.
        reserved: Its id, its label and the column of its split, as far as it has them.
    """
    return tuple(name for name in table.columns if name not in table.left_out and name not in reserved)


def encoded_width(table: TableSummary, key: str) -> int:
    """Columns that a partner's table has after encoding.

    Args:
        table: The table.
        key: Its id column.
    """
    # A number; where missing ones are flagged, two categories and their count as well.
    number = 4 if table.has_missing_numbers else 1
    names = model_columns(table, {key})
    return sum(table.frequent_values[name] + 1 if name in table.frequent_values else number for name in names)


def sketch_width(table: TableSummary, key: str) -> int:
    """Columns of a release that keeps what a table has after encoding, within limits; arguments as of that."""
    return min(max(encoded_width(table, key), MIN_SKETCH), MAX_SKETCH)


def sketch_section(table: TableSummary, key: str, width: int | None) -> dict[str, Any]:
    """The form of a partner's release: columns apart, which trees predict better from, unless there are too many.

    Neither this nor a rotation hides any of them, also from a receiver who knows no row: see
    docs/results/release-forms.md.

    Args:
        table: Table of a partner.
        key: Its id column.
        width: Columns of the release; `None` for as many as the table has.
    """
    number = 2 if table.has_missing_numbers else 1  # the number, and how many rows lack it as this one does
    least = sum(1 if name in table.frequent_values else number for name in model_columns(table, {key}))
    return {"kind": "sketch", **({"map": "permutation"} if least <= (width or MAX_SKETCH) else {})}


def table_section(table: TableSummary, folder: Path) -> dict[str, Any]:
    """The table of a party: its path from a folder, and how it is written."""
    path, folder = table.path.resolve(), folder.resolve()
    file = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    return {"table": {"path": file, **table.layout} if table.layout else file}


def infinite_columns(table: TableSummary, reserved: Collection[str | None]) -> list[str]:
    """Features some of whose numbers are infinite, which a job has to take for missing."""
    return [name for name in table.infinite if name in model_columns(table, reserved)]


def features_section(table: TableSummary, reserved: Collection[str | None], numbers: dict[str, Any]) -> dict[str, Any]:
    """The features of a party: what is left out, and how numbers are encoded; empty where all is by default.

    Raises:
        DataError: What is left out cannot be named.
    """
    left_out = [name for name in table.left_out if name not in reserved]
    if ranges := [name for name in left_out if expand((name,)) != (name,)]:
        wanted = f"another name for {ranges[0]!r} in {table.path.name}, which is left out ({table.left_out[ranges[0]]})"
        raise DataError.expected(wanted, "one that a job reads as several columns", "rename it")
    features: dict[str, Any] = {"exclude": left_out} if left_out else {}
    if not model_columns(table, reserved):
        features = {"include": "none"}
    if infinite_columns(table, reserved):
        numbers = {**numbers, "infinite": "missing"}
    features |= {"numbers": numbers} if numbers else {}
    return {"features": features} if features else {}


def number_section(table: TableSummary, *, steps_on_all_rows: bool) -> dict[str, Any]:
    """How numbers are encoded: missing ones are flagged, and on all rows by steps each is in intervals."""
    numbers: dict[str, Any] = {"quantiles": 1} if table.has_missing_numbers else {}
    return {"quantiles": STEP_INTERVALS} if steps_on_all_rows else numbers


def column_protection(task: TaskKind, release: Literal["sketch", "grade"] | None) -> dict[str, Any]:
    """Sections of the protection of a partner's columns and of the attacks that measure it; see `PartnerTerms`."""
    noise = {"dp_embedding": {"clip": 1.0, "epsilon": COLUMN_EPSILON, "delta": 1e-5}}
    privacy = {"grade_dp": {"epsilon": COLUMN_EPSILON}} if release == "grade" else noise
    measuring = column_attacks(task, once=release is not None, graded=release == "grade")
    return {"privacy": privacy, "audit": {"attacks": [*measuring]}}


def grade_bottom(labels: float) -> dict[str, Any]:
    """Bottom model of a partner that grades rows by labels, which are drawn at an epsilon, as a section."""
    return {"kind": "grade", "label_epsilon": labels}


def partner_section(table: TableSummary, key: str, ids: object, folder: Path, terms: PartnerTerms) -> dict[str, Any]:
    """The private part of a partner.

    Args:
        table: Its table.
        key: Its id column.
        ids: How its rows are identified, as a section.
        folder: Folder of the file.
        terms: What the job asks of it.

    Raises:
        DataError: It has no column that is a feature.
    """
    if not model_columns(table, {key}):
        others = ", ".join(f"{name} ({reason})" for name, reason in table.left_out.items() if name != key)
        wanted = f"a column for a model besides the id {key} in {table.path.name}"
        raise DataError.expected(wanted, others or "none", "leave the table out, or add columns to it")
    section = {**table_section(table, folder), "id": ids}
    numbers = number_section(table, steps_on_all_rows=terms.all_rows and terms.release is None)
    if terms.release == "sketch":
        section["fit"] = sketch_section(table, key, terms.width)
        numbers["scale"] = "robust"  # bounded: the release as a whole has a mean square of 1
    elif terms.release == "grade":
        section["fit"] = grade_fit(private=terms.fits_privately)
        numbers = {**PRIVATE_NUMBERS} if terms.fits_privately else numbers
    if terms.protects_columns:
        section |= column_protection(terms.task, terms.release)
    return section | features_section(table, {key}, numbers)
