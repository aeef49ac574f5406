"""The scripted year: a training and a month, killed at random moments, leave what an undisturbed start leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import year


def test_a_disturbed_month_leaves_what_an_undisturbed_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (made := tmp_path / "made").mkdir()
    year.organise(made, 200, 1)
    years = []
    for name, kills in (("undisturbed", 0), ("disturbed", 1)):
        base = Path(shutil.copytree(made, tmp_path / name))
        years.append(year.run_year(base, months=1, kills=kills, seed=1))
    assert [*year.compare(*years)] == []
    assert (years[1].kills > 3, years[0].kills) == (True, 0)
    assert years[1].files == {"bank": 4, "telco": 4}
    assert {name: len(lines) for name, lines in years[1].ledgers.items()} == {"bank": 1, "telco": 1}
    (made / "bank" / "01.csv").write_text("id,age\n1,2\n")
    with pytest.raises(year.Refused, match="no column 'income'"):
        year.run_year(made, months=1)
