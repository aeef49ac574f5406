"""The benchmark of tables runs on few rows, with the engines that are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import csv, parquet

from benchmarks import tables
from benchmarks.tables import DIALECTS, ENGINES, KINDS, STEPS, make_tables, measure, read_dialect

ROWS = 600


def test_both_files_hold_one_table_and_share_their_ids_with_the_other(tmp_path: Path) -> None:
    make_tables(tmp_path, ROWS)
    bank, shop = parquet.read_table(tmp_path / "bank.parquet"), parquet.read_table(tmp_path / "shop.parquet")
    assert csv.read_csv(tmp_path / "bank.csv").cast(bank.schema).equals(bank)
    ids, others = (set(table.column("id").to_pylist()) for table in (bank, shop))
    assert (len(ids), len(others), len(ids & others)) == (ROWS, ROWS, ROWS * 8 // 10)
    assert bank.column("id").to_pylist() != sorted(ids)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_takes_a_table_through_all_steps(tmp_path: Path, engine: str, kind: str) -> None:
    if tables.installed(engine) is None:
        pytest.skip(f"{engine} is not installed; it is no dependency")
    make_tables(tmp_path, ROWS)
    cost = measure(engine, tmp_path, kind, ROWS)
    assert (cost.engine, cost.rows, cost.common) == (engine, ROWS, ROWS * 8 // 10)
    assert [*cost.steps] == [*STEPS]
    assert cost.resident_mb > 10
    assert all(step.peak_mb > 10 for step in cost.steps.values())


def test_dialects_are_read_or_refused(tmp_path: Path) -> None:
    outcome = {case: read_dialect(case, tmp_path, ["cutlayer"])["cutlayer"] for case in DIALECTS}
    assert outcome["leading zeros"] == "2 rows: 'id' string ['007', '012'], 'a' int64 ['1', '2']"
    assert outcome["NA"] == "2 rows: 'id' int64 ['1', '2'], 'a' int64 ['None', '3']"
    assert "got 3 in line 3" in outcome["a row with a field too many"]
    assert "iconv -f latin1" in outcome["Latin-1"]


def test_engines_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ENGINES", ("nowhere",))
    monkeypatch.setattr(tables, "DIALECTS", {})
    result = tables.tables(100)
    assert (result.absent, result.costs) == (["nowhere"], [])
