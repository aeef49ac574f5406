"""What a column is taken for, and what `check` warns of."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import FeaturesConfig
from cutlayer.data import party_data
from cutlayer.data.party_data import PartyTable
from cutlayer.data.profile import ColumnProfile, label_profile

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
    return next(profile for profile in table.profiles("bank", note_rare=rare_are_odd) if profile.name == name)


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
    assert f"by table.formats, {{date: '{form}'}}, or name" in profiled(dates).notes[0]
    days = [(start + datetime.timedelta(days=row % 90)).date() for row in range(ROWS)]
    assert not profiled(days).notes


def test_dates_in_several_formats_but_no_codes() -> None:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    forms = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%y", "%d %b %Y", "%d/%m/%Y %H:%M"]
    dates = [(start + datetime.timedelta(days=row % 90)).strftime(forms[row % 5]) for row in range(ROWS)]
    dates[:100] = [f"week {row % 9}" for row in range(100)]
    assert "dates as text, such as '" in profiled(dates).notes[0]
    assert "by table.formats, such as {date: '%d.%m.%Y'}, or name" in profiled(dates).notes[0], "several formats"
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
    assert "state how they are written by table.formats, {number: '" in note
    assert "written as text" not in str(profiled(amounts, FeaturesConfig(categorical=("x",))).notes)
    words = [f"street {row % 90}, 2nd floor" for row in range(ROWS)]
    assert "written as text" not in str(profiled(words).notes)


def test_columns_that_name_the_row_or_say_nothing() -> None:
    assert "all values differ" in profiled([f"customer {row}" for row in range(ROWS)]).notes[0]
    assert "numbers the rows" in profiled([1000 + row for row in reversed(range(ROWS))]).notes[0]
    assert "no value" in profiled(pa.nulls(ROWS, pa.float64())).notes[0]
    assert "every value is 3" in profiled([3] * ROWS).notes[0]


def test_spellings_of_few_values_are_named() -> None:
    (note,) = profiled(["true", "TRUE", "false", "False"] * (ROWS // 4)).notes
    assert note.startswith("4 values are 2 after trimming and lower-casing: 'true', 'TRUE', 'false', 'False'; write")
    assert not profiled([f"{'aA'[row % 2]}{row % 23}" for row in range(ROWS)]).notes, "codes in which case may count"


def test_zeros_of_both_signs_are_one_value() -> None:
    profile = profiled([0.0, -0.0] * (ROWS // 2))
    assert (profile.distinct, profile.notes) == (1, ("every value is 0.0; exclude it",))


def test_a_column_of_no_type_holds_no_value() -> None:
    profile = profiled(pa.nulls(ROWS))
    assert (profile.kind, profile.distinct, profile.notes) == ("number", 0, ("it holds no value; exclude it",))


SECRET = "Zanzibar 7.5"
ODD: dict[str, tuple[list[object], str]] = {
    "misread": ([*map(str, numbers()[:-1]), SECRET], "another word makes it text"),
    "dates": ([f"2026-01-{row % 28 + 1:02}" for row in range(ROWS)], "dates as text: each is a category"),
    "constant": ([SECRET] * ROWS, "every value is the same; exclude it"),
    "spelt": ([SECRET, SECRET.upper()] * (ROWS // 2), "some values differ in case or in surrounding spaces alone"),
}


@pytest.mark.parametrize("what", ODD)
def test_the_notes_of_a_training_have_no_value_of_the_table(what: str) -> None:
    values, text = ODD[what]
    table = PartyTable("bank", pa.table({"x": values, "z": numbers()}))
    everything = np.arange(ROWS)
    table.prepare(everything, everything)
    [note] = table.notes or ()
    assert note.column == "x"
    assert text in note.text
    assert "zanzibar" not in note.text.lower()
    assert "2026" not in note.text


def test_that_all_rows_have_one_value_is_looked_for_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party_data, "NOTED_ROWS", 100)
    columns = {"late": [None] * 400 + [1.0, 2.0] * 40, "none": pa.nulls(ROWS, pa.float64()), "same": [3] * ROWS}
    table = PartyTable("bank", pa.table({**columns, "other": [1.0] * 100 + [2.0] * 380}))
    everything = np.arange(ROWS)
    table.prepare(everything, everything)
    assert [(note.column, note.kind) for note in table.notes or ()] == [("none", "idle"), ("same", "idle")]


def test_columns_are_looked_at_once_for_all_runs_on_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = PartyTable("bank", pa.table({"x": [3] * ROWS, "z": numbers()}))
    table.prepare(np.arange(ROWS), np.arange(ROWS))
    found = table.notes
    monkeypatch.setattr(party_data, "column_notes", lambda *_: pytest.fail("a table in a file is read again"))
    table.prepare(np.arange(ROWS), np.arange(ROWS))
    assert table.notes == found != ()


def test_values_of_held_out_rows_that_the_training_lacks() -> None:
    table = PartyTable("bank", pa.table({"x": ["old"] * 400 + ["new"] * 10 + ["old"] * 40 + ["rare"] * 30}))
    table.prepare(np.arange(ROWS), np.arange(450))
    [note] = table.notes or ()
    assert (note.kind, note.text) == (
        "unseen",
        "30 of 30 values of held-out rows are of no category of the training rows",
    )
    table = PartyTable("bank", pa.table({"x": ["old"] * 476 + ["new"] * 4}))
    table.prepare(np.arange(ROWS), np.arange(450))
    assert table.notes == ()
    days = [f"2026-{1 + row // 28 % 12:02}-{row % 28 + 1:02}" for row in range(ROWS)]
    table = PartyTable("bank", pa.table({"x": days[:450] + days[:30][::-1], "z": numbers()}))
    table.prepare(np.arange(ROWS), np.arange(100))
    assert [note.kind for note in table.notes or ()] == ["misread"], "that explains values that training rows lack"


def test_many_rare_categories() -> None:
    rare = [f"site {row % 200}" for row in range(ROWS)]
    assert "200 categories in 480 rows" in profiled(rare).notes[0]
    assert "min_count" in profiled(rare, FeaturesConfig(categorical=("x",))).notes[0]
    assert not profiled(rare, rare_are_odd=False).notes, "the bottom model is made for them"
    assert not profiled([f"site {row % 40}" for row in range(ROWS)]).notes


def test_a_label_that_decides_all_squared_errors_is_named() -> None:
    def notes(values: object) -> tuple[str, ...]:
        return label_profile("bank", "price", pa.chunked_array([values]), "regression", "bank.csv").notes

    ordinary = [float(value) for value in numbers()]
    (note,) = notes([*ordinary, 1e12])
    assert f"one row's 1e+12 deviates more than the {len(ordinary):,} others together" in note
    assert not notes(ordinary)
    assert not notes([*ordinary, 1e12, -1e12]), "two rows share it"
    assert not notes([5] * ROWS)
    assert not notes([f"{value:.2f} EUR" for value in ordinary]), "text is no number"


def test_ordinary_columns_have_no_note() -> None:
    assert not profiled(numbers()).notes
    assert not profiled(["a", "b", None, "c"] * (ROWS // 4)).notes
    assert not profiled([row * row for row in range(ROWS)]).notes
