"""The published pages are those of the published results, and a page is written again without training."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from cutlayer.errors import ConfigError
from studies.__main__ import main
from studies.record import Record
from studies.registry import STUDIES, render_study
from studies.results import TrialResult
from tests.studies.written_pages import page_of

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "results"
RECORDS = ROOT / "studies" / "results"
RESULT = TrialResult("Adult", "p 0", 1, 0.9, 60.0, {"gradient/norm": {"auc": 0.7}}, {}, {"heads": 1})


@pytest.mark.parametrize("name", STUDIES)
def test_published_pages_are_rendered_from_the_published_results(name: str, tmp_path: Path) -> None:
    """`python -m studies NAME --render` changes nothing."""
    render_study(name, RECORDS, tmp_path)
    assert (tmp_path / f"{name}.md").read_text() == (PUBLISHED / f"{name}.md").read_text()
    figures = {path.name: path.read_text() for path in (tmp_path / "figures").iterdir()}
    assert figures == {path.name: path.read_text() for path in (PUBLISHED / "figures").glob(f"{name}-*.svg")}


def test_every_published_figure_is_of_a_study_or_of_the_scale_benchmark() -> None:
    names = [path.name for path in (PUBLISHED / "figures").iterdir()]
    assert names
    assert all(name.startswith((*(f"{study}-" for study in STUDIES), "scale-")) for name in names)


def test_another_result_changes_the_page_and_its_figures(tmp_path: Path) -> None:
    """The comparison with the published pages can fail: each number on them comes from the results."""
    record = Record.load(RECORDS / "departures.json")
    changed = json.loads((RECORDS / "departures.json").read_text())
    changed["results"][0]["measured"]["without"][""] += 0.01
    (tmp_path / "departures.json").write_text(json.dumps(changed))
    render_study("departures", tmp_path, tmp_path)
    assert record.results[0].group == "Adult"
    assert (tmp_path / "departures.md").read_text() != (PUBLISHED / "departures.md").read_text()
    figure = "figures/departures-adult-both-leave.svg"
    assert (tmp_path / figure).read_text() != (PUBLISHED / figure).read_text()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record("departures", "0.1.0", 3, full=True, provenance="Trained.", results=(RESULT, RESULT))
    record.save(tmp_path)
    assert Record.load(tmp_path / "departures.json") == record


def test_the_provenance_stays_when_a_study_continues(tmp_path: Path) -> None:
    study = STUDIES["departures"]()
    Record("departures", "0.1.0", 1, full=False, provenance="Trained.", results=()).save(tmp_path)
    assert Record.of(study, [RESULT], 3, tmp_path).provenance == "Trained."
    assert Record.of(study, [RESULT], 3, tmp_path / "other").provenance == ""


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"results": [{"group": "Adult"}]}', '{"results": 3}'])
def test_a_file_that_is_no_record_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "departures.json").write_text(content)
    with pytest.raises(ConfigError, match=r"departures\.json"):
        Record.load(tmp_path / "departures.json")


def test_the_published_index_is_rendered_from_the_published_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in RECORDS.glob("*.json"):
        shutil.copy(path, tmp_path)
    assert main(["--index", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (PUBLISHED / "index.md").read_text()
    # Every study has a row, with its advice; the counts are those of the pages.
    rows = [line for line in (PUBLISHED / "index.md").read_text().splitlines() if line.startswith("| [")]
    assert {study.title for study in STUDIES.values()} <= {row[3 : row.index("]")] for row in rows}
    assert all(study.advice for study in STUDIES.values())


def test_the_command_renders_without_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["label-dp", "--render", "--out", str(tmp_path)]) == 2
    assert "no such file" in capsys.readouterr().err
    shutil.copy(RECORDS / "label-dp.json", tmp_path)
    assert main(["label-dp", "--render", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (PUBLISHED / "label-dp.md").read_text()


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_of_nothing_says_so(name: str, tmp_path: Path) -> None:
    page = page_of(STUDIES[name](), [], tmp_path / "empty")
    assert set(re.findall(r"\| \*\*([^*]+)\*\* \|", page)) == {"not run"}
