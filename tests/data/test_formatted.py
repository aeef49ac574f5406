"""Columns of text in a stated format, of any source, in memory or in batches."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from cutlayer.config import FeaturesConfig, TableConfig, validated
from cutlayer.data import typed_table
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import open_source
from cutlayer.errors import DataError

FORMATS = {
    "opened": {"date": "%d.%m.%Y"},
    "seen": {"date": "%Y-%m-%d %H:%M", "zone": "Europe/Berlin"},
    "sent": {"date": "%Y-%m-%dT%H:%M:%S%z"},
    "income": {"number": "$25,050.13"},
    "share": {"number": "1.234,5 %"},
    "active": {"boolean": ["yes", "no"]},
}
ROWS: dict[str, list[Any]] = {
    "id": ["a", "b", "c"],
    "opened": ["21.04.2023", "1.2.2024", None],
    "seen": ["2023-07-01 12:00", "2023-01-01 12:00", "NA"],
    "sent": ["2023-07-01T12:00:00Z", "2023-07-01T12:00:00+02:00", " "],
    "income": ["$1,025,050.13", "-$3.5", "?"],
    "share": ["16,1 %", "1.016 %", None],
    "active": ["Yes", " no ", None],
}


def micros(*time: int) -> datetime:
    return datetime(*time, tzinfo=UTC).replace(tzinfo=None)  # type: ignore[misc, arg-type]


READ = {
    "opened": [micros(2023, 4, 21), micros(2024, 2, 1), None],
    "seen": [micros(2023, 7, 1, 10), micros(2023, 1, 1, 11), None],
    "sent": [micros(2023, 7, 1, 12), micros(2023, 7, 1, 10), None],
    "income": [1025050.13, -3.5, None],
    "share": [16.1, 1016.0, None],
    "active": [True, False, None],
}


def config(folder: Path, kind: str, rows: dict[str, list[Any]] = ROWS, formats: Any = FORMATS) -> TableConfig:
    path = folder / f"t.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.table(rows), path)
    else:
        lines = [[*rows], *map(list, zip(*rows.values(), strict=True))]
        path.write_text("\n".join(";".join(map(str, (v or "" for v in line))) for line in lines))
    return validated(TableConfig, {"path": path, "delimiter": ";", "formats": formats}, "table")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_dates_amounts_and_words_of_any_source(
    tmp_path: Path, kind: str, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed_table, "CHUNK_ROWS", 2)
    table = typed_table.TypedTable(open_source(config(tmp_path, kind), "bank"), [*FORMATS], (), memory)
    assert pa.concat_tables(table.batches()).to_pydict() == READ
    assert [str(kind) for kind in table.schema.types] == ["timestamp[us]"] * 3 + ["double"] * 2 + ["bool"]
    coded = pa.concat_tables(table.batches(coded=["opened", "active"]))
    assert coded.to_pydict() == READ


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_of_a_later_table_are_read_by_its_formats_as_in_training(tmp_path: Path, kind: str) -> None:
    """Words of truth are a category, and categories stay text: read as text, `Yes` is none of `true` and `false`."""
    rows, at = np.arange(3), torch.arange(3)
    trained = PartyTable("bank", config(tmp_path, kind), "id").prepare(rows, rows)
    later = PartyTable("bank", config(tmp_path, kind), "id", encoder=trained.encoder)
    for first, second in zip(trained.store.gather(at), later.encode_all().gather(at), strict=True):
        assert first.equal(second)
    assert not later.arrivals


def test_ids_and_categories_stay_as_they_are_written(tmp_path: Path) -> None:
    features = FeaturesConfig(categorical=("opened",))
    table = PartyTable("bank", config(tmp_path, "csv"), "id", features=features)
    assert table._table.schema.field("opened").type == pa.string()
    assert table._table.schema.field("income").type == pa.float64()


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("opened", "31.02.2023"),
        ("opened", "21.04.23"),  # would be the year 23
        ("opened", "2023-04-21"),
        ("seen", "2023-07-01"),
        ("income", "77"),
        ("income", "$77,05"),
        ("income", "-$-3"),
        ("share", "16.1 %"),
        ("active", "maybe"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_without_the_value(tmp_path: Path, column: str, text: str) -> None:
    rows = {**ROWS, column: [ROWS[column][0], text, None]}
    source = open_source(config(tmp_path, "csv", rows), "bank")
    with pytest.raises(
        DataError, match=rf"in column '{column}', got another text in 1 .* row 1 \(.*{column}"
    ) as caught:
        source.read([column])
    assert text not in str(caught.value).replace(str(tmp_path), "")  # whose number may hold it


def test_a_format_of_no_column_or_of_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'opend'; did you mean 'opened'"):
        open_source(config(tmp_path, "csv", formats={"opend": {"date": "%d.%m.%Y"}}), "bank")
    rows: dict[str, list[Any]] = {"id": ["a"], "x": [1]}
    source = open_source(config(tmp_path, "parquet", rows, {"x": {"date": "%Y%m%d"}}), "bank")
    with pytest.raises(
        DataError, match=r"text in column .x., which has a format, got type int64; remove table\.formats\.x"
    ):
        source.read(["x"])
