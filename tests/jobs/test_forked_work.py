"""Work in forks beside a run: the same results, nothing left when it fails or is interrupted."""

from __future__ import annotations

import errno
import json
import os
import signal
import struct
import sys
import time
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import SimpleNamespace

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.jobs import forked_work, runs
from cutlayer.jobs.execute import execute
from cutlayer.jobs.forked_work import ForkedWork
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys
from tests.cli.jobs import Place
from tests.parties.runs import KEY, tables
from tests.parties.test_grades import raw

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_work, "work_threads", lambda: 2)


def test_work_is_done_elsewhere_and_what_it_returns_comes_back():
    with ForkedWork(forks=True) as started:
        result = started.start(os.getpid)
        assert started.start(os.getpid)() == os.getpid(), "no core is left for a second one"
        assert result() == result() != os.getpid()
        assert started.start(os.getpid)() != os.getpid(), "the first has ended"
    with ForkedWork(forks=False) as started:
        assert started.start(os.getpid)() == os.getpid()


@pytest.mark.parametrize(
    ("threads", "cores", "gpu", "forks"),
    [(1, 2, False, True), (2, 2, False, False), (1, 1, False, False), (1, 2, True, False)],
)
def test_a_process_of_several_threads_or_with_a_gpu_is_not_forked(
    monkeypatch: pytest.MonkeyPatch, threads: int, cores: int, gpu: bool, forks: bool
) -> None:
    """A fork has one of the threads: a lock that another one holds would never be free in it."""
    monkeypatch.setattr(forked_work, "work_threads", lambda: cores)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert forked_work.can_fork(threads) is forks


@pytest.mark.parametrize(
    ("rows", "columns", "forks"), [(50_000, 2, True), (49_999, 20, False), (4_000, 400, True), (2_000, 400, False)]
)
def test_runs_of_long_and_of_wide_tables_are_trained_beside(monkeypatch, rows, columns, forks):
    monkeypatch.setattr(runs, "can_fork", lambda threads: threads == 1)
    execution = SimpleNamespace(options=SimpleNamespace(forks=True), threads=1)
    tables = {
        "bank": SimpleNamespace(rows=9, candidate_columns=9),
        "telco": SimpleNamespace(rows=rows, candidate_columns=columns),
    }
    assert runs.Execution._may_fork(execution, tables) is forks


def test_tensors_come_back_after_the_process_that_made_them_has_ended():
    with ForkedWork(forks=True) as started:
        result = started.start(lambda: (os.getpid(), torch.arange(100)))
        (process,) = started._processes
        process.join(30)
        assert process.exitcode == 0
        place, tensor = result()
    assert place != os.getpid()
    assert torch.equal(tensor, torch.arange(100))


def test_work_that_fails_or_is_killed_is_done_again_here():
    here = os.getpid()

    def failing() -> int:
        raise ConfigError("a bad job" if os.getpid() == here else "unseen")

    def killed() -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return 3

    with ForkedWork(forks=True) as started:
        with pytest.raises(ConfigError, match="a bad job"):
            started.start(failing)()
        assert started.start(killed)() == 3


def test_work_is_done_here_where_its_process_was_ended_amid_a_message(monkeypatch):
    """As by a system without memory, which the copies of a large result need most of."""

    def cut(sender: Connection, content: bytes) -> None:
        os.write(sender.fileno(), struct.pack("!i", len(content)) + content[:1])
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(Connection, "send_bytes", cut)
    with ForkedWork(forks=True) as started:
        assert started.start(os.getpid)() == os.getpid()


def test_work_is_done_here_where_no_further_process_can_be_started(monkeypatch):
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    with ForkedWork(forks=True) as started:
        assert started.start(os.getpid)() == os.getpid()
        assert started.share([os.getpid])() == [os.getpid()]


def test_libraries_have_one_thread_in_a_fork_whatever_they_have_here():
    """Those of OpenMP that were at work before wait for ever in a fork, of which they are no part."""

    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info()}

    with threadpool_limits(2), ForkedWork(forks=True) as started:
        here, there = os.getpid(), started.start(lambda: (os.getpid(), threads()))()
        assert threads() == {2}
    assert there[0] != here
    assert there[1] == {1}


