from __future__ import annotations

import re

from cutlayer.report import Report, matrix_markdown
from cutlayer.report.rounding import auc, interval
from tests.report.samples import regression


def test_every_cell_is_in_the_table(report: Report) -> None:
    lines = matrix_markdown(report).splitlines()
    assert len(lines) == 2 + 12
    assert lines[0].startswith(
        "| Party | Message | Attack | this run<br>label\\_dp, max\\_norm | undefended<br>no protection |"
    )
    for leak in report.leaks:
        row = next(line for line in lines if line.startswith(f"| {leak.party} | {leak.message} | {leak.attack} |"))
        assert f"**{auc(leak.leak)}** ({interval(leak.low, leak.high)}), epoch {leak.epoch}" in row


def test_every_line_has_the_same_columns_whatever_the_names(hostile_report: Report) -> None:
    text = matrix_markdown(hostile_report)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()} == {8}
    assert "<script" not in text.replace("\\<", "")


def test_a_pair_that_was_not_attacked_is_said(report: Report) -> None:
    assert "| not run |" in matrix_markdown(report.model_copy(update={"leaks": report.leaks[:-1]}))


def test_no_leak_is_said() -> None:
    assert matrix_markdown(Report.model_validate(regression())) == "No leak was measured.\n"
