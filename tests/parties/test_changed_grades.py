"""A row whose grade changes, as its columns do, has several grades: limits are of all that were released of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.parties.carried_limits import check_limits
from cutlayer.parties.carried_together import GradedRows
from cutlayer.parties.grade_memory import GradeMemory, JoinKeys
from tests.models.estimator_rows import steps_that_find_a_xor_b
from tests.parties.runs import ACTIVE
from tests.parties.test_carried_together import TELCO, codes_store, joined
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


def test_a_column_that_is_set_between_two_predictions_tells_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack, allowed: the label owner has all rows graded, sets a column of theirs, and has them graded again."""
    job = made({"other": 1.0})
    run, every = trained(World(tmp_path), job), np.arange(ROWS)
    both = [predicted(job, run, every, set_to(value)) > 0 for value in (0, 1)]
    agree = [(each == A).mean() for each in (*both, both[0] ^ both[1])]
    assert max(abs(each - 0.5) for each in agree[:2]) < 0.06
    assert max(agree[2], 1 - agree[2]) > 0.9
    notes: list[str] = []
    monkeypatch.setattr(GradeMemory, "record", lambda _, name, *_rest: notes.append(name))
    predicted(job, run, every, set_to(1))
    assert len(notes) == 1  # of the same grades, too: they have not changed until now


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


def noted(memory: GradeMemory, name: str, rows: JoinKeys, now: list[int] | None = None) -> list[list[int]]:
    found, _ = memory.other_releases(name, rows, None if now is None else np.array(now))
    assert all(each.has_rest == (16 in each.grades or each.bands == 17) for each in found)
    return [each.grades.tolist() for each in found]


def test_the_grades_before_each_change_are_noted(tmp_path: Path) -> None:
    """Rows that had the grade that they have now have the code of no other grade, 16."""
    memory, rows = GradeMemory(tmp_path), ids(3)
    for grades in ([0, 5, 7], [1, 5, 7], [0, 5, 8], [0, 5, 9]):
        memory.record("one", "job", rows, GradedRows(np.array(grades), 16, 8.0))
    # The first is that before the second note, and so on; the newest is the last.
    assert noted(memory, "other", rows) == [[16, 16, 7], [1, 16, 7], [16, 16, 8], [0, 5, 9]]
    assert noted(memory, "one", rows, [2, 5, 9]) == [[0, 16, 7], [1, 16, 7], [0, 16, 8], [0, 16, 16]]
    assert noted(memory, "one", rows) == []
    assert noted(memory, "one", JoinKeys(rows.digests[1:2]), [5]) == []
    memory.forget(rows.digests[:1])
    assert noted(memory, "other", rows) == [[-1, 16, 7], [-1, 16, 8], [-1, 5, 9]]


def test_the_memory_of_a_row_that_changes_again_and_again_is_bounded(tmp_path: Path) -> None:
    """Of the 16th change on each grade of a row is noted once, whenever it had it."""
    memory, rows = GradeMemory(tmp_path), ids(3)
    for nth in range(100):
        memory.record("one", "job", rows, GradedRows(np.array([nth % 16, nth * 5 % 16, nth % 2]), 16, 8.0))
    found = noted(memory, "one", rows, [16, 16, 16])
    assert len(found) <= 32
    assert {each[0] for each in found} == {each[1] for each in found} == {*range(16)}
    assert [each[0] for each in found] == [*range(16), *range(15), 3]  # each in the order in which a row had it first
    (path,) = tmp_path.glob("*.safetensors")
    assert path.stat().st_size < 3 * 31 * 10 + 1000


def test_when_a_grade_changed_tells_what_no_grade_does(tmp_path: Path) -> None:
    """The attack: three grades, of which a is the parity; which ones a row had is the same whether the second or the
    third changed.
    """
    memory, rows = GradeMemory(tmp_path), ids(ROWS)
    grades = np.random.default_rng(1).integers(2, size=(2, ROWS))  # other draws than those of a
    for each in grades:
        memory.record("one", "job", rows, GradedRows(each, 2, 8.0))
    assert told_of_a(memory, rows, A ^ grades[0] ^ grades[1]) > 0.9


