"""The benchmark of predictions runs, and its tables are of the same ids in two orders."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from benchmarks import predict
from benchmarks.predict import _tables, predict_speeds


@pytest.mark.slow
@pytest.mark.usefixtures("in_threads")
def test_it_measures_speed_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "TRAINED_ROWS", 1_000)
    monkeypatch.setattr(predict, "EVALUATION_ROWS", 500)
    found = predict_speeds(2_000, 1)
    assert found.rows == 2_000
    assert min(found.rows_per_second, found.forward_rows_per_second, found.quarter_peak_mb) > 0
    assert found.peak_mb >= found.idle_mb > 0


def test_both_tables_have_every_id_once_in_another_order(tmp_path: Path) -> None:
    bank, telco = (parquet.read_table(path)["id"].to_pylist() for path in _tables(tmp_path / "t", 5000).values())
    assert bank == [*range(5000)]
    assert sorted(telco) == bank != telco
