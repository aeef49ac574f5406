"""A page shows short tables open and long ones folded; a long page folds more of them."""

from __future__ import annotations

from studies.page import LONG_PAGE, OPEN_ROWS, OPEN_ROWS_OF_LONG, Page, Section, Table


def page_of(rows: int, text: str = "A conclusion.") -> str:
    return Page((Section("Results", (text, Table(("a",), (("1",),) * rows))),)).markdown()


def test_a_table_is_folded_beyond_some_rows() -> None:
    assert "<details" not in page_of(OPEN_ROWS)
    assert "<details" in page_of(OPEN_ROWS + 1)


def test_a_long_page_folds_all_but_the_shortest_tables() -> None:
    long = "word " * (LONG_PAGE // 5)
    assert "<details" in page_of(OPEN_ROWS_OF_LONG + 1, long)
    assert "<details" not in page_of(OPEN_ROWS_OF_LONG, long)