def told_of_a(memory: GradeMemory, rows: JoinKeys, grades: np.ndarray) -> float:
    """Share of a that grades would carry with those before them."""
    own = GradedRows(grades, 2, 8.0)
    former, _ = memory.other_releases("one", rows, own.grades)
    return joined(*codes_store(A[:, None].astype(float)), own, *former).together[0].share


def some_of(rows: JoinKeys, grades: np.ndarray, at: np.ndarray) -> tuple[JoinKeys, GradedRows]:
    return JoinKeys(rows.digests[at]), GradedRows(grades[at], 2, 8.0)


def test_predictions_of_one_changed_row_each_use_up_one_turn(tmp_path: Path) -> None:
    """The attack: four grades, of which a is the parity. Sixteen rows that are asked for one by one are to have the
    memory no longer know when the others changed.
    """
    memory, rows = GradeMemory(tmp_path), ids(ROWS)
    grades = np.random.default_rng(1).integers(2, size=(3, ROWS))
    memory.record("one", "job", rows, GradedRows(grades[0], 2, 8.0))
    for at in np.flatnonzero(grades[0] != grades[1])[:16]:
        memory.record("one", "job", *some_of(rows, grades[1], np.array([at])))
    for each in grades[1:]:
        memory.record("one", "job", rows, GradedRows(each, 2, 8.0))
    assert told_of_a(memory, rows, np.bitwise_xor.reduce(grades) ^ A) > 0.9
    assert len(memory.other_releases("other", rows)[0]) == 3


def test_two_spellings_of_an_id_with_grades_of_their_own_have_not_changed(tmp_path: Path) -> None:
    """Under the rule none, by which `7` and `07` are two rows: the memory joins both with the rows of other jobs."""
    memory, rows = GradeMemory(tmp_path), ids(3)
    rows.digests[1, 8:] = rows.digests[0, 8:]
    graded = GradedRows(np.array([1, 2, 3]), 16, 8.0)
    for _ in range(20):
        memory.record("one", "job", rows, graded)
    assert memory.has_same("one", rows.digests, graded)
    assert len(memory.other_releases("other", rows)[0]) == 1


def test_rows_that_had_the_same_grade_in_a_turn_change_in_the_next_one(tmp_path: Path) -> None:
    """The attack: rows are asked for apart, those that did not change first, so that a note has changed rows alone."""
    memory, rows = GradeMemory(tmp_path), ids(ROWS)
    grades = np.random.default_rng(1).integers(2, size=(3, ROWS))
    memory.record("one", "job", rows, GradedRows(grades[0], 2, 8.0))
    for before, each in pairwise(grades):
        for at in (np.flatnonzero(before == each), np.flatnonzero(before != each)):
            memory.record("one", "job", *some_of(rows, each, at))
    assert told_of_a(memory, rows, np.bitwise_xor.reduce(grades) ^ A) > 0.9


@pytest.mark.parametrize("moved", [0.05, 1.0])
def test_months_of_columns_that_drift_are_not_refused(tmp_path: Path, moved: float) -> None:
    """By the default limit: a grade and those of earlier months of the same rows, of which some or all changed."""
    memory, rows, weights = GradeMemory(tmp_path), ids(ROWS), np.array([1.0, 0.6, 0.3, 1.2])
    draw = np.random.default_rng(0)
    values = np.c_[draw.normal(size=(ROWS, 3)), draw.random(ROWS) < 0.3]
    borders = np.quantile(values @ weights, np.linspace(0, 1, 17)[1:-1])
    for _ in range(4):
        own = GradedRows(np.searchsorted(borders, values @ weights), 16, 8.0)
        former, _ = memory.other_releases("one", rows, own.grades)
        check_limits(joined(*codes_store(values), own, *former), {}, TELCO)
        memory.record("one", "job", rows, own)
        some = draw.random(ROWS) < moved
        values[some, :3] += draw.normal(size=(int(some.sum()), 3))
        values[some, 3] = draw.random(int(some.sum())) < 0.3
