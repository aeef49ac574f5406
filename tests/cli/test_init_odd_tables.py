"""Folders of odd tables: `init` writes a job that `check` accepts, or says what to do; it never fails by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from ruamel.yaml import YAML

from cutlayer.cli.questions import one_row_an_id
from cutlayer.errors import DataError
from cutlayer.jobs.column_guesses import repeated_ids_note
from cutlayer.jobs.found_tables import read_table
from tests.cli.jobs import Place, QuietPlace

ROWS = 60
Columns = Mapping[str, Sequence[Any]]


def bank(**more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    ages = [20 + 7 * row % 50 for row in range(ROWS)]
    return {
        "id": range(100, 100 + 7 * ROWS, 7),
        "age": ages,
        "default": [row * row % 3 % 2 for row in range(ROWS)],
        **more,
    }


def telco(**more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    return {"id": range(100, 100 + 7 * ROWS, 7), "usage": [row * 13 % 17 / 4 for row in range(ROWS)], **more}


def write_csv(path: Path, columns: Columns, end: str = "") -> None:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join("" if value is None else str(value) for value in row) for row in rows)]
    path.write_text("".join(f"{line}{end}\n" for line in lines))


def write_parquet(path: Path, columns: Columns) -> None:
    parquet.write_table(pa.table({name: pa.array([*values]) for name, values in columns.items()}), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tables = tmp_path / "tables"
    tables.mkdir()
    write_csv(tables / "bank.csv", bank())
    return tables


def test_decimal_commas_in_text_of_a_parquet_file_are_a_format_of_the_column(place: Place, folder: Path) -> None:
    """`decimal` is of CSV files alone: there was no error, and each amount was a category."""
    write_parquet(folder / "telco.parquet", telco(paid=[f"{row},{row % 7}5" for row in range(ROWS)]))
    assert "formats of telco.parquet: paid " in accepted(place, folder)
    assert "decimal" not in (folder / "job.yaml").read_text()
    columns = place.call("check", folder / "job.yaml", "--json").document()["columns"]
    assert [column["type"] for column in columns if column["name"] == "paid"] == ["double"]


def accepted(place: Place, folder: Path, *options: str) -> str:
    """What `init` prints, after `check` has accepted what it wrote."""
    result = place.call("init", folder, *options, "--yes")
    assert result.code == 0, result
    private = [path for path in folder.glob("*.yaml") if path.name != "job.yaml"]
    for path in private:
        half = place.call("check", folder / "job.yaml", "--as", path.stem, "--local", path)
        assert half.code == 0, half
    if not private:
        checked = place.call("check", folder / "job.yaml")
        assert checked.code == 0, checked
    return result.out


def refused(place: Place, folder: Path, *options: str) -> str:
    """The error of `init`, which has written nothing."""
    result = place.call("init", folder, *options, "--yes")
    assert result.code == 2, result
    assert not (folder / "job.yaml").exists()
    return result.error


def parties(folder: Path) -> Any:
    return YAML(typ="safe").load(folder / "job.yaml")["parties"]


OF_PARQUET: Mapping[str, tuple[Sequence[Any], str]] = {
    "nothing": ([None] * ROWS, "it holds no value"),
    "calls": ([[row, 2] for row in range(ROWS)], "it holds list<"),
    "place": ([{"x": row} for row in range(ROWS)], "it holds struct<"),
    "face": ([b"x"] * ROWS, "it holds binary, which is neither"),
    "at": ([time(row % 24) for row in range(ROWS)], "it holds time64"),
    "row": (range(ROWS), "it numbers the rows"),
    "contract_id": (range(0, 3 * ROWS, 3), "all values differ"),
    "note": ([f"note {row}" for row in range(ROWS)], "all values differ"),
    "since": ([timedelta(hours=row % 9) for row in range(ROWS)], ""),
    "active": ([row % 2 == 0 for row in range(ROWS)], ""),
    "born": ([date(2020, 1, 1 + row % 28) for row in range(ROWS)], ""),
}
"""Columns, and why each is left out; empty where it is not."""


@pytest.fixture(scope="module")
def of_parquet(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, set[str]]:
    """What `init` printed of a table with all of these columns, and the columns that a check of its job reads."""
    folder = tmp_path_factory.mktemp("parquet")
    place = QuietPlace(folder)
    write_csv(folder / "bank.csv", bank())
    write_parquet(folder / "telco.parquet", telco(**{name: values for name, (values, _) in OF_PARQUET.items()}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", "80")
        printed = accepted(place, folder)
    columns = place.call("check", folder / "job.yaml", "--json").document()["columns"]
    return printed, {column["name"] for column in columns if column["party"] == "telco"}


@pytest.mark.parametrize("name", OF_PARQUET)
def test_types_of_parquet(of_parquet: tuple[str, set[str]], name: str) -> None:
    printed, columns = of_parquet
    reason = OF_PARQUET[name][1]
    (line,) = (line for line in printed.splitlines() if line.startswith("left out of telco.parquet: "))
    assert (f" {name} ({reason}" in line) == bool(reason)
    assert (name in columns) == (not reason)


def test_trailing_commas_of_a_spreadsheet(place: Place, folder: Path) -> None:
    write_csv(folder / "telco.csv", telco(), end=",,")
    accepted(place, folder)
    assert parties(folder)["telco"]["table"] == "telco.csv"


def test_the_index_of_a_data_frame(place: Place, folder: Path) -> None:
    write_csv(folder / "telco.csv", {"": range(ROWS), **telco()})
    assert "left out of telco.csv: 1 column without a name" in accepted(place, folder)


@pytest.mark.parametrize("more", [{}, {"row": range(ROWS)}])
def test_a_partner_without_a_column_is_refused(place: Place, folder: Path, more: dict[str, Sequence[Any]]) -> None:
    write_csv(folder / "telco.csv", {"id": telco()["id"], **more})
    error = refused(place, folder)
    got = "got row (it numbers the rows)" if more else "got none"
    assert f"expected a column for a model besides the id id in telco.csv, {got}; leave the table out" in error


def test_a_partner_with_one_column_is_named(place: Place, folder: Path) -> None:
    """Where it would release grades, of which check says what follows; of few rows it releases something else."""
    warning, draw = "warning telco: it has one column, of which a grade tells nearly all", np.random.default_rng(0)
    usage = draw.normal(size=3000)
    write_csv(folder / "telco.csv", telco())
    assert warning not in accepted(place, folder)
    write_csv(folder / "bank.csv", {"id": range(3000), "age": range(3000), "default": (usage > 0).astype(int)})
    write_csv(folder / "telco.csv", {"id": range(3000), "usage": usage})
    assert warning in place.call("init", folder, "--yes", "--overwrite").out
    checked = place.call("check", folder / "job.yaml")
    assert checked.code == 0
    assert "the default limit then has rows drawn at a lower epsilon, down to 2" in " ".join(checked.out.split())


def test_an_owner_without_a_column_has_labels_alone(place: Place, folder: Path) -> None:
    write_csv(folder / "bank.csv", {"id": bank()["id"], "loan_id": range(ROWS), "default": bank()["default"]})
    write_csv(folder / "telco.csv", telco())
    assert "left out of bank.csv: loan_id (it numbers the rows)" in accepted(place, folder)
    assert parties(folder)["bank"]["features"] == {"include": "none"}


def test_a_few_ids_that_repeat(place: Place, folder: Path) -> None:
    ids = [*telco()["id"]]
    write_csv(folder / "telco.csv", telco(id=[*ids[:-2], ids[0], ids[1]]))
    printed = accepted(place, folder)
    assert "warning 2 of the ids id of telco.csv have several rows, such as 100, 107: the first row of each" in printed
    assert parties(folder)["telco"]["id"] == {"column": "id", "duplicates": "first"}


@pytest.mark.parametrize("options", [[], ["--id", "id"]])
def test_one_row_is_made_of_each_id_of_many_rows(place: Place, folder: Path, options: list[str]) -> None:
    ids = [100 + 7 * (row // 3) for row in range(ROWS)]
    write_csv(folder / "telco.csv", telco(id=ids, plan=[f"p{row % 4}" for row in range(ROWS)]))
    printed = accepted(place, folder, *options)
    line = "aggregate of telco.csv: one row of each id, with count of id, sum mean max of usage, distinct of plan"
    assert line in printed
    assert "warning telco.csv: without as_of, events after the time of the label count as well" in printed
    columns = {"id": ["count"], "usage": ["sum", "mean", "max"], "plan": ["distinct"]}
    assert parties(folder)["telco"]["table"] == {"path": "telco.csv", "aggregate": {"by": "id", "columns": columns}}


def test_a_partner_makes_one_row_of_each_id_of_its_own_table(place: Place, folder: Path) -> None:
    assert place.call("init", folder, "--partner-name", "telco", "--yes").code == 0
    theirs = folder.parent / "theirs"
    theirs.mkdir()
    (theirs / "job.yaml").write_text((folder / "job.yaml").read_text())
    write_csv(theirs / "telco.csv", telco(id=[100 + 7 * (row // 3) for row in range(ROWS)]))
    result = place.call("init", theirs, "--as", "telco", "--yes")
    assert "aggregate of telco.csv: one row of each id" in result.out, result
    assert place.call("check", theirs / "job.yaml", "--as", "telco", "--local", theirs / "telco.yaml").code == 0


def test_events_are_dated_by_the_columns_that_can_be(place: Place, folder: Path) -> None:
    day, applied = date(2024, 3, 1), date(2024, 4, 25)
    events = telco(
        id=[100 + 7 * (row // 3) for row in range(ROWS)],
        plan=[f"p{row % 4}" for row in range(ROWS)],
        day=[day + timedelta(days=row) for row in range(ROWS)],
        applied=[applied + timedelta(days=row // 3) for row in range(ROWS)],
        born=[date(1980, 1, 1) + timedelta(days=row // 3) for row in range(ROWS)],  # before all events: no as_of
    )
    write_csv(folder / "telco.csv", events)
    assert "last distinct of plan, min max of born, of events before applied" in accepted(place, folder)
    made = parties(folder)["telco"]["table"]["aggregate"]
    assert (made["time"], made["as_of"]) == ("day", "applied")


def test_many_rows_of_an_id_are_refused_where_none_may_be_made_of_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_csv(folder / "telco.csv", telco(id=[100 + 7 * (row // 3) for row in range(ROWS)]))
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    table = one_row_an_id(read_table(folder / "telco.csv"), "id", asking=True)
    with pytest.raises(DataError, match="got 60 rows of 20 ids; make one row of them"):
        repeated_ids_note(table, "id")


def test_labels_whose_case_differs_are_refused_with_the_way_out(place: Place, folder: Path) -> None:
    words = [("Paid", "paid", "charged_off")[row % 3] for row in range(ROWS)]
    write_csv(folder / "bank.csv", bank(default=words))
    write_csv(folder / "telco.csv", telco())
    assert "default of bank.csv: 3 labels are 2 after trimming and lower-casing: 'Paid', 'paid'" in refused(
        place, folder
    )
    assert "classes: 3: Paid (20), charged_off (20), paid (20)" in accepted(place, folder, "--task", "multiclass")


def test_a_folder_with_an_odd_name(place: Place, folder: Path) -> None:
    write_csv(folder / "telco.csv", telco())
    odd = folder.parent / "Käufe & Kredite, 2024"
    folder.rename(odd)
    accepted(place, odd)


IDS = [*telco()["id"]]
REFUSED: Mapping[str, tuple[Columns, Columns, str]] = {
    "an id is missing": (bank(), telco(id=[None, *IDS[1:]]), "expected an id in every row, got none in 1 rows"),
    "no id in common": (
        bank(),
        telco(id=[each + 1 for each in IDS]),
        "the first ids are 100 and 107 at bank, 101 and 108",
    ),
    "two rows": (
        {k: v[:2] for k, v in bank().items()},
        telco(),
        "expected three rows or more, to train, choose and test",
    ),
    "a range": (
        bank(),
        telco(**{"x1..x3": range(ROWS)}),
        "expected another name for 'x1..x3' in telco.csv, which is left",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_check_would_refuse_is_refused_before(place: Place, folder: Path, case: str) -> None:
    ours, theirs, phrase = REFUSED[case]
    write_csv(folder / "bank.csv", ours)
    write_csv(folder / "telco.csv", theirs)
    assert phrase in refused(place, folder, "--id", "id")


@pytest.mark.parametrize("side", ["owner", "partner"])
def test_a_measured_number_is_no_id_where_an_id_is_missing(place: Place, folder: Path, side: str) -> None:
    """Measured numbers are all different, ids of which some are missing are not."""
    measured = {"length": [0.1 + row / 7 for row in range(ROWS)]}
    gaps = [None if row == 3 else 100 + 7 * row for row in range(ROWS)]
    theirs = folder.parent / "theirs"
    theirs.mkdir()
    if side == "owner":
        write_csv(folder / "bank.csv", {**measured, **bank(), "id": gaps})
        result = place.call("init", folder, "--partner-name", "telco", "--yes")
        assert result.code == 2
    else:
        printed = place.call("init", folder, "--partner-name", "telco", "--yes").out
        assert "ids: id of bank.csv" in printed
        (theirs / "job.yaml").write_text((folder / "job.yaml").read_text())
        write_csv(theirs / "telco.csv", {**measured, **telco(), "id": gaps})
        assert "id: id of telco.csv" in place.call("init", theirs, "--as", "telco", "--yes").out
        result = place.call("check", theirs / "job.yaml", "--as", "telco", "--local", theirs / "telco.yaml")
    assert "expected an id in every row, got none in 1 row" in result.out + result.err


def test_infinite_numbers_are_missing_and_named(place: Place, folder: Path) -> None:
    write_csv(folder / "telco.csv", telco(ratio=["inf" if row == 3 else row / 3 for row in range(ROWS)]))
    line = "warning ratio of telco.csv: infinite numbers are taken for missing (numbers.infinite)"
    assert line in accepted(place, folder)


def test_a_link_to_a_table_elsewhere_needs_the_consent_that_is_printed(place: Place, folder: Path) -> None:
    write_csv(folder.parent / "calls.csv", telco())
    (folder / "telco.csv").symlink_to(folder.parent / "calls.csv")
    result = place.call("init", folder, "--yes")
    command = next(line.split() for line in result.out.splitlines() if " check " in line)
    assert command[-2:] == ["--allow-path", str(folder.parent / "calls.csv")]
    assert place.call(*command[1:]).code == 0


def test_a_date_as_a_label_is_a_class(place: Place, folder: Path) -> None:
    write_csv(folder / "bank.csv", bank(due=[f"{1 + row % 28:02}.01.2024" for row in range(ROWS)]))
    write_csv(folder / "telco.csv", telco())
    assert "task: multiclass, of due in bank.csv" in accepted(place, folder, "--label", "due")
    assert parties(folder)["bank"]["table"] == "bank.csv"


def test_formats_are_written_and_printed(place: Place, folder: Path) -> None:
    days = [f"{1 + row % 28:02}.{1 + row % 12:02}.2023" for row in range(ROWS)]
    written = {
        "opened": days,
        "income": [f'"${1000 * row:,}.50"' for row in range(ROWS)],
        "used": [f"{row / 2} %" for row in range(ROWS)],
        "owner": [("yes", "No")[row % 2] for row in range(ROWS)],
        "paid": [f"{1 + row % 12:02}/{1 + row % 11:02}/2023" for row in range(ROWS)],
    }
    write_csv(folder / "telco.csv", telco(**written))
    printed = accepted(place, folder)
    formats = "opened %d.%m.%Y, income $10,000.50, used 10.0 %, owner yes/no"
    assert f"formats of telco.csv: {formats}\n" in printed
    line = 'write formats: {paid: {date: "%d/%m/%Y"}} into its table'
    assert f"paid of telco.csv: read as text, since %d/%m/%Y and %m/%d/%Y both read it; {line}" in printed
    stated = parties(folder)["telco"]["table"]["formats"]
    assert stated == {
        "opened": {"date": "%d.%m.%Y"},
        "income": {"number": "$10,000.50"},
        "used": {"number": "10.0 %"},
        "owner": {"boolean": ["yes", "no"]},
    }
    text = (folder / "job.yaml").read_text()
    assert "opened: {date: '%d.%m.%Y'}\n" in text
    assert "owner: {boolean: [yes, no]}\n" in text


COMMAS = [f'"0,{row:02}"' for row in range(ROWS)]
OPEN = [f'"{1 + row % 9},250"' for row in range(ROWS)]
POINTS = [f"{1 + row % 9}.250" for row in range(ROWS)]


@pytest.mark.parametrize(
    ("columns", "stated"),
    [
        ({"share": COMMAS, "size": OPEN}, {"decimal": ","}),
        ({"share": COMMAS, "size": POINTS}, {"decimal": ",", "formats": {"size": {"number": "1.234,50"}}}),
        ({"size": OPEN}, {"formats": {"size": {"number": "1,234.50"}}}),
        (
            {"share": COMMAS, "size": OPEN, "rate": [row / 8 for row in range(ROWS)]},
            {"formats": {"share": {"number": "0,00"}}},
        ),
    ],
)
def test_what_other_columns_show_settles_what_one_leaves_open(
    place: Place, folder: Path, columns: Columns, stated: dict[str, Any]
) -> None:
    """`1,250` may be a thousand or a fraction: decimal commas elsewhere, or points, say which; both say nothing."""
    usage = {} if "rate" in columns or "," in stated.get("decimal", "") else {"usage": telco()["usage"]}
    write_csv(folder / "telco.csv", {"id": telco()["id"], **usage, **columns})
    printed = accepted(place, folder)
    table = parties(folder)["telco"]["table"]
    assert {key: value for key, value in table.items() if key != "path"} == stated
    assert ("warning size of telco.csv: read as text" in printed) == ("rate" in columns)
