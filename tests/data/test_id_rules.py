"""Normal forms of ids, ids of several columns, repeated ids and stated numbers of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.config import Job, TableConfig, validated
from cutlayer.config.ids import IdConfig
from cutlayer.config.load import dump_job
from cutlayer.data.align import check_id_rules, intersect
from cutlayer.data.ids import canonical_ids, row_digests
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, ConfigError, DataError


def texts(values: list[str], rule: Any) -> list[str]:
    return canonical_ids(pa.array(values), "ids", rule).to_pylist()


@pytest.mark.parametrize(
    ("rule", "given", "wanted"),
    [
        ("strip", [" Ab ", "cafe\u0301"], ["Ab", "caf\u00e9"]),
        ("lower", [" Ab ", "CAFE\u0301", "ÄÖ"], ["ab", "caf\u00e9", "äö"]),
        ("none", [" Ab ", "cafe\u0301"], [" Ab ", "cafe\u0301"]),
        (
            "e164",
            ["+49 (89) 123-456", "0049 89 123456", "+49.89.123/456", "+4989123456", "+49\u201389\u00a0123456"],
            ["+4989123456"] * 5,
        ),
    ],
)
def test_normal_forms(rule: str, given: list[str], wanted: list[str]) -> None:
    assert texts(given, rule) == wanted
    assert texts(wanted, rule) == wanted, "a normal form is its own"


@pytest.mark.parametrize(
    "number", ["089 123456", "+0 89 123456", "+49 89 12345x", "+49", "+1234567890123456", "+٤٩٨٩١٢٣٤٥٦"]
)
def test_no_telephone_number(number: str) -> None:
    with pytest.raises(DataError, match="others in 1 rows, the first is row 1") as caught:
        texts(["+49 89 123456", number], "e164")
    assert "123456" not in str(caught.value).replace("such as +49 89 123456", "")


def test_the_digests_of_plain_columns_are_as_before() -> None:
    """Draws of labels hang on them."""
    table = PartyTable("bank", {"id": ["a ", "b"], "x": [1, 2]}, "id")
    assert (table.digests == row_digests(pa.array(["a", "b"]))).all()
    assert (table.id_kind, table.id_rule, table.stated_rows) == ("text", "strip", 2)


def test_an_id_of_several_columns() -> None:
    config = IdConfig(column=("name", "born"), normalise=("lower", "strip"))
    assert config.rule == "lower+strip"
    bank = PartyTable("bank", {"born": [1990, 1991, 19], "name": ["Ann", "Bob", "Ann90"], "x": [1, 2, 3]}, config)
    telco = PartyTable("telco", {"name": ["BOB ", "ann", "ann"], "born": ["1991", "1990", "1"], "y": [1, 2, 3]}, config)
    positions = intersect({"bank": bank.digests, "telco": telco.digests})
    assert sorted(zip(*(rows.tolist() for rows in positions.values()), strict=True)) == [(0, 1), (1, 0)]
    assert bank.id_texts().to_pylist()[0] == "ann\x1f1990"
    with pytest.raises(DataError, match="the unit separator in one"):
        PartyTable("bank", {"name": ["a\x1f1"], "born": [1], "x": [1]}, config)


def test_id_columns_are_no_features() -> None:
    data = {"name": ["a", "b"], "born": [1, 2], "x": [1.0, 2.0]}
    table = PartyTable("bank", data, IdConfig(column=("name", "born")))
    ready = table.prepare(np.arange(2), np.arange(2))
    assert ready.columns is not None
    assert ready.columns.inputs.numbers == 1


DATA = {"id": ["a", "b", "A", "c", "b"], "x": [0.0, 1.0, 2.0, 3.0, 4.0]}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"duplicates": "first"}, [0, 1, 2, 3]),
        ({"duplicates": "drop"}, [0, 2, 3]),
        ({"duplicates": "first", "normalise": "lower"}, [0, 1, 3]),
        ({"duplicates": "drop", "normalise": "lower"}, [3]),
    ],
)
def test_repeated_ids(settings: dict[str, Any], kept: list[int]) -> None:
    table = PartyTable("bank", DATA, IdConfig(column="id", **settings))
    assert table.rows == len(table.digests) == len(kept)
    ready = table.prepare(np.arange(len(kept)), np.arange(len(kept)))
    assert ready.store is not None
    order = ready.store.gather(torch.arange(len(kept)))[1][:, 0]
    assert order.argsort().tolist() == list(range(len(kept)))


def test_repeated_ids_are_refused_without_a_rule() -> None:
    with pytest.raises(DataError, match=r"'b' 2 times; one row per id: table\.aggregate .*, or set id\.duplicates"):
        PartyTable("bank", DATA, "id")
    with pytest.raises(DataError, match="an id that no other row has"):
        PartyTable("bank", {"id": ["a", "a"], "x": [1, 2]}, IdConfig(column="id", duplicates="drop"))


def test_a_file_is_read_again_with_the_same_rows(tmp_path: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,x\na,0\nb,1\nb,2\nc,3\n")
    table = PartyTable("bank", TableConfig(path=path), IdConfig(column="id", duplicates="drop"))
    first = table.prepare(np.arange(2), np.arange(2))
    again = table.prepare(np.arange(2), np.arange(2))
    rows = torch.arange(2)
    assert first.store is not None
    assert again.store is not None
    assert (first.store.gather(rows)[1] == again.store.gather(rows)[1]).all()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"column": ["a", "b"], "normalise": ["lower"]}, "one rule, or one for each of 2 columns"),
        ({"column": ["a", "a"]}, "every id column once"),
        ({"column": ["@row", "a"]}, "@row alone"),
        ({"column": "@row", "pad_to": 10}, "@row alone"),
        ({"column": []}, "a list of 1 or more"),
        ({"column": "a", "pad_to": 0}, "pad_to"),
        ({"column": "a", "normalise": "upper"}, "normalise"),
        ({"colum": "a"}, "did you mean 'column'"),
        (7, "text"),
    ],
)
def test_settings_that_make_no_sense(raw: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validated(Job, {"parties": {"a": {"role": "active", "id": raw}, "b": {"role": "passive"}}}, "")
    assert message in str(caught.value)
    assert "parties.a.id" in str(caught.value)


def test_a_job_is_written_back_as_it_was() -> None:
    ids = {"a": "customer", "b": {"column": "phone", "normalise": "e164"}}
    raw = {"parties": {name: {"role": "active" if name == "a" else "passive", "id": ids[name]} for name in ids}}
    job = validated(Job, raw, "")
    text = dump_job(job)
    assert "id: customer" in text
    assert "normalise: e164" in text
    assert "alignment" not in text
    assert job.digest() != job.model_copy(update={"alignment": "plain"}).digest()


def test_fewer_rows_cannot_be_stated() -> None:
    with pytest.raises(DataError, match=r"pad_to of at least the 2 rows of the table, got 1"):
        PartyTable("bank", {"id": [1, 2], "x": [1, 2]}, IdConfig(column="id", pad_to=1))


def test_one_rule_at_all_parties() -> None:
    check_id_rules({"bank": "e164", "telco": "e164"})
    with pytest.raises(AlignmentError, match="one normal form at all parties, got e164 at bank, strip at telco"):
        check_id_rules({"bank": "e164", "telco": "strip"})
