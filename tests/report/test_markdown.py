from __future__ import annotations

import re

from cutlayer.report.markdown import escape_markdown, render_markdown
from cutlayer.report.rounding import auc, interval
from cutlayer.results.report import Report
from tests.report.reading import markdown_of, markdown_rows
from tests.report.samples import regression


def test_the_strongest_attack_on_each_message_is_in_the_table(report: Report) -> None:
    lines = markdown_rows(report, "leaks")
    own = [leak for leak in report.leaks if leak.run == "this run"]
    for party, message in {(leak.party, leak.message) for leak in own}:
        worst = max(
            (leak for leak in own if (leak.party, leak.message) == (party, message)), key=lambda leak: leak.leak
        )
        row = next(line for line in lines if line.startswith(f"| {message}s<br>{party} |"))
        assert f"| {worst.attack} | {auc(worst.leak)}<br>{interval(worst.low, worst.high)} |" in row


def test_every_line_has_the_same_columns_whatever_the_names(hostile_report: Report) -> None:
    lines = markdown_rows(hostile_report, "leaks")
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {7}
    assert "<script" not in render_markdown(hostile_report).replace("\\<", "")


def test_a_pair_that_was_not_attacked_is_said(report: Report) -> None:
    undefended = [leak for leak in report.leaks if leak.run == "undefended" and leak.message == "embedding"]
    left = tuple(leak for leak in report.leaks if leak not in undefended)
    assert "| not run |" in render_markdown(report.model_copy(update={"leaks": left}))


def test_what_to_do_stands_apart_from_what_was_found(report: Report) -> None:
    text = markdown_of(report, "findings")
    for finding in report.findings:
        detail, remedy = (escape_markdown(part.rstrip(".")) for part in (finding.detail, finding.remedy))
        assert f"{detail}. What to do: {remedy}." in text if remedy else f"{detail}.\n" in text


def test_no_leak_is_said() -> None:
    assert "\n\nNo leak was measured\\.\n".replace("\\", "") in markdown_of(
        Report.model_validate(regression()), "leaks"
    )


def test_a_supplied_key_is_said_before_any_guarantee(report: Report) -> None:
    warning = "\n**The noise key was supplied: reproducible, not private.**\n"
    assert warning not in render_markdown(report)
    run = report.run.model_copy(update={"reproducible_noise": True})
    text = render_markdown(report.model_copy(update={"run": run}))
    assert text.index(warning) < text.index("###")
