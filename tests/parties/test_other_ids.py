"""Grades of one row by ids of two columns: a job by customers and one by telephone numbers are of the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from cutlayer.config import IdConfig, Job, TableConfig
from cutlayer.errors import ConfigError
from cutlayer.parties.carried_together import GradedRows
from cutlayer.parties.grade_memory import GradeMemory, JoinKeys
from tests.models.estimator_rows import steps_that_find_a_xor_b
from tests.parties.runs import ACTIVE
from tests.parties.test_carried_together import GIVEN, ROWS, TELCO, World, found_in, made, share

pytestmark = pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
PHONES = np.random.default_rng(3).permutation(ROWS) + 10**6
BOTH = {name: table.append_column("phone", pa.array(PHONES)) for name, table in GIVEN.items()}


@pytest.fixture(autouse=True)
def _enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_that_find_a_xor_b(monkeypatch)


def by(column: str, label: str, limits: Any = None) -> Job:
    """A job by one of two columns, of which the other is excluded."""
    job = made(label, limits)
    features = job.parties[TELCO].features.model_copy(update={"exclude": tuple({"id", "phone"} - {column})})
    parts: dict[str, Any] = {name: {"id": IdConfig(column=column)} for name in (ACTIVE, TELCO)}
    return job.with_parties({**parts, TELCO: {**parts[TELCO], "features": features}})


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a world in which a job by customers has ended; not to be changed."""
    world = World(tmp_path_factory.mktemp("begun"))
    with pytest.MonkeyPatch.context() as patched:
        steps_that_find_a_xor_b(patched)
        world.run(by("id", "one"), BOTH)
    return world.folder


@pytest.fixture
def world(begun: Path, tmp_path: Path) -> World:
    """The same world, to go on in."""
    world = World(shutil.copytree(begun, tmp_path / "world"))
    world.count = 1
    return world


def test_jobs_by_two_columns_are_refused_together(world: World) -> None:
    """The attack: b by customers, a xor b by telephone numbers."""
    with pytest.raises(ConfigError, match="of a at most with those of 1 other release"):
        world.run(by("phone", "other"), BOTH)
    allowed = found_in(world.run(by("phone", "other", {"other": 1.0}), BOTH))
    assert (allowed.former, share(allowed.together, "a") > 0.8) == (1, True)


def test_a_table_that_lacks_the_first_ids_and_has_more_columns(world: World) -> None:
    draw = np.random.default_rng(4)
    order = draw.permutation(ROWS)
    other = BOTH[TELCO].take(order).drop_columns(["id"]).append_column("new", pa.array(draw.normal(size=ROWS)))
    job = by("phone", "other").with_parties({TELCO: {"features": made("other").parties[TELCO].features}})
    with pytest.raises(ConfigError, match="with those of 1 other release"):
        world.run(job, {**BOTH, TELCO: other})


@pytest.mark.parametrize("source", ["memory", "file"])
def test_a_job_with_fewer_columns_knows_the_rows_by_those_that_it_does_not_use(
    world: World, tmp_path: Path, source: str
) -> None:
    """The attack: another column of ids, and a job in which c is no feature."""
    job = by("phone", "other")
    features = job.parties[TELCO].features.model_copy(update={"exclude": ("c", "id")})
    given: dict[str, Any] = {**BOTH}
    if source == "file":
        csv.write_csv(BOTH[TELCO], path := tmp_path / "telco.csv")
        given[TELCO] = TableConfig(path=path)
    with pytest.raises(ConfigError, match="of a at most with those of 1 other release"):
        world.run(job.with_parties({TELCO: {"features": features}}), given)


def ids(rows: np.ndarray) -> np.ndarray:
    return np.repeat(rows.astype("<i8")[:, None], 2, axis=1).view(np.uint8)


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_joined_by_ids_then_by_values_that_no_other_row_has(tmp_path: Path, seed: int) -> None:
    """Against a slow search, with values that repeat, are missing, or moved to another id."""
    draw, memory = np.random.default_rng(seed), GradeMemory(tmp_path / "grades")
    memory.folder.mkdir()
    known, asked = draw.permutation(600)[:400], draw.permutation(600)[:400] + 200
    values = draw.integers(0, 400, size=(2, 400))  # 0 is none
    grades = draw.integers(16, size=400)
    memory.record("one", "job", JoinKeys(ids(known), ("x",), lambda _: values[0]), GradedRows(grades, 16, 8.0))
    (found,), _ = memory.other_releases(
        "other", JoinKeys(ids(asked), (), lambda names: values[1] if names == ("x",) else None)
    )
    for row, value, got in zip(asked, values[1], found.grades, strict=True):
        at = np.flatnonzero(known == row)
        if not len(at) and value and (values[1] == value).sum() == (values[0] == value).sum() == 1:
            at = np.flatnonzero(values[0] == value)
            at = at[~np.isin(known[at], asked)]
        assert got == (grades[at[0]] if len(at) else -1)
    assert (found.grades >= 0).sum() > np.isin(asked, known).sum()
    (without,), _ = memory.other_releases("other", JoinKeys(ids(asked)))
    assert ((without.grades >= 0) == np.isin(asked, known)).all()


def test_values_move_with_the_rows_of_a_release(tmp_path: Path) -> None:
    """Where more rows of a release are noted, and some are forgotten."""
    memory, rows = GradeMemory(tmp_path / "grades"), np.arange(8)
    memory.folder.mkdir()
    for some in (rows[::-1][:4], rows[:6]):
        memory.record(
            "one", "job", JoinKeys(ids(some), ("x",), lambda _, some=some: some + 100), GradedRows(some, 16, 8.0)
        )
    memory.forget(ids(rows[3:4]))
    (found,), _ = memory.other_releases("other", JoinKeys(ids(rows + 50), (), lambda _: rows + 100))
    assert found.grades.tolist() == [0, 1, 2, -1, 4, 5, 6, 7]