def test_works_are_shared_with_the_process_that_begins_them(tmp_path):
    """Two works that wait for each other end only if two processes do them."""
    here = os.getpid()

    def meeting(me: str, other: str) -> int:
        (tmp_path / me).touch()
        end = time.monotonic() + 30
        while not (tmp_path / other).exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert (tmp_path / other).exists()
        return os.getpid()

    with ForkedWork(forks=True) as started:
        done = started.share([partial(meeting, "a", "b"), partial(meeting, "b", "a"), os.getpid])
        places = done()
        assert done() == places
    assert here in places[:2]
    assert len({*places[:2]}) == 2


@pytest.mark.parametrize("forks", [True, False])
def test_shared_works_have_their_results_in_order_and_are_each_done_once(tmp_path, forks):
    def work(at: int) -> int:
        (tmp_path / f"{at}").open("x").close()
        return at

    with ForkedWork(forks=forks) as started:
        assert started.share([partial(work, at) for at in range(300)])() == [*range(300)]


def test_works_of_a_process_that_was_killed_are_done_here(tmp_path):
    here = os.getpid()

    def killed(at: int) -> int:
        (tmp_path / "begun").touch()
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return at

    with ForkedWork(forks=True) as started:
        done = started.share([partial(killed, at) for at in range(3)])
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        assert done() == [0, 1, 2]


def test_a_failure_of_this_process_ends_the_work(tmp_path):
    def slow() -> None:
        (tmp_path / "begun").touch()
        time.sleep(60)

    def interrupted() -> None:
        with ForkedWork(forks=True) as started:
            started.start(slow)
            while not (tmp_path / "begun").exists():
                time.sleep(0.01)
            processes.extend(started._processes)
            raise KeyboardInterrupt

    processes: list[BaseProcess] = []
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not processes[0].is_alive()
    assert time.monotonic() - began < 30


def test_a_run_with_forks_equals_one_without(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path, capsys)
    place.change(
        {
            "train.epochs": 1,
            "train.threads": 1,
            "compare": ["undefended"],
            "parties.bank.privacy": {"label_dp": {"eps": 2.0}},
            "parties.telco.audit": {"attacks": ["inversion"]},
        }
    )
    key = tmp_path / "noise.key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    forked: list[object] = []
    start = ForkedWork.start

    def counted(self, work):
        result = start(self, work)
        forked.extend(self._processes)
        return result

    monkeypatch.setattr(ForkedWork, "start", counted)
    results = []
    for name, least in ("plain", runs.MANY_ROWS), ("forks", 0):
        monkeypatch.setattr(runs, "MANY_ROWS", least)
        assert bool(forked) is False
        assert place.call("run", place.file, "--json", "--key", key, "--out", name).code == 0
        folder = tmp_path / name
        results.append([(folder / file).read_text() for file in ("audit.json", "ledger.json")])
        summary = json.loads((folder / "summary.json").read_text())
        results[-1].append(json.dumps([summary["utility"], summary["departures"], summary["protections"]]))
    assert forked
    assert results[0] == results[1]


def test_runs_are_compared_while_a_partner_draws_grades(tmp_path, monkeypatch):
    """The labels are drawn by then, and no grade is; in a process of its own the results are the same."""
    made = raw()
    made["compare"], made["train"]["threads"] = ["undefended"], 1
    made["parties"]["bank"]["audit"] = {"attacks": []}
    job, given = validated(Job, made, ""), tables(rows=300)
    there: list[list[str]] = []
    start = ForkedWork.start

    def noted(self, work):
        there.append([path.name for path in (tmp_path / "forks" / "checkpoint").glob("*/*.safetensors")])
        return start(self, work)

    monkeypatch.setattr(ForkedWork, "start", noted)
    results = []
    for name, least in ("plain", runs.MANY_ROWS), ("forks", 0):
        monkeypatch.setattr(runs, "MANY_ROWS", least)
        there.clear()
        options = Options(Keys(tmp_path / "keys", KEY), tables=given, forks=True)
        folder = execute(job, tmp_path / name, options, Progress())
        results.append([folder.audit, folder.summary.utility, (folder.path / "ledger.json").read_text()])
    assert "drawn.safetensors" in there[0]
    assert "released.safetensors" not in there[0]
    assert results[0] == results[1]
