from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from cutlayer.errors import RunFolderError
from cutlayer.results.report import Report
from tests.report.samples import binary, broken


def test_what_is_written_is_read_back(any_report: Report, tmp_path: Path) -> None:
    path = any_report.write(tmp_path / "report.json")
    assert Report.read(path) == any_report
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_the_file_is_strict_json(tmp_path: Path) -> None:
    path = Report.model_validate(broken()).write(tmp_path / "report.json")

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    raw = json.loads(path.read_text(), parse_constant=refuse)
    assert raw["utility"]["rows"][0]["metrics"]["auc"] is None
    assert raw["history"][3]["loss"] is None


def test_a_leak_must_be_a_number() -> None:
    raw = binary()
    raw["leaks"][0]["leak"] = float("nan")
    with pytest.raises(ValidationError, match="finite"):
        Report.model_validate(raw)


def test_unknown_keys_and_changes_are_refused(report: Report) -> None:
    with pytest.raises(ValidationError, match="extra"):
        Report.model_validate(binary() | {"leak": []})
    with pytest.raises(ValidationError, match="frozen"):
        report.run.seed = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("[]", "expected schema_version 5"),
        ('{"schema_version": 1}', "got 1"),
        ('{"schema_version": 5}', "run: Field required"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(RunFolderError, match=message):
        Report.read(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="expected a report at"):
        Report.read(tmp_path / "report.json")
