"""The tutorial's files and commands, in order, as a newcomer runs them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.jobs import audit_briefly
from tests.docs.reading import ROOT, block

PAGE = ROOT / "docs" / "tutorial.md"


def commands(name: str) -> list[list[str]]:
    """The commands of a console block, without the program's name."""
    return [shlex.split(line)[2:] for line in block(PAGE, name).splitlines() if line.startswith("$ cutlayer ")]


def run_block(name: str, cutlayer: Callable) -> None:
    """Run all lines of a console block as they stand."""
    for line in block(PAGE, name).splitlines():
        if line.startswith("$ cutlayer "):
            assert cutlayer(*shlex.split(line)[2:])[0] == 0
        else:
            subprocess.run(line.removeprefix("$ "), shell=True, check=True)


def test_the_tutorial_works(tmp_path: Path, cutlayer: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    audit_briefly(monkeypatch)
    # The attack on features inverts matrices of as many rows as it knows: 950 of the tutorial's.
    monkeypatch.setattr("cutlayer.training.malicious_runs.MAX_AUXILIARY_ROWS", 150)
    exec(block(PAGE, "tables.py"), {})
    for words in commands("init"):
        code, found = cutlayer(*words)
        assert code == 0
    assert found["rows"] == 1900
    assert [total["epsilon"] for total in found["totals"]] == [0.0]
    text = block(PAGE, "job.yaml")
    assert text.count("top: {kind: auto}") == 1
    text = text.replace("top: {kind: auto}", "top: {kind: auto, folds: 1, candidates: [linear]}")
    (tmp_path / "job.yaml").write_text(text.replace("release: once}", "release: once, epochs: 2}"))
    (run,) = commands("run")
    code, report = cutlayer(*run)
    assert code == int(any(not gate["passed"] for gate in report["gates"]))
    rows = [row["name"] for row in report["utility"]["rows"]]
    assert rows[:4] == ["this run", "undefended", "private columns", "bank alone"]
    assert json.loads((tmp_path / "runs" / "job" / "report.json").read_text())["alternatives"]
    (again,) = commands("report")
    assert cutlayer(*again)[0] in (0, 1)
    run_block("apart", cutlayer)


def test_every_option_that_the_page_names_is_in_its_blocks() -> None:
    assert re.findall(r"\bcheck [^`\n]*--as (\w+)", block(PAGE, "apart")) == ["telco", "bank"]
