"""Utility when parties leave: on the page, in a terminal, in Markdown."""

from __future__ import annotations

from rich.cells import cell_len

from cutlayer.report.html import render_html
from cutlayer.report.rounding import difference, interval, metric
from cutlayer.report.section import Bars, Table
from cutlayer.report.sections.departures import heads_sentence
from cutlayer.results.report import Report
from tests.report.conftest import Sample
from tests.report.reading import Page, answers, markdown_of, markdown_rows, section_of
from tests.report.samples import binary, short
from tests.report.test_terminal import printed


def test_every_set_of_absent_parties_has_its_line_everywhere(sample: Sample) -> None:
    report = sample.report
    (found,) = (block for block in section_of(report, "departures").blocks if isinstance(block, Table))
    names = [column.name for column in found.columns]
    whole = report.departures.rows[0].metrics["auc"]
    page = next(table for table in sample.page.tables if "Contributed" in table)
    markdown = markdown_rows(report, "departures")
    terminal = printed(report)
    shown = [dict(zip(names, (cell.text for cell in row.cells), strict=True)) for row in found.rows]
    for line, printed_row, row in zip(shown, markdown, report.departures.rows, strict=True):
        value = row.metrics["auc"]
        assert value is not None
        assert whole is not None
        assert (line["This run"], line["95\u00a0% interval"]) == (metric(value), interval(row.low, row.high))
        assert line["Drop"] == (difference(value - whole) if row.absent else "")
        assert line["Absent"] == (", ".join(row.absent) or "nobody")
        assert line["Contributed"] == ", ".join(row.contributed)
        for text in line.values():
            assert text in page
        assert f"{line['This run']} " in terminal
        assert printed_row.startswith(f"| {line['Absent']} | {line['This run']} | {line[names[3]]} |")
    assert names[5:] == ["undefended", "retrained", "log loss", "accuracy"]
    assert shown[-1]["retrained"] == ""


def test_the_charts_bars_are_of_all_each_missing_and_the_fewest() -> None:
    raw = binary()
    raw["departures"]["rows"].insert(-1, {**raw["departures"]["rows"][-1], "absent": ["census", "employer"]})
    section = section_of(Report.model_validate(raw), "departures")
    (bars,) = (block for block in section.blocks if isinstance(block, Bars))
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert [bar.name for bar in bars.bars] == [
        "all parties",
        "without census",
        "without employer",
        "without insurer",
        "without census, employer, insurer",
    ]
    assert len(table.rows) == 6


def test_the_cost_of_further_heads_is_told(brief: Report) -> None:
    assert heads_sentence(brief) == "The top model has 7 further heads for absent parties, of 12,345 parameters."
    plain = brief.model_copy(update={"departures": brief.departures.model_copy(update={"heads": 1})})
    assert "one head; zeros stand" in heads_sentence(plain)
    assert heads_sentence(plain) in Page(render_html(plain)).text


def test_the_worst_absence_is_answered_at_the_top(report: Report) -> None:
    worst = report.departures.rows[-1]
    (answer,) = [item for item in answers(report) if item.question == "If parties leave"]
    assert answer.text.startswith(f"At worst AUC {metric(worst.metrics['auc'])}, without census, employer, insurer: ")


def test_three_models_beside_it_fit_a_terminal() -> None:
    raw = short("departures")
    for row in raw["departures"]["rows"]:
        row["references"] = dict.fromkeys(("undefended", "retrained", "fine-tuned"), 0.8125)
    lines = printed(Report.model_validate(raw)).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert any("fine-tuned" in line and "accuracy" in line for line in lines)


def test_a_report_without_it_says_nothing() -> None:
    raw = short()
    raw.pop("departures")
    report = Report.model_validate(raw)
    assert section_of(report, "departures") is None
    assert "If parties leave" not in render_html(report) + printed(report)
    assert markdown_of(report, "departures") == ""
    assert "If parties leave" not in [answer.question for answer in answers(report)]


def test_hostile_names_stay_in_their_cells(hostile_sample: Sample) -> None:
    rows = markdown_rows(hostile_sample.report, "departures")
    columns = rows[0].count(" | ")
    assert all(row.replace("\\|", "").count(" | ") == columns for row in rows)
    assert "<script>alert" not in hostile_sample.html
