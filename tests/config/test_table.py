"""Names of columns: ranges are written out, and what is no range says so."""

from __future__ import annotations

from typing import Any

import pytest

from cutlayer.config import FeaturesConfig, PrivateFile, TableConfig, validated
from cutlayer.config.party import PrivatePart
from cutlayer.config.size import in_bytes
from cutlayer.config.table import expand
from cutlayer.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (("a", "b"), ("a", "b")),
        (("I1..I3",), ("I1", "I2", "I3")),
        (("f08..f11",), ("f08", "f09", "f10", "f11")),
        (("x9..x9",), ("x9",)),
        (("0..2",), ("0", "1", "2")),
        (("a..b", "v1.2"), ("a..b", "v1.2")),
    ],
)
def test_ranges(given, columns):
    assert expand(given) == columns


@pytest.mark.parametrize("name", ["a1..b2", "a3..a1"])
def test_what_is_no_range(name):
    with pytest.raises(ValueError, match=r"a range such as I1\.\.I13, got"):
        expand((name,))


def test_a_path_alone_is_a_table():
    assert validated(TableConfig, "rows.csv", "table") == TableConfig(path="rows.csv")


def test_an_empty_list_of_features_is_none():
    assert FeaturesConfig(include=[]).include == "none"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"path": "t", "columns": ["a", "b1..b2", "b2"]}, "table.columns: expected every value once, got 'b2'"),
        ({"path": "t", "delimiter": ""}, r"table.delimiter: expected at least 1 character\(s\), got ''"),
        ({}, "table.path: missing"),
        (5, "table: expected keys and values, got 5"),
    ],
)
def test_tables_that_are_wrong(raw, message):
    with pytest.raises(ConfigError, match=message):
        validated(TableConfig, raw, "table")


@pytest.mark.parametrize(
    ("memory", "message"),
    [("2", "memory"), ("2 TB", "memory"), (7, "memory"), ("63 MB", "64 MB or more, got 63 MB"), ("-1 GB", "memory")],
)
def test_memory_is_a_size_in_words(memory: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(PrivatePart, {"memory": memory}, "party")
    assert in_bytes(validated(PrivatePart, {"memory": "64 MB"}, "party").memory) == 64 * 2**20


def test_rows_to_serve_are_read_as_the_table_of_the_training() -> None:
    """Of another format, or with settings of their own, they are read by these; an absent label has no format."""
    table = {
        "path": "bank.csv",
        "delimiter": ";",
        "formats": {"since": {"date": "%d.%m.%Y"}, "default": {"boolean": ["ja", "nein"]}},
    }

    def served(rows: Any) -> TableConfig:
        part = {"table": table, "id": "id", "label": "default", "serve": {"table": rows}}
        found = validated(PrivateFile, part, "bank.yaml").served.table
        assert found is not None
        return found

    alike = served("june.csv")
    assert (alike.path.name, alike.delimiter, [*alike.formats]) == ("june.csv", ";", ["since"])
    for name in ("bank.2026-11.csv", "june.CSV.gz"):
        assert (served(name).delimiter, [*served(name).formats]) == (";", ["since"])
    assert served("june.parquet").model_fields_set == {"path"}
    assert served({"path": "june.csv", "decimal": ","}).delimiter is None
    assert served(None) == validated(PrivateFile, {"table": table, "id": "id"}, "bank.yaml").table
