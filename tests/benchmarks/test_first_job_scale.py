"""The benchmark of `init`'s job calls the command line from tables to figures."""

from __future__ import annotations

from benchmarks.first_job_scale import measure


def test_a_line_has_the_forecast_and_the_run() -> None:
    line = measure(400, boosting=False)
    assert line["rows"] == 400
    assert line["boosting_by_share_of_rows"] == {}
    assert 0.5 < line["auc"] <= 1
    assert min(line[name] for name in ("forecast_mb", "forecast_seconds", "wall", "processor", "memory_mb")) > 0
