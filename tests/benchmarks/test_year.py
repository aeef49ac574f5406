"""The scripted year: a training and a month, killed at random moments, leave what undisturbed ones leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_disturbed_month_leaves_what_an_undisturbed_one_does() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.benchmarks.brief_years"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    by_files, by_tls = json.loads(ran.stdout)
    for result in (by_files, by_tls):
        assert result["differences"] == []
        assert result["disturbed"]["kills"] > 3
        assert result["disturbed"]["files"] == {"bank": 4, "telco": 4}
        assert result["runs_in_the_ledger"] == {"bank": 1, "telco": 1}
