"""Fixtures of the command line's tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cutlayer.cli.app import _run
from tests.cli.jobs import JOB as SMALL
from tests.cli.jobs import Place, as_yaml, audit_briefly, changed, share_engine, write_tables
from tests.made_once import made_once


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    """A small job in a folder of its own, from which the command line is called; messages are not wrapped."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("CUTLAYER_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, capsys)


@pytest.fixture
def fewer_are_ample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn labels that are worth 100 rows are enough for grades, in place of 1,000: tables of a tenth of the rows."""
    for module in ("grades_choice", "cautions"):
        monkeypatch.setattr(f"cutlayer.jobs.{module}.AMPLE_ROWS", 100)


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one finished run with a protection and its undefended twin; not to be changed."""
    return made_once(tmp_path_factory, "finished", _finish) / "runs" / "job"


def _finish(folder: Path) -> None:
    write_tables(folder)
    whole = {"parties.bank.audit": {"depth": "full"}}  # gates are tried on it
    job = changed(SMALL, {"parties.bank.privacy": {"max_norm": None}, "compare": ["undefended", "alone"], **whole})
    (folder / "job.yaml").write_text(as_yaml(job))
    with pytest.MonkeyPatch.context() as patched:
        audit_briefly(patched)
        share_engine(patched)
        assert _run(["run", str(folder / "job.yaml"), "--json"]) == 0


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to be read, audited or damaged."""
    return Path(shutil.copytree(finished_once, tmp_path / "finished"))
