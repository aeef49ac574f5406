"""The list of software names everything that is required, at its version, with a licence."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from tools import licences


def test_the_document_lists_what_is_required_and_nothing_else(tmp_path: Path) -> None:
    licences.main(["--out", str(tmp_path / "sbom.json")])
    found = json.loads((tmp_path / "sbom.json").read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["name"] == "cutlayer"
    listed = {each["name"]: each for each in found["components"]}
    assert {"torch", "numpy", "pydantic", "annotated-types"} <= listed.keys()
    assert not {"pytest", "ruff", "mypy", "cutlayer"} & listed.keys()
    assert listed["numpy"]["purl"] == f"pkg:pypi/numpy@{version('numpy')}"
    assert all(each["licenses"] for each in listed.values())
    edges = {each["ref"]: each["dependsOn"] for each in found["dependencies"]}
    assert edges.keys() == {each["bom-ref"] for each in (*listed.values(), found["metadata"]["component"])}
    assert {reference for needed in edges.values() for reference in needed} <= edges.keys()
    assert listed["annotated-types"]["bom-ref"] in edges[listed["pydantic"]["bom-ref"]]


def test_lines_name_the_licence(capsys: pytest.CaptureFixture[str]) -> None:
    licences.main(["--list"])
    assert f"numpy {version('numpy')}: BSD-3-Clause" in capsys.readouterr().out


def test_a_licence_that_is_not_stated_is_named(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(licences, "licences", lambda _of: [licences.UNKNOWN])
    licences.main(["--list"])
    assert "licence not stated by: " in capsys.readouterr().err
