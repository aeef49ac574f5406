"""A sample of the odd files of `python -m tools.odd_tables`: right in every value, or refused with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.odd_tables import OddTable, odd_tables, outcome

CASES = {f"{case.group}: {case.name}": case for case in odd_tables()}
SAMPLE = (
    "encoding: UTF-16 with its mark",
    "encoding: a byte of zero",
    "compression: xz, called .csv",
    "compression: a zip archive, called .csv",
    "line ends: CR LF after LF",
    "line ends: blank lines",
    "quotes: one that opens and never closes",
    "quotes: two that swallow the rows between, at both ends",
    "quotes: two that swallow rows from the middle on",
    "quotes: lines with as many delimiters as rows, in a text",
    "rows: short after a value of two lines",
    "rows: Excel's trailing commas",
    "headers: two nameless columns with values",
    "headers: SQL in a name",
    "types: times with offsets from UTC",
    "formats: SQL in a format",
    "Parquet: a column of nulls",
    "Parquet: lists",
    "paths: `x'; COPY (SELECT 1) TO 'y.csv'; --.csv`",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_file_is_read_right_or_refused(name: str, tmp_path: Path) -> None:
    fits, text = outcome(CASES[name], tmp_path)
    assert fits, text


def test_a_wrong_reading_and_a_wrong_refusal_are_seen(tmp_path: Path) -> None:
    lost = OddTable("", "", "id\n1\n2\n", {"id": [1]})
    assert not outcome(lost, tmp_path)[0]
    assert not outcome(OddTable("", "", "id\n1\n", refused="line 7"), tmp_path)[0]
    assert not outcome(OddTable("", "", "id,x\n1\n", refused="line 7"), tmp_path)[0]
