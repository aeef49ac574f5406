"""Ranking, calibration and errors of the model: on the page, in a terminal, in Markdown."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cutlayer.report.rounding import metric
from cutlayer.report.section import Panels, Table
from cutlayer.results.report import Report
from tests.report.conftest import Sample
from tests.report.reading import markdown_of, section_of
from tests.report.samples import binary
from tests.report.test_terminal import printed


def test_metrics_matrix_and_curve_are_shown(sample: Sample) -> None:
    page, report = sample.page, sample.report
    section = section_of(report, "quality")
    (panels,) = (block for block in section.blocks if isinstance(block, Panels))
    svg = str(panels.groups[0][1][0].svg)
    for group in report.quality.bins:
        assert f"predicted {metric(group.predicted)}, observed {metric(group.observed)}" in svg
    matrices = [text for text in page.tables if "Confusion matrix" in text]
    assert len(matrices) == len(report.quality.confusions) == 2
    assert "from a probability of 0.500" in matrices[0]
    assert "3,459" in matrices[0]
    for text in (printed(report), markdown_of(report, "quality")):
        assert "Gini" in text
        assert metric(report.quality.metrics["ks"]) in text
        assert "3,459" in text


@pytest.mark.parametrize("kind", ["multiclass", "regression"])
def test_other_tasks_have_a_curve_with_titles_of_their_own(kind: str) -> None:
    raw: dict[str, Any] = binary()
    raw["task"] = {"kind": kind, "classes": ["a", "b", "c"] if kind == "multiclass" else [], "positive_share": None}
    matrix = {"basis": "the likeliest class", "counts": [[3, 0, 1], [0, 4, 0], [0, 0, 0]]}
    raw["quality"]["confusions"] = [matrix] if kind == "multiclass" else []
    section = section_of(Report.model_validate(raw), "quality")
    (panels,) = (block for block in section.blocks if isinstance(block, Panels))
    title = "share of right choices" if kind == "multiclass" else "mean true value"
    assert title in str(panels.groups[0][1][0].svg)
    captions = [block.caption for block in section.blocks if isinstance(block, Table)]
    assert ("Confusion matrix, predicted: the likeliest class" in captions) == (kind == "multiclass")
    brief = [block for block in section.brief if isinstance(block, Table) and "Confusion" in block.caption]
    assert [cell.text for table in brief for cell in table.rows[0].cells] == ["a", "3", "0", "1"] * len(brief)
    assert len(brief) == (kind == "multiclass")


def test_the_curve_of_a_rare_class_has_the_room_that_it_needs() -> None:
    raw: dict[str, Any] = binary()
    for largest, end in ((0.11, "0.20"), (0.7, "1.0")):
        raw["quality"]["bins"] = [{"predicted": 0.01, "observed": largest, "rows": 30}]
        (panels,) = (
            block for block in section_of(Report.model_validate(raw), "quality").blocks if isinstance(block, Panels)
        )
        ticks = re.findall(r"<text[^>]*>([0-9.]+)</text>", str(panels.groups[0][1][0].svg))
        assert max(ticks, key=float) == end


def test_a_matrix_of_many_classes_is_on_the_page_alone() -> None:
    raw: dict[str, Any] = binary()
    classes = [str(index) for index in range(11)]
    raw["task"] = {"kind": "multiclass", "classes": classes, "positive_share": None}
    raw["quality"]["confusions"] = [{"basis": "the likeliest class", "counts": [[1] * 11] * 11}]
    section = section_of(Report.model_validate(raw), "quality")
    assert any("Confusion" in block.caption for block in section.blocks if isinstance(block, Table))
    assert not any("Confusion" in block.caption for block in section.brief if isinstance(block, Table))


def test_a_report_of_an_earlier_run_has_no_such_section() -> None:
    raw = binary()
    raw.pop("quality")
    assert section_of(Report.model_validate(raw), "quality") is None
