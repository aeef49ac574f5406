from __future__ import annotations

import pytest

from cutlayer.report.html import render_html
from cutlayer.report.rounding import interval, metric
from cutlayer.results.completion import best
from cutlayer.results.report import Report
from tests.report.conftest import Sample
from tests.report.reading import answers, cells_of, markdown_of, markdown_rows, section_of, table_of
from tests.report.samples import binary, regression
from tests.report.test_terminal import printed


def sentence(report: Report) -> str:
    """What the summary says of model completion."""
    return "".join(answer.text for answer in answers(report) if answer.question == "Model completion")


def test_the_strongest_variant_of_every_attack_is_on_the_page_beside_from_scratch(sample: Sample) -> None:
    page, report = sample.page, sample.report
    (table,) = (table for table in page.tables if "beside the model of all parties" in table)
    for part in report.completions:
        mine = max(part.variants, key=lambda item: item.value)
        scratch = max(part.scratch, key=lambda item: item.value)
        for item in (mine, scratch):
            assert metric(item.value) in table
            assert interval(item.low, item.high) in table
    assert "picked after the fact" in page.text
    assert "the labels of about 40 training rows" in page.text


def test_every_variant_is_in_the_table_below(sample: Sample) -> None:
    (table,) = (table for table in sample.page.tables if "of every variant" in table)
    for part in sample.report.completions:
        for variant in (*part.variants, *part.scratch):
            assert metric(variant.value) in table
            assert variant.variant in table


def test_the_joint_model_is_that_of_the_same_run(report: Report) -> None:
    rows = {row.name: row.metrics["auc"] for row in report.utility.rows}
    joint = cells_of(table_of(report, "completion"), "All parties")
    assert joint == [metric(rows[part.run]) for part in report.completions]


def test_the_sentence_names_the_largest_gain(report: Report) -> None:
    own = [part for part in report.completions if part.run == "this run"]
    gains = [(best(part.variants).value - best(part.scratch).value, part) for part in own]
    part = max(gains, key=lambda pair: pair[0])[1]
    text = sentence(report)
    assert f"model of {part.party} reach AUC {metric(best(part.variants).value)}" in text
    assert f"from scratch {metric(best(part.scratch).value)}" in text
    assert "picked after the fact" in text


def test_the_terminal_and_markdown_tell_the_same(report: Report) -> None:
    terminal, markdown = printed(report), markdown_rows(report, "completion")
    assert "Model completion by a departed party" in terminal
    assert len(markdown) == len(report.completions)
    rows = {row.name: row.metrics["auc"] for row in report.utility.rows}
    for part, line in zip(report.completions, markdown, strict=True):
        mine, scratch = best(part.variants), best(part.scratch)
        for figure in (mine.value, scratch.value, rows[part.run]):
            assert metric(figure) in terminal
            assert metric(figure) in line
        for item in (mine, scratch):
            assert interval(item.low, item.high) in terminal
            assert interval(item.low, item.high) in line


@pytest.mark.parametrize("raw", [regression()])
def test_a_report_without_completions_has_no_panel(raw: dict) -> None:
    report = Report.model_validate(raw)
    assert section_of(report, "completion") is None
    assert sentence(report) == ""
    assert 'id="completion"' not in render_html(report)
    assert markdown_of(report, "completion") == ""


def test_what_could_not_be_measured_is_said() -> None:
    raw = binary()
    for part in raw["completions"]:
        for variant in part["variants"]:
            variant.update(value=float("nan"), low=None, high=None)
    report = Report.model_validate(raw)
    assert set(cells_of(table_of(report, "completion"), "Completed")) == {"n/a"}
    assert sentence(report) == ""
