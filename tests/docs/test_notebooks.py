"""The notebooks of `examples/` run: their code cells in order, in one namespace, in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutlayer.attacks import REGISTRY
from tests.docs.reading import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    return list(whole["cells"])


@pytest.fixture(autouse=True)
def same_registry() -> Iterator[None]:
    """A notebook may register attacks."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a notebook; returns its names and what it printed."""

    def run(name: str) -> tuple[dict[str, Any], str]:
        monkeypatch.chdir(tmp_path)
        names: dict[str, Any] = {"__name__": name}
        for cell in cells(ROOT / "examples" / f"{name}.ipynb"):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{name}.ipynb", "exec"), names)
        return names, capsys.readouterr().out

    return run


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_no_output(path: Path) -> None:
    ids = [cell["id"] for cell in cells(path)]
    assert len({*ids}) == len(ids)
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_readme_names_every_notebook() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {path.stem for path in NOTEBOOKS} == {"label-owner", "researcher"}
    assert all(f"(examples/{path.name})" in text for path in NOTEBOOKS)


def test_the_label_owner_trains_reads_and_predicts(run: Any) -> None:
    names, printed = run("label-owner")
    assert names["utility"]["this run"] > names["utility"]["bank alone"] + 0.05
    assert {*names["leaks"]["attack"]} == {"sent_labels"}
    # What a training label costs, and a row of the telco's columns.
    assert [total.epsilon for total in names["report"].ledger.totals] == [2.0, 8.0]
    assert "both: labels, which are drawn" in printed
    assert 0 < len(names["called"]) < 0.2 * len(names["rows"])
    assert "customers above" in printed


def test_the_researcher_compares_an_attack_on_equal_terms(run: Any) -> None:
    names, printed = run("researcher")
    leaks, cost = names["leaks"], names["cost"]
    assert {attack for _, attack in leaks.index} == {*names["attacks"]}
    assert leaks["undefended"]["gradient", "largest_entry"] > 0.7
    assert leaks["max_norm"]["gradient", "norm"] < 0.55 < leaks["undefended"]["gradient", "norm"]
    assert cost["label_dp, eps 1"]["epsilon"] == 1.0
    assert {leak.attack for leak in names["again"].leaks} == {"direction"}
    assert "largest_entry" in printed
