"""The benchmark of the audit's price runs one job, and its tables are what a task needs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyarrow import parquet

from benchmarks import audit_price
from benchmarks.audit_price import CLASSES, EPOCHS, audit_prices, price, write_jobs
from benchmarks.start import Took
from cutlayer.cli.app import _run
from cutlayer.config.load import load_job


def test_a_job_is_run_with_its_audit_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runs in this process: a new one takes two seconds to import what it computes with."""

    def timed(folder: Path, arguments: tuple[str, ...], code: int) -> Took:
        monkeypatch.chdir(folder)
        before, began = time.process_time(), time.perf_counter()
        assert arguments[:2] == ("-m", "cutlayer")
        assert _run([*arguments[2:]]) == code
        return Took(time.perf_counter() - began, time.process_time() - before)

    monkeypatch.setattr(audit_price, "timed", timed)
    monkeypatch.setattr(audit_price, "EPOCHS", 3)
    found = price("binary", 2, 200, 1)
    assert (found.task, found.parties, found.rows) == ("binary", 2, 200)
    assert found.bare_seconds > 0
    assert found.more_seconds > 0  # a job without attacks takes less
    assert found.lowest == found.ratio == found.highest > 1


@pytest.mark.parametrize("task", CLASSES)
@pytest.mark.parametrize("parties", [2, 4])
def test_both_jobs_are_the_same_but_for_the_audit(task: str, parties: int, tmp_path: Path) -> None:
    write_jobs(tmp_path, task, parties, 200)
    audited, bare = (load_job(tmp_path / f"{name}.yaml") for name in ("audited", "bare"))
    assert len(audited.parties) == parties
    assert audited.train == bare.train
    assert audited.train.max_epochs == EPOCHS
    assert {party.audit.every for party in audited.parties.values()} == {"epoch"}
    assert {party.audit.every for party in bare.parties.values()} == {"never"}
    labels = parquet.read_table(tmp_path / "active.parquet")["label"].to_pylist()
    assert len(set(labels)) == (CLASSES[task] or 200)
    columns = [name for path in tmp_path.glob("*.parquet") for name in parquet.read_table(path).column_names]
    assert sorted(columns) == sorted({*columns})


def test_sizes_end_at_the_number_of_rows() -> None:
    assert audit_prices(100, 1).prices == []
