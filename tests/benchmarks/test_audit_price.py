"""The benchmark of the audit's price runs one job, and its tables are what a task needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from benchmarks import audit_price
from benchmarks.audit_price import CLASSES, Price, audit_prices, price, write_jobs
from benchmarks.start import Took
from cutlayer.cli.app import _run
from cutlayer.config.load import load_job
from tests.cli.jobs import audit_briefly
from tests.models.estimator_rows import fit_briefly


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process takes two seconds to import what it computes with; the times are made up."""

    def timed(folder: Path, arguments: tuple[str, ...], code: int) -> Took:
        monkeypatch.chdir(folder)
        assert arguments[:2] == ("-m", "cutlayer")
        assert _run([*arguments[2:]]) == code
        return Took(4.0, 2.0) if "bare.yaml" in arguments else Took(5.0, 3.0)

    monkeypatch.setattr(audit_price, "timed", timed)
    audit_briefly(monkeypatch)
    fit_briefly(monkeypatch)


def test_a_job_is_run_with_its_audit_and_without() -> None:
    assert price("regression", 2, 60, 1) == Price("regression", 2, 60, 2.0, 1.0, 1.5, 1.5, 1.5, 1.25, within_goal=True)


@pytest.mark.parametrize(("task", "parties"), [*zip(CLASSES, (2, 4, 4, 2), strict=True)])
def test_both_jobs_are_the_same_but_for_the_audit(task: str, parties: int, tmp_path: Path) -> None:
    write_jobs(tmp_path, task, parties, 200)
    audited, bare = (load_job(tmp_path / f"{name}.yaml") for name in ("job", "bare"))
    assert len(audited.parties) == parties
    assert (audited.train, audited.compare) == (bare.train, bare.compare)
    assert {party.audit.every for party in audited.parties.values()} == {"epoch"}
    assert {party.audit.every for party in bare.parties.values()} == {"never"}
    labels = parquet.read_table(tmp_path / "active.parquet")["label"].to_pylist()
    assert len(set(labels)) == (CLASSES[task] or 200)
    tables = [parquet.read_table(path).column_names for path in tmp_path.glob("*.parquet")]
    columns = [name for names in tables for name in names if name != "id"]
    assert sorted(columns) == sorted({*columns})


def test_sizes_end_at_the_number_of_rows() -> None:
    assert audit_prices(100, 1).prices == []
