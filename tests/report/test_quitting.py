"""What is left when parties leave: on the page, in a terminal, in Markdown."""

from __future__ import annotations

from rich.cells import cell_len

from cutlayer.report import Report, quitting_markdown, render_html
from cutlayer.report.headline import answers
from cutlayer.report.quitting import quitting_of
from cutlayer.report.rounding import difference, interval, metric
from tests.report.reading import Page
from tests.report.samples import binary, hostile
from tests.report.test_terminal import printed


def test_every_set_of_absent_parties_has_its_line_everywhere(report: Report) -> None:
    found = quitting_of(report)
    assert found is not None
    whole = report.departures.rows[0].metrics["auc"]
    page = next(table for table in Page(render_html(report)).tables if "Contributed" in table)
    markdown = quitting_markdown(report).splitlines()
    terminal = printed(report)
    for line, row in zip(found.lines, report.departures.rows, strict=True):
        value = row.metrics["auc"]
        assert value is not None
        assert whole is not None
        assert (line.value, line.bounds) == (metric(value), interval(row.low, row.high))
        assert line.drop == (difference(value - whole) if row.absent else "")
        assert line.absent == (", ".join(row.absent) or "nobody")
        for text in (line.absent, line.value, line.bounds, *line.beside, *line.others[-1:]):
            assert text in page
        assert f"{line.value} " in terminal
        assert markdown[found.lines.index(line) + 2].startswith(
            f"| {line.absent} | {line.contributed} | {line.value} |"
        )
    assert found.columns == ("undefended", "retrained")
    assert found.others == ("log_loss", "accuracy")
    assert found.lines[-1].beside[1] == ""


def test_the_charts_bars_are_of_all_each_missing_and_the_fewest() -> None:
    raw = binary()
    raw["departures"]["rows"].insert(-1, {**raw["departures"]["rows"][-1], "absent": ["census", "employer"]})
    found = quitting_of(Report.model_validate(raw))
    assert found is not None
    assert [bar.name for bar in found.bars] == [
        "all parties",
        "without census",
        "without employer",
        "without insurer",
        "without census, employer, insurer",
    ]
    assert len(found.lines) == 6


def test_the_cost_of_further_heads_is_told(report: Report) -> None:
    found = quitting_of(report)
    assert found is not None
    assert found.cost == "The top model has 7 further heads for absent parties, of 12,345 parameters."
    plain = report.model_copy(update={"departures": report.departures.model_copy(update={"heads": 1})})
    assert "one head; zeros stand" in quitting_of(plain).cost  # type: ignore[union-attr]


def test_the_worst_absence_is_answered_at_the_top(report: Report) -> None:
    worst = report.departures.rows[-1]
    (answer,) = [one for one in answers(report) if one.question == "If parties leave"]
    assert answer.text.startswith(f"At worst AUC {metric(worst.metrics['auc'])}, without census, employer, insurer: ")


def test_three_models_beside_it_fit_a_terminal() -> None:
    raw = binary()
    for row in raw["departures"]["rows"]:
        row["references"] = dict.fromkeys(("undefended", "retrained", "fine-tuned"), 0.8125)
    lines = printed(Report.model_validate(raw)).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert any("fine-tuned" in line and "accuracy" in line for line in lines)


def test_a_report_without_it_says_nothing() -> None:
    raw = binary()
    raw.pop("departures")
    report = Report.model_validate(raw)
    assert quitting_of(report) is None
    assert "If parties leave" not in render_html(report) + printed(report)
    assert quitting_markdown(report) == "Nobody's leaving was measured.\n"
    assert "If parties leave" not in [one.question for one in answers(report)]


def test_hostile_names_stay_in_their_cells() -> None:
    report = Report.model_validate(hostile())
    rows = quitting_markdown(report).splitlines()
    columns = rows[0].count(" | ")
    assert all(row.replace("\\|", "").count(" | ") == columns for row in rows)
    assert "<script>alert" not in render_html(report)
