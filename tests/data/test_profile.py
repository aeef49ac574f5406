"""What a column is taken for, and what `check` warns of."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from cutlayer.config import FeaturesConfig
from cutlayer.data.party_data import PartyTable
from cutlayer.data.profile import ColumnProfile

ROWS = 480


def profiled(
    column: object,
    features: FeaturesConfig | None = None,
    label: object = None,
    name: str = "x",
    *,
    rare_are_odd: bool = True,
) -> ColumnProfile:
    columns = {name: pa.array(column), "y": pa.array(label if label is not None else [0, 1] * (ROWS // 2))}
    table = PartyTable("bank", pa.table(columns), label="y", features=features)
    return next(profile for profile in table.profiles("bank", rare_are_odd=rare_are_odd) if profile.name == name)


def numbers() -> list[float]:
    return [(row * 37 % 267) / 8 for row in range(ROWS)]


def test_one_word_among_numbers_is_named_with_what_it_costs() -> None:
    words: list[str | None] = [*map(str, numbers())]
    words[5] = "unknown"
    profile = profiled(words)
    (note,) = profile.notes
    assert (profile.kind, profile.distinct) == ("category", 268)
    assert "267 different numbers, but 'unknown' makes it text" in note
    assert "table.missing" in note
    assert "makes it text" not in str(profiled(words, FeaturesConfig(categorical=("x",))).notes)


def test_numbers_stored_as_text_are_named_but_codes_are_not() -> None:
    (note,) = profiled([*map(str, numbers())]).notes
    assert "267 different numbers stored as text" in note
    assert "stored as text" not in str(profiled([*map(str, numbers())], FeaturesConfig(categorical=("x",))).notes)
    for codes in ([f"{row % 48:05}" for row in range(ROWS)], [str(row % 20) for row in range(ROWS)]):
        assert not profiled(codes).notes


@pytest.mark.parametrize("name", ["uid", "shop_id", "movieId", "zip"])
def test_codes_that_are_taken_for_quantities_are_named(name: str) -> None:
    codes = [row * 37 % 100 for row in range(ROWS)]
    (note,) = profiled(codes, name=name).notes
    assert "by its name it holds codes, 100 different ones" in note
    assert not profiled(codes, FeaturesConfig(categorical=(name,)), name=name).notes
    assert not profiled([row % 12 for row in range(ROWS)], name=name).notes


@pytest.mark.parametrize("name", ["x", "bid", "paid", "idle", "decode"])
def test_other_whole_numbers_are_quantities(name: str) -> None:
    assert not profiled([row * 37 % 100 for row in range(ROWS)], name=name).notes


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d/%m/%Y", "%Y-%m-%d %H:%M:%S"])
def test_dates_as_text(form: str) -> None:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    dates = [(start + datetime.timedelta(days=row % 90)).strftime(form) for row in range(ROWS)]
    assert "dates as text" in profiled(dates).notes[0]
    days = [(start + datetime.timedelta(days=row % 90)).date() for row in range(ROWS)]
    assert not profiled(days).notes


def test_dates_in_several_formats_but_no_codes() -> None:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    forms = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%y", "%d %b %Y", "%d/%m/%Y %H:%M"]
    dates = [(start + datetime.timedelta(days=row % 90)).strftime(forms[row % 5]) for row in range(ROWS)]
    dates[:100] = [f"week {row % 9}" for row in range(100)]
    assert "dates as text, such as '" in profiled(dates).notes[0]
    codes = [f"{row % 60:02}-{40 + row % 50}-{row % 99:02}" for row in range(ROWS)]
    assert "dates" not in str(profiled(codes).notes)


def test_text_with_nearly_as_many_values_as_rows_may_be_left_out() -> None:
    streets = [f"street {row // 3 * 2 if row % 3 else row}" for row in range(ROWS)]
    assert "or leave it out (features.exclude)" in profiled(streets).notes[0]
    assert "leave it out" not in profiled([f"shop {row % 160}" for row in range(ROWS)]).notes[0]


@pytest.mark.parametrize("form", ["{:,.2f}", "€ {:.2f}", "{:.1f} %"])
def test_numbers_written_as_text(form: str) -> None:
    amounts = [form.format(100 * number) for number in numbers()]
    (note,) = profiled(amounts).notes
    assert "numbers written as text, such as" in note
    assert "write them like 1234.5, set thousands or decimal of a CSV table" in note
    assert "written as text" not in str(profiled(amounts, FeaturesConfig(categorical=("x",))).notes)
    words = [f"street {row % 90}, 2nd floor" for row in range(ROWS)]
    assert "written as text" not in str(profiled(words).notes)


def test_columns_that_name_the_row_or_say_nothing() -> None:
    assert "all values differ" in profiled([f"customer {row}" for row in range(ROWS)]).notes[0]
    assert "numbers the rows" in profiled([1000 + row for row in reversed(range(ROWS))]).notes[0]
    assert "no value" in profiled(pa.nulls(ROWS, pa.float64())).notes[0]
    assert "every value is 3" in profiled([3] * ROWS).notes[0]


def test_the_label_under_another_name() -> None:
    labels = [row * 7 % 3 % 2 for row in range(ROWS)]
    assert "label under another name" in profiled(["yes" if item else "no" for item in labels], label=labels).notes[0]
    almost = ["yes" if label else "no" for label in labels]
    almost[0] = "no" if labels[0] else "yes"
    assert not profiled(almost, label=labels).notes


def test_many_rare_categories() -> None:
    rare = [f"site {row % 200}" for row in range(ROWS)]
    assert "200 categories in 480 rows" in profiled(rare).notes[0]
    assert "min_count" in profiled(rare, FeaturesConfig(categorical=("x",))).notes[0]
    assert not profiled(rare, rare_are_odd=False).notes, "the bottom model is made for them"
    assert not profiled([f"site {row % 40}" for row in range(ROWS)]).notes


def test_ordinary_columns_have_no_note() -> None:
    assert not profiled(numbers()).notes
    assert not profiled(["a", "b", None, "c"] * (ROWS // 4)).notes
    assert not profiled([row * row for row in range(ROWS)]).notes
