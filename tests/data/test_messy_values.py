"""Numbers with decimal commas, ids that a program wrote as floats, rows without a label, infinite numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import FeaturesConfig, IdConfig, TableConfig, validated
from cutlayer.data.ids import canonical_ids
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import open_source
from cutlayer.errors import ConfigError, DataError

LINES = ["id;price;share;code;note", "1;1.234,50;0,5;A1;1,5 kg", "2;-12,00;1,25;B2;2", "3;1.000.000;;C3;x"]


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "german.csv"
    path.write_text("\n".join(LINES) + "\n")
    return {"path": path, "delimiter": ";", "decimal": ",", "thousands": "."}


def test_numbers_are_read_as_the_file_writes_them(table: dict[str, Any]) -> None:
    read = open_source(TableConfig(**table), "bank").read(["price", "share", "code", "note", "id"])
    assert read["price"].to_pylist() == [1234.5, -12.0, 1e6]
    assert read["share"].to_pylist() == [0.5, 1.25, None]
    assert read["code"].to_pylist() == ["A1", "B2", "C3"]
    assert read["note"].to_pylist() == ["1,5 kg", "2", "x"]  # no column of numbers, and left as it is
    assert read["id"].to_pylist() == [1, 2, 3]


def test_they_are_the_same_where_the_rows_are_read_in_batches(
    table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    features = FeaturesConfig(include=("price", "share", "code"))
    encoded = []
    for memory in (1 << 30, 1):
        rows = PartyTable("bank", TableConfig(**table), "id", features=features, memory=memory)
        encoded.append(rows.prepare(np.arange(3), np.arange(3)).store)
    assert encoded[0] is not None
    assert encoded[1] is not None
    assert encoded[0].numbers.tolist() == encoded[1].numbers.tolist()
    assert encoded[0].columns.number_names == encoded[1].columns.number_names == ("price", "share")


def test_without_the_setting_they_are_text(table: dict[str, Any]) -> None:
    read = open_source(TableConfig(path=table["path"], delimiter=";"), "bank").read(["share"])
    assert read["share"].to_pylist() == ["0,5", "1,25", None]


def test_one_character_for_both_is_refused() -> None:
    with pytest.raises(ConfigError, match="different characters for decimal and thousands, got ',' for both"):
        validated(TableConfig, {"path": "a.csv", "decimal": ",", "thousands": ","}, "table")


def test_whole_numbers_are_one_id_however_they_were_written() -> None:
    texts = canonical_ids(pa.array(["7", "7.0", "007", "+7", " 7. ", "-3.00", "0", "000.0"]), "ids", "integer")
    assert texts.to_pylist() == ["7", "7", "7", "7", "7", "-3", "0", "0"]
    assert canonical_ids(pa.array([7.0, 8.0]), "ids", "integer").to_pylist() == ["7", "8"]
    for wrong in ("7.5", "7a", "1e3", "-"):
        with pytest.raises(DataError, match=r"whole numbers, such as 7, 7\.0 or 007, got others in 1 rows"):
            canonical_ids(pa.array(["1", wrong]), "ids", "integer")


def labelled(labels: list[Any], **settings: Any) -> PartyTable:
    rows = pa.table({"id": pa.array(range(len(labels))), "x": pa.array([float(i) for i in range(len(labels))])})
    return PartyTable("bank", rows.append_column("y", pa.array(labels)), "id", label="y", **settings)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_rows_without_a_label_are_left_out_on_request(missing: Any) -> None:
    labels = [1.0, missing, 0.0, 1.0, missing, 0.0]
    table = labelled(labels, drop_unlabelled=True)
    assert table.rows == 4
    assert table.ids(np.arange(4)).to_pylist() == [0, 2, 3, 5]
    prepared = table.prepare(np.array([3, 0, 1, 2]), np.arange(4))
    assert prepared.labels is not None
    assert prepared.labels.values.tolist() == [0, 1, 0, 1]
    with pytest.raises(DataError, match="a label in every row"):
        labelled(labels).prepare(np.arange(6), np.arange(6))
    with pytest.raises(DataError, match="a label in some row, got none"):
        labelled([None, None], drop_unlabelled=True)


def test_a_repeated_id_and_a_missing_label_together() -> None:
    rows = pa.table({"id": [1, 1, 2, 3, 3], "x": [1.0, 2.0, 3.0, 4.0, 5.0], "y": [None, 1, 0, 1, 0]})
    ids = IdConfig(column="id", duplicates="first")
    table = PartyTable("bank", rows, ids, label="y", drop_unlabelled=True)
    assert table.ids(np.arange(2)).to_pylist() == [2, 3]
    assert table.column("y", np.arange(2)).to_pylist() == [0, 1]


def test_infinite_numbers_are_missing_on_request() -> None:
    rows = pa.table({"id": [1, 2, 3, 4], "x": [1.0, float("inf"), 3.0, float("-inf")]})
    with pytest.raises(DataError, match=r"infinity in .*set numbers.infinite: missing"):
        PartyTable("telco", rows, "id").prepare(np.arange(4), np.arange(4))
    features = validated(FeaturesConfig, {"numbers": {"infinite": "missing", "quantiles": 1}}, "features")
    prepared = PartyTable("telco", rows, "id", features=features).prepare(np.arange(4), np.arange(3))
    assert prepared.store is not None
    assert prepared.encoder is not None
    plain = pa.table({"id": [1, 2, 3, 4], "x": [1.0, None, 3.0, None]})
    other = PartyTable("telco", plain, "id", features=features).prepare(np.arange(4), np.arange(3))
    assert other.store is not None
    assert prepared.store.numbers.tolist() == other.store.numbers.tolist()
    assert prepared.store.codes.tolist() == other.store.codes.tolist()
    # New rows are taken as those of the training were.
    again = PartyTable("telco", rows, "id", encoder=prepared.encoder).encode_all()
    assert again.codes.tolist() == prepared.store.codes.tolist()
