"""The benchmark of `init`'s job calls the command line from tables to figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import first_job_scale
from benchmarks.first_job_scale import measure, timed
from cutlayer.cli.app import _run
from tests.cli.jobs import audit_briefly
from tests.models.estimator_rows import fit_briefly


def test_a_line_has_the_forecast_and_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: each new one takes seconds to import what it computes with; times and memory are made up."""

    def called(folder: Path, *arguments: str) -> dict[str, Any]:
        monkeypatch.chdir(folder)
        assert arguments[:2] == ("-m", "cutlayer")
        capsys.readouterr()
        assert _run([*arguments[2:]]) == 0
        return {"wall": 2.0, "processor": 1.0, "memory_mb": 3.0, "printed": json.loads(capsys.readouterr().out)}

    monkeypatch.setattr(first_job_scale, "timed", called)
    audit_briefly(monkeypatch)
    fit_briefly(monkeypatch)
    line = measure(300, protect="labels", boosting=False)
    assert line["rows"] == 300
    assert line["boosting_by_share_of_rows"] == {}
    assert 0.5 < line["auc"] <= 1
    assert min(line["forecast_mb"], line["forecast_seconds"]) > 0
    assert (line["wall"], line["processor"], line["memory_mb"]) == (2.0, 1.0, 3.0)


def test_a_command_is_timed_in_a_process_of_its_own(tmp_path: Path) -> None:
    found = timed(tmp_path, "-c", "import json, os; print(json.dumps(os.getcwd()))")
    assert found.pop("printed") == str(tmp_path.resolve())
    assert min(found.values()) > 0
    assert [*found] == ["wall", "processor", "memory_mb"]
    with pytest.raises(RuntimeError, match="ended with 3"):
        timed(tmp_path, "-c", "raise SystemExit(3)")
