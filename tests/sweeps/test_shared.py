"""Trials shared through a storage: each claimed by one, none lost, none run twice."""

from __future__ import annotations

import shutil
import threading
from dataclasses import asdict, replace

import optuna
import pytest

from cutlayer.errors import ConfigError
from cutlayer_sweep import shared
from cutlayer_sweep.metrics import TrialMetrics
from cutlayer_sweep.shared import HEARTBEAT_KEY, REASON_KEY, SLOT_KEY, WORKER_KEY, SharedTrials
from cutlayer_sweep.space import EVEN_TRIALS, Choices, Range, space_of
from cutlayer_sweep.storage import open_study, without_password

GRID = space_of([Choices("a", (1, 2, 3)), Choices("b", ("x", "y"))], 0)
LINE = space_of([Range("a", 0.0, 1.0)], 0)
MEASURED = TrialMetrics(0.9, 0.8, 0.7, 0.9, 0.6, 0.5, 0.7, "telco/gradient/norm", 2, 1.5)


@pytest.fixture(scope="module")
def new_database(tmp_path_factory):
    """A file of SQLite that was given its tables, which take longer to make than a test."""
    path = tmp_path_factory.mktemp("database") / "sweep.db"
    open_study(f"sqlite:///{path}", "of another job", {})
    return path


@pytest.fixture
def storage(tmp_path):
    """A file; of a database is what it does differently: see `any_storage`, and the test with PostgreSQL."""
    return str(tmp_path / "sweep.log")


@pytest.fixture(params=["sweep.log", "sqlite:///{}/sweep.db"])
def any_storage(request, tmp_path, new_database):
    if "://" not in request.param:
        return str(tmp_path / request.param)
    shutil.copy(new_database, tmp_path / "sweep.db")
    return request.param.format(tmp_path)


def opened(storage, space=GRID, total=6, identity=None):
    """A process of its own would open the storage just so."""
    return SharedTrials(open_study(storage, "s", identity or {"job": "1"}), space, total)


def at(trial, value):
    return replace(MEASURED, utility=value)


def test_a_storage_of_two_objectives_is_refused(tmp_path):
    storage = str(tmp_path / "sweep.log")
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    optuna.create_study(storage=journal, study_name="s", directions=["maximize", "minimize"])
    with pytest.raises(ConfigError, match="another number of objectives; give another --out or --storage"):
        opened(storage)


def test_two_views_share_a_grid(any_storage):
    one, other = opened(any_storage), opened(any_storage)
    points = []
    for index in range(6):
        view = (one, other)[index % 2]
        trial = view.claim()
        points.append(tuple(view.point(trial).values()))
        view.finish(trial, at(trial, index))
    assert one.claim() is None
    assert other.claim() is None
    assert sorted(points) == [(a, b) for a in (1, 2, 3) for b in "xy"]
    assert [trial.values[0] for trial in other.trials()] == [0, 1, 2, 3, 4, 5]
    assert {trial.user_attrs[WORKER_KEY] for trial in one.trials()} == {shared.worker_name()}


def test_threads_that_claim_at_once_get_different_slots(tmp_path):
    storage = str(tmp_path / "sweep.log")
    views = [opened(storage, LINE, 12) for _ in range(4)]
    gate, taken = threading.Barrier(4), []

    def work(view):
        gate.wait()
        while (trial := view.claim()) is not None:
            view.point(trial)
            taken.append(trial.user_attrs[SLOT_KEY])
            view.finish(trial, MEASURED)

    threads = [threading.Thread(target=work, args=(view,)) for view in views]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(12))
    complete = [t for t in views[0].study.get_trials() if t.state == optuna.trial.TrialState.COMPLETE]
    assert len(complete) == 12


def test_slots_added_twice_are_run_once(any_storage):
    one, other = opened(any_storage), opened(any_storage)
    seen = other.trials
    other.trials = list  # it looks before the first one has written
    one._fill()
    other._fill()
    other.trials = seen
    assert len(one.study.get_trials()) == 12
    slots = []
    while (trial := other.claim()) is not None:
        slots.append(trial.user_attrs[SLOT_KEY])
        other.finish(trial, MEASURED)
    assert sorted(slots) == list(range(6))
    assert len(one.trials()) == 6


