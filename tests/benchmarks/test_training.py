"""Every training benchmark runs on a small table and prints one JSON line with the promised fields."""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from benchmarks import ddp, local_training
from benchmarks.__main__ import main
from benchmarks.local_training import make_table
from benchmarks.two_processes import two_processes
from tests.parties.processes import Forked
from tools.ports import free_port

FIELDS = {
    "name", "a", "b", "ratio", "lowest", "highest", "repeats", "threads", "rate_a", "rate_b", "peak_mb_a", "peak_mb_b"
}  # fmt: skip


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`python -m benchmarks` in this process: what it prints."""

    def printed(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        main()
        return capsys.readouterr().out

    return printed


@pytest.mark.parametrize(
    "name", ["local_training_8192", "local_training_256", "audit_overhead", "audit_overhead_256", "embedding_table"]
)
def test_a_benchmark_prints_one_json_line(name: str, benchmark: Callable[..., str]) -> None:
    rows = "8400" if name in ("local_training_8192", "audit_overhead", "embedding_table") else "2000"
    (line,) = benchmark(name, "--rows", rows, "--repeats", "1", "--json").splitlines()
    found = json.loads(line)
    assert found.keys() >= FIELDS
    assert found["name"] == name
    assert found["lowest"] <= found["ratio"] <= found["highest"]
    assert found["rate_a"] > 0
    assert found["peak_mb_a"] > 0


def test_two_processes_are_compared_with_a_centralised_loop(tmp_path: Path) -> None:
    table = tmp_path / "table.parquet"
    make_table(table, 1500)
    found = two_processes(str(table), 256, 1500, 1)
    assert found.lowest <= found.ratio <= found.highest
    assert found.ratio > 0
    assert (found.name, found.repeats, found.threads) == ("two_process_256", 1, 1)


SLOWEST = 300.0
"""Seconds after which a process states where its threads are, and ends: on a busy machine imports take two minutes."""


@pytest.fixture
def one_party_by_torchrun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other party's workers are forked, with what `torchrun` sets in their environment.

    It starts an interpreter for each worker, which imports the package, and one for itself, in place of a fork.
    """
    start, arguments_of = ddp._start, ddp._arguments

    def started(arguments: list[str], workers: int) -> tuple[Callable[[], int | None], Callable[[], None]]:
        if workers == 1 or "active" in arguments:
            return start(arguments, workers)
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(workers)}
        errors = [tmp_path / f"errors-{rank}.txt" for rank in range(workers)]
        forks = [
            Forked(_ranked, path, arguments, {**meeting, "RANK": str(rank)}, errors=path)
            for rank, path in enumerate(errors)
        ]

        def wait() -> int:
            return max([abs(fork.wait(2 * SLOWEST)) for fork in forks])  # of all, so that each prints what it said

        def kill() -> None:
            for fork in forks:
                fork.kill()

        return wait, kill

    monkeypatch.setattr(ddp, "_start", started)
    # What a peer is waited for is stated sooner than where the threads are.
    monkeypatch.setattr(ddp, "_arguments", lambda *given: [*arguments_of(*given), "--timeout", str(0.6 * SLOWEST)])
    monkeypatch.setattr(ddp.subprocess, "Popen", partial(Launcher, tmp_path / "errors-torchrun.txt"))


class Launcher:
    """`python -m torch.distributed.run` in a fork of a process that has imported PyTorch."""

    def __init__(self, errors: Path, command: list[str], **_: int) -> None:
        assert command[:2] == [sys.executable, "-m"]
        self._fork = Forked(_run_module, errors, command[2:], errors=errors)

    def wait(self, _seconds: float) -> int:
        return self._fork.wait(2 * SLOWEST)

    def kill(self) -> None:
        self._fork.kill()


def _bounded(errors: Path) -> None:
    """Write what this process and its own say to a file, and where its threads are if it does not end."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    faulthandler.dump_traceback_later(SLOWEST, exit=True)


def _run_module(errors: Path, arguments: list[str]) -> None:
    _bounded(errors)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__")


def _ranked(errors: Path, arguments: list[str], environment: Mapping[str, str]) -> None:
    _bounded(errors)
    os.environ.update(environment)
    ddp._run_alone(arguments)


@pytest.mark.slow
@pytest.mark.usefixtures("one_party_by_torchrun")
def test_workers_started_by_torchrun_train_what_one_trains(tmp_path: Path) -> None:
    table = tmp_path / "table.parquet"
    make_table(table, 700)
    found = ddp.ddp(str(table), 256, 1)
    assert found.lowest <= found.ratio <= found.highest
    assert 0 <= found.loss_difference < 1e-4
    assert (found.name, found.workers, found.repeats) == ("ddp", 2, 1)


@pytest.mark.parametrize("side", [local_training.whole_side, local_training.quickly_audited_side])
def test_a_whole_job_is_timed(
    side: Callable[[str, int], Callable[[], float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_training, "EPOCHS", 1)
    local_training.make_table(tmp_path / "table.parquet", 2000)
    assert side(str(tmp_path / "table.parquet"), 256)() > 0


def test_without_a_name_the_benchmarks_are_listed(benchmark: Callable[..., str]) -> None:
    listed = benchmark()
    assert "local_training_8192" in listed
    assert "audit_overhead" in listed
