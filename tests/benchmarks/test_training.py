"""Every training benchmark runs on a small table and prints one JSON line with the promised fields."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import local_training, pairs
from benchmarks.__main__ import main
from benchmarks.local_training import make_table
from benchmarks.two_processes import two_processes
from tests.benchmarks.conftest import Threads

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


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedding of fewer codes, in this process."""
    monkeypatch.setattr(local_training, "CODES", 200)


@pytest.mark.parametrize("name", ["local_training_8192", "audit_overhead", "audit_overhead_256", "embedding_table"])
def test_a_benchmark_prints_one_json_line(
    name: str, benchmark: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    if name != "embedding_table":  # which is compared in two processes
        request.getfixturevalue("in_threads")
    rows = "8400" if name in ("local_training_8192", "audit_overhead") else "1500"  # more than a batch
    (line,) = benchmark(name, "--rows", rows, "--repeats", "1", "--json").splitlines()
    found = json.loads(line)
    assert found.keys() >= FIELDS
    assert found["name"] == name
    assert found["lowest"] <= found["ratio"] <= found["highest"]
    assert found["rate_a"] > 0
    assert found["peak_mb_a"] > 0


def test_two_processes_are_compared_with_a_centralised_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "processes", SimpleNamespace(context=Threads))  # of the loops, and not of the parties
    monkeypatch.setattr("benchmarks.two_processes.CORES", 1)  # the number that this process has
    table = tmp_path / "table.parquet"
    make_table(table, 1000)
    found = two_processes(str(table), 256, 1000, 1)
    assert found.lowest <= found.ratio <= found.highest
    assert found.ratio > 0
    assert (found.name, found.repeats, found.threads) == ("two_process_256", 1, 1)


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