def test_the_last_trial_taken_by_another_leaves_none_too_many(storage):
    one, other = opened(storage, total=1), opened(storage, total=1)
    ask = one.study.ask

    def beaten():
        one.study.ask = ask
        assert other.claim() is not None
        return ask()

    one.study.ask = beaten
    assert one.claim() is None
    assert len(one.trials()) == 1
    assert len(one.running()) == 1


def test_a_given_up_trial_is_run_again_and_a_failed_one_is_not(storage):
    view = opened(storage, total=2)
    first, second = view.claim(), view.claim()
    point = view.point(first)
    view.release(first.number)
    view.fail(second, "no such luck")
    again = view.claim()
    assert again.user_attrs[SLOT_KEY] == first.user_attrs[SLOT_KEY]
    assert view.point(again) == point
    view.finish(again, MEASURED)
    assert view.claim() is None
    assert [trial.user_attrs.get(REASON_KEY) for trial in view.trials()] == [None, "no such luck"]


def test_more_trials_go_on_where_fewer_ended(storage):
    for total in (2, 5):
        view = opened(storage, LINE, total)
        while (trial := view.claim()) is not None:
            view.point(trial)
            view.finish(trial, MEASURED)
        assert [trial.user_attrs[SLOT_KEY] for trial in view.trials()] == list(range(total))


def test_fewer_trials_take_none_of_the_queue_for_more(storage):
    big, small = opened(storage, total=3), opened(storage, total=1)
    big.release(big.claim().number)
    big._fill()  # slot 0 now stands behind the others
    assert small.claim().user_attrs[SLOT_KEY] == 0
    assert small.claim() is None
    assert sorted(big.claim().user_attrs[SLOT_KEY] for _ in range(2)) == [1, 2]


def test_a_silent_process_is_given_up_and_a_living_one_is_not(storage, monkeypatch):
    one, other = opened(storage), opened(storage)
    silent, living = one.claim(), one.claim()
    clock = [0.0]
    monkeypatch.setattr(shared.time, "monotonic", lambda: clock[0])
    for _ in range(7):
        other.release_stale_trials()
        left = [living.number] if clock[0] >= 60 else [silent.number, living.number]
        assert sorted(trial.number for trial in other.running()) == left
        clock[0] += 10
        living.set_user_attr(HEARTBEAT_KEY, clock[0])
    assert [trial.number for trial in other.running()] == [living.number]
    one.finish(silent, MEASURED)  # it was only asleep: too late, and no harm
    slots = []
    while (trial := other.claim()) is not None:
        slots.append(trial.user_attrs[SLOT_KEY])
        other.finish(trial, MEASURED)
    assert sorted(slots) == sorted({*range(6)} - {living.user_attrs[SLOT_KEY]})


def test_a_running_trial_gives_signs_of_life(storage, monkeypatch):
    monkeypatch.setattr(shared, "HEARTBEAT_SECONDS", 0.001)
    view = opened(storage)
    trial = view.claim()
    beaten = threading.Event()
    result = trial.set_user_attr

    def heard(key, value):
        result(key, value)
        if value >= 2:
            beaten.set()

    trial.set_user_attr = heard
    with view.heartbeat(trial):
        assert beaten.wait(30)
    assert view.running()[0].user_attrs[HEARTBEAT_KEY] >= 2
    assert not [t for t in threading.enumerate() if t.name == "cutlayer-sweep-beat"]


def test_the_sampler_repeats_itself_by_slot_and_learns(tmp_path):
    """The sampler's part of a search is found again with the same results, and goes where they were good."""
    found = []
    for name in "ab":
        view = opened(str(tmp_path / name), LINE, EVEN_TRIALS + 20)
        values = []
        while (trial := view.claim()) is not None:
            (value,) = view.point(trial).values()
            values.append(value)
            good = -((value - 0.8) ** 2)
            view.finish(trial, replace(MEASURED, utility=good, leak=0.5 - good))
        found.append(values)
    assert found[0] == found[1]
    assert len(set(found[0])) == EVEN_TRIALS + 20
    near = [abs(value - 0.8) < 0.15 for value in found[0]]
    assert sum(near[EVEN_TRIALS + 10 :]) / 10 > 0.6 > sum(near[:EVEN_TRIALS]) / EVEN_TRIALS


