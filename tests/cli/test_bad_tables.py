"""What can be wrong with a table: each fault names party, file and row or column, and nothing is written."""

from __future__ import annotations

import gzip
import shutil

import pytest

BANK = "parties.bank"
TELCO = "parties.telco"


def cells_set(column, values):
    """Replace one cell of the rows that `values` names, or of all rows where it is a function."""
    given = values if callable(values) else values.get
    return lambda number, cells: [
        *cells[:column],
        str(cells[column] if given(number) is None else given(number)),
        *cells[column + 1 :],
    ]


IDS = [
    ("telco", cells_set(0, {5: 7, 6: 7, 7: 7}), "telco.csv: id 'id': expected every id once, got '7' "),
    ("telco", cells_set(0, {5: ""}), "id 'id': expected an id in every row, got none in 1 rows, the first is row 5"),
    (
        "telco",
        cells_set(0, lambda row: f"c{row}"),
        "expected ids of one kind at all parties, got bank integer",
    ),
    (
        "telco",
        cells_set(0, lambda row: f"0{row}"),
        "expected ids of one kind at all parties, got bank integer",
    ),
    (
        "telco",
        cells_set(0, {5: "5.0"}),
        "write them the same way everywhere, leading zeros included: 7, 07 and 7.0 are three ids",
    ),
    (
        "telco",
        cells_set(0, lambda row: row + 1000),
        "expected rows that all parties have, got none of 200 at bank, 200 at",
    ),
]

LABELS = [
    (
        {},
        cells_set(2, {7: ""}),
        "label 'default': expected a label in every row, got none in 1 rows, the first is row 7",
    ),
    ({}, cells_set(2, lambda row: 1), "label 'default': expected labels of two classes or more, got only '1'; is it"),
    (
        {},
        cells_set(2, lambda row: row % 3),
        "expected two classes for task binary, got 3 (0, 1, 2); set task: multiclass",
    ),
    ({}, cells_set(2, lambda row: ["a", '"b, c"', "d"][row % 3]), "task binary, got 3 (a, 'b, c', d); set task"),
    ({}, cells_set(2, lambda row: row * 0.37), "task binary, got 200 (0, 0.37, 0.74, ...); set task: regression"),
    (
        {},
        cells_set(2, lambda row: int(row == 11)),
        "expected different labels in the training rows, got the same in all",
    ),
    (
        {"task": "regression"},
        cells_set(2, lambda row: "yes"),
        "expected numbers for task regression, got string; set task",
    ),
    (
        {"task": "regression"},
        cells_set(2, {4: "inf"}),
        "expected finite labels, got inf in row 4 (counted from 0); fix",
    ),
    (
        {"task": "regression"},
        cells_set(2, lambda row: 2),
        "expected different labels, got 2 in all rows; is it the right",
    ),
    ({"task": "multiclass"}, cells_set(2, lambda row: row * 0.37), "expected classes, got 200 different numbers"),
]

FEATURES = [
    ({}, {4: "inf"}, "expected finite numbers in column 'usage', got infinity in row 4 (counted from 0); replace it"),
    ({}, {4: "-inf"}, "expected finite numbers in column 'usage', got infinity in row 4"),
    ({}, {4: "1e300"}, "expected numbers below 1e150 in column 'usage', got larger ones; or transform: log1p"),
    (
        {f"{TELCO}.features": {"numbers": {"missing": "error"}}},
        {4: "nan"},
        "expected a value in every row of column 'usage', got none in 1 rows, the first is row 4",
    ),
    (
        {f"{TELCO}.features": {"categorical": ["usage"], "categories": {"missing": "error"}}},
        {4: ""},
        "expected a value in every row of column 'usage', got none in 1 rows, the first is row 4",
    ),
]

