"""Formats of columns of text: what is written in one is detected as that one, or as ambiguous, never as another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.config.formats import ColumnFormat, NumberLayout
from cutlayer.data.classes import reversed_classes_note
from cutlayer.data.column_formats import _WORDS, detected_formats
from tests.cli.jobs import share_engine


@pytest.fixture(scope="module", autouse=True)
def _one_engine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        share_engine(patched)
        yield


LAYOUTS = (
    *("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%y", "%m/%d/%y", "%y-%m-%d"),
    *("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y", "%d. %B %Y", "%d%b%Y", "%d-%b-%y"),
    *("%d.%m.%Y %H:%M", "%Y-%m-%d %H:%M:%S", "%m/%d/%Y %I:%M %p", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M:%S.%f"),
)
UNITS = (("", ""), ("$", ""), ("", " €"), ("CHF ", ""), ("", "%"), ("", " kg"))
SEPARATORS = (("", "."), (",", "."), (".", ","), ("", ","), ("'", "."), (" ", ","), ("\u00a0", ","))


def formats(*values: str | None) -> list[object]:
    """What is stated of each detected format."""
    found = detected_formats(pa.chunked_array([[*values]], type=pa.string()), 2026)
    return [stated for each in found for stated in each.model_dump(exclude_none=True).values()]


@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.datetimes(datetime(1971, 1, 1), datetime(2025, 12, 31)), min_size=5, max_size=12, unique=True),
)
def test_written_dates_are_read_by_their_layout_or_are_ambiguous(layout: str, moments: list[datetime]) -> None:
    written = [moment.strftime(layout) for moment in moments]
    found = formats(*written)
    assert layout in found or (len(set(written)) < 5 and "%y" in layout)


@given(
    st.sampled_from(UNITS),
    st.sampled_from(SEPARATORS),
    st.lists(st.floats(-1e7, 1e7), min_size=1, max_size=30),
    st.integers(0, 3),
)
def test_written_numbers_are_read_as_they_were_meant_or_are_ambiguous(
    unit: tuple[str, str], separators: tuple[str, str], numbers: list[float], decimals: int
) -> None:
    thousands, decimal = separators
    table = str.maketrans({",": thousands, ".": decimal})
    meant = [f"{number:.{decimals}f}" for number in numbers]
    texts = [unit[0] + f"{number:,.{decimals}f}".translate(table) + unit[1] for number in numbers]
    found = detected_formats(pa.chunked_array([texts]), 2026)
    assert all(each.number is not None for each in found)
    readings = [[read(text, each.layout) for text in texts] for each in found]
    assert not readings or meant in readings, (texts, found)


def read(text: str, layout: NumberLayout | None) -> str:
    """A number as programs write it, by a layout."""
    assert layout is not None
    digits = text.removeprefix(layout.before).removesuffix(layout.after).strip()
    plain = digits.replace(layout.thousands, "") if layout.thousands else digits
    return plain.replace(layout.decimal, ".")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["21.04.2023", "3.5.2022"], ["%d.%m.%Y"]),
        (["21.04.2023", None, " 03.05.2022 "], ["%d.%m.%Y"]),
        (["01/02/2024", "03/04/2024"], ["%d/%m/%Y", "%m/%d/%Y"]),
        (["02/02/2024"], ["%d/%m/%Y", "%m/%d/%Y"]),
        (["May 5, 2024"], ["%b %d, %Y", "%B %d, %Y"]),
        (["1/5/2024 1:30 PM", "12/31/2023 11:15 AM"], ["%m/%d/%Y %I:%M %p"]),
        (["2024-01-05 10:00+02:00"], ["%Y-%m-%d %H:%M%z"]),
        (["29.02.2024"], ["%d.%m.%Y"]),
        (["$25,050.13", "$7.00"], ["$25,050.13"]),
        (["1.234,50 €", "3,20 €"], ["1.234,50 €"]),
        (["16.1 %", "3%"], ["16.1 %"]),
        (["$-14.00", "$3.10"], ["$-14.00"]),
        (["-$1,014.00", "$3.10"], ["$1,014.00"]),
        (["- 14,50 €", "3 €"], ["14,50 €"]),
        (["3,5", "2"], ["3,5"]),
        (["1,234", "12,345"], ["1,234.50", "1234,50"]),
        (["0,123", "0,456"], ["1234,50"]),
        (["0,123", "0,45"], ["0,45"]),
        (["$25,050", "$31,200"], ["$1,234.50", "$1234,50"]),
        (["$25,050", "$1,031,200"], ["$1,031,200"]),
        (["yes", "No", "NO"], [("yes", "no")]),
        (["ja", "nein"], [("ja", "nein")]),
        (["Y", "N"], [("y", "n")]),
        (["oui", "non"], [("oui", "non")]),
    ],
)
def test_formats(values: list[str | None], found: list[object]) -> None:
    assert formats(*values) == found


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None],
        ["yes"],
        ["yes", "no", "maybe"],
        ["007", "123"],
        ["1", "2.5"],
        ["$007", "$123"],
        ["12-34-56", "20-11-05"],
        ["12-05-56", "20-11-70"],
        ["1.2.3", "1.12.23", "1.4.11", "2.4.12", "2.5.70"],
        ["+49 151 234", "+49 152 345"],
        ["123 456 789", "600 500 400"],
        ["192.168.100.101", "10.100.100.200"],
        ["C0001", "C0002"],
        ["12 A", "13 A"],
        ["10115", "01067"],
        ["SW1A 1AA", "E1 6AN"],
        ["30.02.2024", "01.03.2024"],
        ["31.04.2024", "01.03.2024"],
        ["13/13/2024"],
        ["21.04.2023", "2023-04-21"],
        ["21.04.2023", "soon"],
        ["$5", "€5"],
        ["-$-5", "$4"],
        ["5 kg", "5 g"],
        ["01.02.45", "13.04.70", "14.04.71", "15.04.72", "16.04.73"],  # 1945 or 2045
        ["12:30", "13:45"],
        ["20240131", "20240201"],
    ],
)
def test_what_stays_text(values: list[str | None]) -> None:
    assert formats(*values) == []


def test_one_odd_value_among_many_counts() -> None:
    """All values are looked at, not the first ones."""
    days = [(date(1990, 1, 1) + timedelta(days=number)).strftime("%d.%m.%Y") for number in range(5_000)]
    assert formats(*days) == ["%d.%m.%Y"]
    assert formats(*days, "unknown") == []
    first = [f"{day:02}/01/2024" for day in range(1, 13)]
    assert formats(*first) == ["%d/%m/%Y", "%m/%d/%Y"]
    assert formats(*first * 200, "31/01/2024") == ["%d/%m/%Y"]


def test_a_format_is_one_that_a_job_may_state() -> None:
    for values in (["$25,050", "$31,200"], ["1\u00a0234,5 €"], ["12 days", "13 days"], ["May 5, 2024"]):
        found = detected_formats(pa.chunked_array([values]), 2026)
        assert found
        for each in found:
            assert ColumnFormat(**each.model_dump(exclude_none=True)) == each


@pytest.mark.parametrize(("yes", "no"), _WORDS)
def test_every_word_for_yes_is_the_positive_class_of_a_label(yes: str, no: str) -> None:
    """J sorts before N, and Ja before Nej: the greater one would be the wrong one, and quietly so."""
    assert reversed_classes_note([yes.upper(), no.upper()])
    assert reversed_classes_note([yes, no])
    assert not reversed_classes_note([no, yes])