def test_results_come_back_as_they_were(any_storage):
    view = opened(any_storage)
    trial = view.claim()
    for result in (MEASURED, replace(MEASURED, utility=0.1)):
        view.finish(trial, result)  # the second comes too late, and does no harm
    (kept,) = [t for t in opened(any_storage).trials() if t.state == optuna.trial.TrialState.COMPLETE]
    assert TrialMetrics(**kept.user_attrs["result"]) == MEASURED
    assert asdict(MEASURED) == kept.user_attrs["result"]
    assert kept.values == [0.9, 0.6, 1.0], "columns that nothing attacked may be read whole"
    assert [direction.name for direction in view.study.directions] == ["MAXIMIZE", "MINIMIZE", "MINIMIZE"]


def test_the_sweep_of_another_job_is_refused(storage):
    opened(storage, identity={"job": "1", "--leak": "all"})
    opened(storage, identity={"job": "1", "--leak": "all"})
    with pytest.raises(ConfigError, match=r"one with another --leak and another job; give another --out or --storage"):
        opened(storage, identity={"job": "2", "--leak": "gradient"})


@pytest.mark.parametrize("content", ["id,balance\n1,2\n", "[1]\n", "7\n", '{"a": 1}\n', "\x00\x01"])
def test_a_file_that_is_something_else_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "bank.csv"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"expected a sweep's storage at .*bank.csv, got another file"):
        open_study(str(path), "s", {})
    assert path.read_text() == content


@pytest.mark.parametrize("address", ["nothing://me:secret@host/db", "sqlite:////no/such/folder/x.db", "://"])
def test_a_database_that_cannot_be_opened(address, monkeypatch):
    monkeypatch.setattr("cutlayer_sweep.storage.time.sleep", lambda _: None)
    with pytest.raises(ConfigError, match=r"cannot be opened|a driver for") as result:
        open_study(address, "s", {})
    assert "secret" not in str(result.value)


def test_a_folder_is_no_storage(tmp_path):
    with pytest.raises(ConfigError, match="expected a file or the address of a database"):
        open_study(str(tmp_path), "s", {})


def test_passwords_are_not_without_password():
    assert (
        without_password("postgresql+psycopg://me:p%40ss@db.example:5432/x") == "postgresql+psycopg://db.example:5432/x"
    )
    assert without_password("a@b.log") == "a@b.log"


@pytest.mark.slow
def test_processes_share_a_sweep_on_postgresql(postgres):
    """Each view has connections of its own, as a process on another machine has."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(postgres, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("create database sweeps"))
    storage = postgres.replace("/postgres?", "/sweeps?")
    gate, taken, failures = threading.Barrier(2), [], []

    def work():
        try:
            gate.wait()
            view = opened(storage, LINE, 3)  # all create the tables, the study and the slots at once
            while (trial := view.claim()) is not None:
                point = view.point(trial)
                taken.append((trial.user_attrs[SLOT_KEY], point["a"]))
                with view.heartbeat(trial):
                    view.finish(trial, MEASURED)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(slot for slot, _ in taken) == list(range(3))
    more = opened(storage, LINE, 5)
    silent = more.claim()
    more.release(silent.number)
    more.finish(silent, MEASURED)  # too late, and no harm
    rest = [more.claim(), more.claim()]
    assert sorted(trial.user_attrs[SLOT_KEY] for trial in rest) == [3, 4], "an interrupted trial is run again"
    more.fail(rest[0], "no such luck")
    trials = opened(storage, LINE, 5).trials()
    assert sum(trial.state == optuna.trial.TrialState.COMPLETE for trial in trials) == 3
    assert TrialMetrics(**trials[0].user_attrs["result"]) == MEASURED
    assert [trial.user_attrs[REASON_KEY] for trial in trials if REASON_KEY in trial.user_attrs] == ["no such luck"]
    with pytest.raises(ConfigError, match="one with another job"):
        opened(storage, LINE, 5, identity={"job": "2"})