COLUMNS = [
    ({f"{TELCO}.id": "uid"}, "telco.csv: no column 'uid'; did you mean 'id'?"),
    ({f"{TELCO}.id": None}, "telco.csv: expected an id column, got none; name one, or write @row if all tables hold"),
    ({f"{TELCO}.id": "@row"}, "got bank integer, telco row; name an id column at every party, or at none"),
    ({f"{BANK}.id": "default"}, "expected two columns for id and label, got 'default' for both"),
    ({f"{BANK}.weight": "default"}, "expected two columns for weight and label, got 'default' for both"),
    ({f"{BANK}.weight": "id"}, "expected two columns for weight and id, got 'id' for both"),
    ({f"{BANK}.label": "defualt"}, "bank.csv: no column 'defualt'; did you mean 'default'?"),
    ({f"{BANK}.features": {"include": ["balance", "default"]}}, "'default' in features.include; leave it out"),
    ({f"{TELCO}.features": {"include": ["usge"]}}, "telco.csv: no column 'usge'; did you mean 'usage'?"),
    ({f"{TELCO}.features": {"exclude": ["usge"]}}, "telco.csv: no column 'usge'; did you mean 'usage'?"),
    ({f"{TELCO}.features": {"exclude": ["usage", "plan"]}}, "expected a feature column, got none besides id and label"),
    ({f"{TELCO}.features": {"include": "none"}}, "telco"),
    (
        {f"{TELCO}.table": {"path": "telco.csv", "delimiter": ";"}},
        "got one column, called 'id,usage,plan'; set table.delimiter to ','",
    ),
    (
        {f"{TELCO}.table": {"path": "telco.csv", "columns": ["id", "usage", "plan"]}},
        "expected no header where table.columns",
    ),
    ({f"{TELCO}.table": {"path": "telco.csv", "columns": ["id", "usage"]}}, "name every column in table.columns"),
    (
        {f"{TELCO}.table": {"path": "telco.csv", "columns": ["id", "id"]}},
        "expected every value once, got 'id' more",
    ),
    ({f"{TELCO}.table": "nope.csv"}, "nope.csv: no such file"),
    ({f"{TELCO}.table": "."}, "expected the path of a file or folder, got '.'"),
    (
        {f"{TELCO}.table": {"path": "telco.csv", "format": "parquet"}},
        "telco.csv: expected a readable table, got Parquet",
    ),
    ({f"{TELCO}.table": "job.yaml"}, "expected a file ending in one of .csv, .tsv"),
]


@pytest.mark.parametrize(("party", "edit", "message"), IDS)
def test_ids_that_cannot_be_matched(place, party, edit, message):
    place.rows(party, edit)
    place.refused(message)


def test_ids_of_two_kinds_are_shown(place):
    place.rows("telco", cells_set(0, {5: "5.0"}))
    place.refused("got bank integer (such as '0'), telco text (such as '5.0'); write", verbs=("check",))


@pytest.mark.parametrize(("changes", "edit", "message"), LABELS)
def test_labels_that_cannot_be_learnt(place, changes, edit, message):
    place.change({**changes, f"{BANK}.audit": {"depth": "quick"}})  # attacks for every task
    place.rows("bank", edit)
    place.refused(message)


@pytest.mark.parametrize(("changes", "values", "message"), FEATURES)
def test_values_that_are_no_features(place, changes, values, message):
    place.change(changes)
    place.rows("telco", cells_set(1, values))
    place.refused("party telco: ", "telco.csv: ", message)


@pytest.mark.parametrize(("changes", "message"), COLUMNS)
def test_columns_and_files_that_are_not_there(place, changes, message):
    place.change(changes)
    place.refused(message)


def test_missing_values_are_no_fault_unless_the_job_says_so(place):
    place.rows("telco", cells_set(1, {4: "nan", 5: "", 6: "NA"}))
    place.rows("telco", cells_set(2, {7: ""}))
    assert place.call("check", place.file).code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a table with rows, got an empty file"),
        (b"id,usage,plan\n", "expected a table with rows, got no row"),
        (b"id,usage,usage\n1,2,3\n", "expected every column name once, got 'usage' more than once; rename them"),
        (b"id,usage,plan\n1,2,3,4\n", "expected 3 fields between ',' in every row, got 4 in line 2"),
        (b"id,usage,plan\n1,2,caf\xe9\n", "expected text in UTF-8"),
    ],
)
def test_files_that_are_no_table(place, content, message):
    (place.folder / "telco.csv").write_bytes(content)
    place.refused("party telco: ", "telco.csv", message)


def test_an_archive_that_is_none(place):
    (place.folder / "telco.csv.gz").write_bytes(b"\x1f\x8bid,usage,plan\n")
    place.change({"parties.telco.table": "telco.csv.gz"})
    place.refused("telco.csv.gz: expected a readable table")
    with gzip.open(place.folder / "telco.csv.gz", "wb") as packed, (place.folder / "telco.csv").open("rb") as plain:
        shutil.copyfileobj(plain, packed)
    assert place.call("check", place.file).code == 0


def test_a_table_shorter_than_a_batch(place):
    place.change({"train.batch_size": 4096})
    place.refused("160", "4096", "batch_size")


def test_a_table_too_short_to_be_split(place):
    (place.folder / "bank.csv").write_text("id,balance,default\n0,1,1\n")
    place.refused("expected a row to train on, got 1 common rows for 1 test and 1 validation rows; lower train.split")
