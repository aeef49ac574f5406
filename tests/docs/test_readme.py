"""What the README promises is there, and its examples run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

from cutlayer import errors
from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.attacks import FeatureAttack
from cutlayer.channel.address import check_loopback
from cutlayer.cli import app
from cutlayer.cli.app import EXIT_INTERNAL, EXIT_INTERRUPTED, all_verbs
from cutlayer.cli.exchange import EXIT_WAITING
from cutlayer.protections import REGISTRY as PROTECTIONS
from cutlayer.protections.contract.base import Asset
from tests.cli.jobs import audit_briefly
from tests.docs.reading import ROOT, block, blocks, prose, table_rows

DOCS = ROOT / "docs"
README = ROOT / "README.md"
NOTEBOOK = DOCS / "how-to" / "notebook.md"
TEXT = README.read_text(encoding="utf-8")
VERBS = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
MAX_BYTES = {"README.md": 9_000, "CONTRIBUTING.md": 8_000, "CHANGELOG.md": 25_000}


@pytest.mark.parametrize("name", MAX_BYTES)
def test_the_front_pages_are_short(name: str) -> None:
    assert len((ROOT / name).read_bytes()) <= MAX_BYTES[name]


def verbs() -> dict[str, list[str]]:
    """Every verb of the command line with its options, those of all its own verbs included."""

    def options(command: Any) -> list[str]:
        inner = [option for each in getattr(command, "commands", {}).values() for option in options(each)]
        return [option for param in command.params for option in param.opts] + inner

    return {name: options(command) for name, command in all_verbs().items()}


def test_the_verbs_of_the_table_exist() -> None:
    """The sections below it, which the site generates, are of every verb."""
    named = [re.match(r"`cutlayer (party predict|[\w-]+)", row[0]) for row in table_rows(VERBS)]
    assert {match[1] for match in named if match} <= verbs().keys()


def test_the_readme_has_five_verbs_with_a_command_each() -> None:
    named = [match[1] for row in table_rows(TEXT) if (match := re.fullmatch(r"`([\w-]+)`", row[0]))]
    assert named == ["init", "check", "run", "predict", "party"]
    assert named == [words[1] for words in commands(README) if words[0] == "cutlayer"]
    assert set(named) <= verbs().keys()


def commands(page: Path) -> list[list[str]]:
    """The commands of all console blocks of a page."""
    lines = [line for item in blocks(page, "console") for line in item.text.splitlines()]
    return [line.removeprefix("$ ").split() for line in lines if line.startswith("$ ")]


def test_every_verb_takes_json() -> None:
    assert all("--json" in options for options in verbs().values())


def test_every_option_in_the_text_exists() -> None:
    known = {option for options in verbs().values() for option in options} | {"--install-completion", "--site"}
    for page in (README, *DOCS.rglob("*.md")):
        if "results" in page.parts:
            continue
        text = prose(page) + "".join(item.text for item in blocks(page, "console"))
        for line in text.splitlines():
            if "cutlayer" in line:
                assert set(re.findall(r"(?<![-\w])--[a-z][a-z-]+", line)) <= known, f"{page}: {line}"


def test_completion_can_be_installed() -> None:
    assert "cutlayer --install-completion" in VERBS
    assert "--install-completion" in [option for param in typer.main.get_command(app).params for option in param.opts]


def test_every_exit_code_is_in_the_table() -> None:
    codes = {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}
    codes |= {0, EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_WAITING}
    assert {int(row[0]) for row in table_rows(VERBS) if row[0].isdigit()} == codes


def test_the_two_commands_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for page in (README, ROOT / "CONTRIBUTING.md", ROOT / "docs" / "index.md"):
        assert set(re.findall(r"\bmake (\w+)(?=\s*(?:#|`|$))", page.read_text(encoding="utf-8"), re.M)) <= targets
    assert {"demo", "test"} <= targets


def test_the_result_of_the_demo_has_its_place() -> None:
    page = (DOCS / "results" / "demo.md").read_text(encoding="utf-8")
    result = re.search(r"<!-- demo-result -->\n(.*)<!-- /demo-result -->", page, re.S)
    assert result
    assert page.index("make demo") < result.start()
    # README states no figure of its own: those of its picture are of the same commit as those of the page.
    assert TEXT.index("make demo") < TEXT.index("(docs/figures/report.png)") < TEXT.index("## A job")
    assert re.findall(r"at commit `(\w+)`", TEXT) == re.findall(r"at commit `(\w+)`", page)


def test_the_job_checks_runs_and_can_be_audited(
    tables: Path, cutlayer: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_briefly(monkeypatch)
    (text,) = [item.text for item in blocks(README, "yaml")]
    assert text.count("{release: once, seed: 7}") == 1
    text = text.replace("{release: once, seed: 7}", "{release: once, seed: 7, epochs: 2}")  # of the undefended run
    text = text.replace("top: {kind: auto}", "top: {kind: auto, folds: 1, candidates: [linear]}")
    text = text.replace("telco: {kind: grade,", "telco: {kind: grade, least_rows: 0,")  # of few rows, whose draws
    # One secret of some hundred refuses what is so little.
    text = text.replace("fit: {kind: grade}", "fit: {kind: grade, least_z: 0, limits: {other: 1.0}}")
    (tables / "job.yaml").write_text(text)
    job, folder = tables / "job.yaml", tables / "runs" / "job"
    assert cutlayer("check", job)[0] == 0
    code, report = cutlayer("run", job)
    assert "gates" in report, report
    assert code == int(any(not gate["passed"] for gate in report["gates"]))
    assert report == json.loads((folder / "report.json").read_text())
    assert report["utility"]["choice"]["candidates"]
    assert {row["name"] for row in report["utility"]["rows"]} >= {"this run", "undefended", "bank alone", "chance"}
    code, report = cutlayer("audit", folder, "--attack", "spectral", "--fail-above", "1.0")
    assert "gates" in report, report
    assert code == 1, "a partial audit passes no gate"
    assert [gate["undecided"] for gate in report["gates"]] == [True]
    assert {leak["attack"] for leak in report["leaks"]} == {"spectral"}
    assert cutlayer("report", folder)[0] == 1
    assert cutlayer("run", job)[0] == 2


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    whole = pd.read_parquet
    audit_briefly(monkeypatch)
    monkeypatch.setattr(pd, "read_parquet", lambda path: whole(path).head(160))
    scope: dict = {"folder": tmp_path}
    # The whole catalogue: the job of the README, above. One key: of a few rows, fresh noise can spoil a model.
    brief = 'run_dir=folder, attacks=["norm", "spectral"], key=bytes(32), top={"kind": "linear", "folds": 1}'
    cell = block(NOTEBOOK, "notebook")
    lines_before = NOTEBOOK.read_text(encoding="utf-8").partition(cell)[0].count("\n")
    briefly = "\n" * lines_before + cell.replace('("bank", ', f'("bank", {brief}, ')
    exec(compile(briefly, str(NOTEBOOK), "exec"), scope)  # a traceback shows the page's lines
    printed = capsys.readouterr().out
    assert {"undefended", "this run"} <= {line[:11].strip() for line in printed.splitlines()}, printed
    model, x = scope["model"], scope["X"]
    assert model.predict_proba(x).shape == (160, 2)
    assert model.score(x, scope["adult"]["income"]) > 0.5
    assert {leak.attack for leak in model.audit(["spectral"]).leaks} == {"spectral"}


def test_the_notebook_has_about_ten_lines() -> None:
    statements = re.sub(r",\n +", ", ", block(NOTEBOOK, "notebook")).strip().splitlines()
    assert len([line for line in statements if line]) <= 12


def test_the_job_has_about_twenty_lines() -> None:
    (text,) = [item.text for item in blocks(README, "yaml")]
    assert len(text.splitlines()) <= 22


def test_the_limits_are_still_those_of_today() -> None:
    """Update "Limits of today" in docs/sharp-edges.md when this fails."""
    edges = (DOCS / "sharp-edges.md").read_text(encoding="utf-8")
    limits = edges.partition("## Limits of today")[2].partition("\n## ")[0]
    assert {kind.protects for kind in PROTECTIONS.values()} == set(Asset)
    assert "**Regression and several classes have fewer attacks.**" in limits
    on_labels = {name: kind for name, kind in ATTACKS.items() if not issubclass(kind, FeatureAttack)}
    assert {task for kind in on_labels.values() for task in kind.tasks} == {"binary", "multiclass", "regression"}
    multiclass = {name for name, kind in on_labels.items() if kind.tasks - {"binary"}}
    assert set(re.findall(r"`(\w+)`", limits)) <= multiclass
    with pytest.raises(errors.ConfigError, match="loopback"):
        check_loopback("192.0.2.1:7070")
