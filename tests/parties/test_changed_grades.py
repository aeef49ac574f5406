"""A row whose grade changes, as its columns do, has several grades: limits are of all that were released of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.parties.carried_together import GradedRows
from cutlayer.parties.grade_memory import GradeMemory, JoinKeys
from tests.models.estimator_rows import steps_that_find_a_xor_b
from tests.parties.runs import ACTIVE
from tests.parties.test_carried_together import TELCO
from tests.parties.test_grades import raw
from tests.parties.test_predicted_grades import predicted
from tests.training.test_all_runs import World

pytestmark = pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
ROWS = 3000
DRAW = np.random.default_rng(0)
A, B, SWITCH = DRAW.integers(2, size=(3, ROWS))


@pytest.fixture(autouse=True)
def _enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_that_find_a_xor_b(monkeypatch)


def columns(switch: np.ndarray) -> pa.Table:
    return pa.table({"id": np.arange(ROWS), "a": A, "b": B, "switch": switch})


def made(limits: dict[str, float]) -> Job:
    job = raw({"candidates": ["boosting"], "limits": limits}, bottom={"kind": "grade", "grades": 2, "least_rows": 0})
    job["parties"][ACTIVE] |= {"features": {"include": ["own"]}}
    job["parties"][ACTIVE]["privacy"]["label_dp"]["eps"] = 4.0
    return validated(Job, job, "")


def trained(world: World, job: Job, rows: slice = slice(None)) -> Path:
    """Labels are a xor b of half of the rows, and b of the others: a column that the label owner sets says of which."""
    own = {"id": np.arange(ROWS), "own": DRAW.normal(size=ROWS), "label": np.where(SWITCH == 1, B, A ^ B)}
    return world.run(job, {TELCO: columns(SWITCH), ACTIVE: pa.table(own)[rows]})


def set_to(value: int, rows: slice = slice(None)) -> pa.Table:
    return columns(np.full(ROWS, value))[rows]


def test_a_column_that_is_set_between_two_predictions_tells_another(tmp_path: Path) -> None:
    """The attack, allowed: the label owner has all rows graded, sets a column of theirs, and has them graded again."""
    job = made({"other": 1.0})
    run, every = trained(World(tmp_path), job), np.arange(ROWS)
    both = [predicted(job, run, every, set_to(value)) > 0 for value in (0, 1)]
    agree = [(each == A).mean() for each in (*both, both[0] ^ both[1])]
    assert max(abs(each - 0.5) for each in agree[:2]) < 0.06
    assert max(agree[2], 1 - agree[2]) > 0.9


OF_A = r"an attribute of a at most with those of 1 other release of these rows, got (1\.0|0\.9)"


def test_limits_are_of_the_first_grade_and_the_next(tmp_path: Path) -> None:
    """At the default limit of a, of which neither grade tells anything: of rows that only predictions had."""
    job = made({"b": 1.0, "switch": 1.0})
    run = trained(World(tmp_path), job, slice(1500))
    later = np.arange(1500)
    before = predicted(job, run, later, set_to(0, slice(1500, None)))
    for count in (1500, 20, 1):
        with pytest.raises(ConfigError, match=OF_A):
            predicted(job, run, later[:count], set_to(1, slice(1500, None)))
    assert (predicted(job, run, later, set_to(0, slice(1500, None))) == before).all()


def test_limits_are_of_the_grades_of_the_training_too(tmp_path: Path) -> None:
    """Which rows have another grade by now tells of a as well: of two grades, all of what the older one told."""
    job = made({"b": 1.0, "switch": 1.0, "a": 0.2})
    run = trained(World(tmp_path), job)
    with pytest.raises(ConfigError, match=r"carry 0\.2 of .* a at most with those of 1 other .* got 0\.[23]"):
        predicted(job, run, np.arange(ROWS), set_to(1))


def test_other_jobs_have_limits_with_every_grade_that_a_row_had(tmp_path: Path) -> None:
    """The attack: a grade that a later one replaced in the memory is still the label owner's."""
    world, allowed = World(tmp_path), made({"other": 1.0})
    run = trained(world, allowed, slice(1500))
    for value in (0, 1):
        predicted(allowed, run, np.arange(1500), set_to(value, slice(1500, None)))
    own = {"id": np.arange(1500, ROWS), "own": DRAW.normal(size=1500), "label": B[1500:]}
    given = {TELCO: set_to(1, slice(1500, None)), ACTIVE: pa.table(own)}
    with pytest.raises(ConfigError, match=r"an attribute of a at most with those of 2 other releases"):
        world.run(made({"b": 1.0, "switch": 1.0}).with_parties({}, name="next"), given)


def ids(count: int) -> JoinKeys:
    return JoinKeys(np.arange(2 * count, dtype="<i8").view(np.uint8).reshape(-1, 16))


def test_each_grade_of_a_row_is_noted_once(tmp_path: Path) -> None:
    """However often it changes: there are no more than grades, and a grade that comes again is the newest."""
    memory, rows = GradeMemory(tmp_path), ids(3)
    memory.folder.mkdir(exist_ok=True)
    for grades in ([0, 5, 7], [1, 5, 7], [0, 5, 8], [2, 5, 7], [2, 5, 9]):
        memory.record("one", "job", rows, GradedRows(np.array(grades), 16, 8.0))
    found, _ = memory.other_releases("other", rows)
    # Newest last; a row that has no further one has the code of none.
    assert [each.grades.tolist() for each in found] == [[1, 5, 8], [0, 16, 7], [2, 16, 9]]
    assert [each.has_rest for each in found] == [False, True, True]
    found, _ = memory.other_releases("one", rows, np.array([2, 5, 7]))
    assert [each.grades.tolist() for each in found] == [[1, 16, 8], [0, 16, 9]]
    assert not memory.other_releases("one", rows)[0]
    some = JoinKeys(rows.digests[:1])
    assert [each.grades.tolist() for each in memory.other_releases("one", some, np.array([2]))[0]] == [[1], [0]]
    memory.forget(rows.digests[:1])
    found, _ = memory.other_releases("other", rows)
    assert [each.grades.tolist() for each in found] == [[-1, 5, 8], [-1, 16, 7], [-1, 16, 9]]
    for nth in range(200):
        memory.record("one", "job", rows, GradedRows(np.array([nth % 16, nth * 5 % 16, nth * 7 % 16]), 16, 8.0))
    assert len(memory.other_releases("other", rows)[0]) == 16
