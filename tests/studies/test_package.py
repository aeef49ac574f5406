"""The studies use the package; the package works, and is built, without them."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from studies.__main__ import main

ROOT = Path(__file__).parents[2]


OTHERS = re.compile(r"\b(studies|benchmarks)\b")


def imported(text: str) -> set[str]:
    """Names of the top-level packages that a file of such text imports."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {name.partition(".")[0] for name in names}


def test_the_package_does_not_import_the_studies() -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in (ROOT / "src" / "cutlayer").rglob("*.py")}
    assert texts
    named = {file: text for file, text in texts.items() if OTHERS.search(text)}  # to parse all takes two seconds
    assert not [file for file, text in named.items() if imported(text) & {"studies", "benchmarks"}]


@pytest.mark.parametrize(
    "text", ["import studies", "import json, benchmarks.adult as b", "def f():\n    from studies.trials import Trial"]
)
def test_such_an_import_would_be_seen(text: str) -> None:
    assert OTHERS.search(text)
    assert imported(text) & {"studies", "benchmarks"}
    assert not imported(f'"""{text}"""\nfrom . import studies') & {"studies", "benchmarks"}


def test_the_wheel_holds_the_package_alone() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == ["src/cutlayer"]
    assert not {"studies", "benchmarks"} & set(targets["sdist"]["include"])


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_without_a_name_the_studies_are_listed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "gradient-leakage" in capsys.readouterr().out


def test_bad_input_is_refused_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradient-leakage"]) == 2
    assert "--data" in capsys.readouterr().err
    data, out = ["--data", str(tmp_path)], ["--out", str(tmp_path / "out")]
    assert main(["gradient-leakge", *data, *out]) == 2
    assert "gradient-leakage" in capsys.readouterr().err
    assert main(["gradient-leakage", *data, *out, "--seeds", "0"]) == 2
    assert "--seeds" in capsys.readouterr().err
    assert main(["gradient-leakage", *data, *out, "--full"]) == 2
    assert "--full" in capsys.readouterr().err
    assert main(["gradient-leakage", *data, *out]) == 2
    assert "no such file" in capsys.readouterr().err
