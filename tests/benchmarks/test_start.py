"""The benchmark of verbs runs, and refuses a verb that ends otherwise than it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import start
from benchmarks.start import VERBS, Took, start_times
from cutlayer.cli.app import _run
from tests.models.estimator_rows import fit_briefly

MISTYPED = "check of a job with a mistyped key"


def test_verbs_are_compared_with_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """That such a verb does not load PyTorch, `tests/cli/test_start.py` tests."""
    monkeypatch.setattr(start, "write_job", lambda folder: (folder / "job.yaml").write_text("parties: {}\n"))
    monkeypatch.setattr(start, "IMPORT", ("-c", "import json"))
    monkeypatch.setattr(start, "VERBS", {MISTYPED: VERBS[MISTYPED]})
    found = start_times(1)
    assert [verb.verb for verb in found.verbs] == [MISTYPED]
    for verb in found.verbs:
        assert 0 < verb.lowest <= verb.ratio <= verb.highest
        assert 0 < verb.cpu_lowest <= verb.cpu_ratio <= verb.cpu_highest
        assert verb.cpu_ratio > 1  # of the verb's time over that of a small import
        assert (found.import_seconds > 0, found.import_cpu_seconds > 0, verb.seconds > 0) == (True, True, True)


def test_the_job_of_the_benchmark_passes_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_this_process(folder: Path, arguments: tuple[str, ...], code: int) -> Took:
        monkeypatch.chdir(folder)
        assert arguments[:2] == ("-m", "cutlayer")
        assert _run([*arguments[2:]]) == code
        return Took(0.0, 0.0)

    fit_briefly(monkeypatch)
    monkeypatch.setattr(start, "timed", in_this_process)
    start.write_job(tmp_path)
    capsys.readouterr()
    assert _run([*VERBS["check of a small job"]]) == 0
    assert "clinic" in capsys.readouterr().out


def test_a_verb_that_fails_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "write_job", lambda folder: (folder / "job.yaml").write_text("parties: {}\n"))
    monkeypatch.setattr(start, "IMPORT", ("-c", "pass"))
    monkeypatch.setattr(start, "VERBS", {"check of a small job": VERBS["check of a small job"]})
    with pytest.raises(RuntimeError, match=r"check job\.yaml ended with 2"):
        start_times(1)
