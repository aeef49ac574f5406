"""The scripted year: a training and a month, killed at random moments, leave what undisturbed ones leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.brief_years import write_outcomes
from tests.parties.processes import forked


@pytest.mark.slow
def test_a_disturbed_month_leaves_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    assert forked(write_outcomes, tmp_path / "left.json").wait(600.0) == 0
    by_files, by_tls = json.loads((tmp_path / "left.json").read_text())
    for result in (by_files, by_tls):
        assert result["differences"] == []
        assert result["disturbed"]["kills"] > 3
        assert result["disturbed"]["files"] == {"bank": 4, "telco": 4}
        assert result["runs_in_the_ledger"] == {"bank": 1, "telco": 1}
