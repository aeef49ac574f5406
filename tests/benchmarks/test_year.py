"""The scripted year: a training and a month, killed at random moments, leave what undisturbed ones leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("between", [[], ["--tls"]])
def test_a_disturbed_month_leaves_what_an_undisturbed_one_does(between: list[str]) -> None:
    """In a process of its own: it forks, which a process with threads of other tests must not."""
    options = ("--rows", "200", "--months", "1", "--kills", "1", "--seed", "1")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.year", *options, *between]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["differences"] == []
    assert result["disturbed"]["kills"] > 3
    assert result["disturbed"]["files"] == {"bank": 4, "telco": 4}
    assert result["runs_in_the_ledger"] == {"bank": 1, "telco": 1}
