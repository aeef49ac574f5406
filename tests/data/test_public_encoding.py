"""Columns encoded by stated ranges and vocabularies: nothing is fitted on rows, and a row moves only its own codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.config import FeaturesConfig, TableConfig, validated
from cutlayer.data.encoded import Encoded
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError, DataError
from tests.data.fitted import fitted

WHERE = "party telco"
STATED = {"ranges": {"age": [0, 120]}, "vocabulary": {"plan": ["pro", "basic"]}}
TABLE = pa.table({"age": [20.0, 40.0, 90.0], "plan": ["basic", "pro", "basic"]})
OTHER = pa.table({"age": [20.0, 40.0, -1e9], "plan": ["basic", "pro", "other"]})


def features(**settings: Any) -> FeaturesConfig:
    return validated(FeaturesConfig, settings, "features")


def encoded(table: pa.Table, fitted_on: pa.Table | None = None, **settings: Any) -> Encoded:
    encoder = fitted(fitted_on or table, features(**settings), WHERE)
    return Encoder.from_json(encoder.to_json()).transform(table, WHERE)


def test_a_replaced_row_moves_no_other_row() -> None:
    """With a fitted encoding it does: the attack that the condition in the ledger is about."""
    for stated, moved in ((STATED, False), ({}, True)):
        first, second = encoded(TABLE, **stated), encoded(OTHER, **stated)
        assert np.array_equal(first.numbers[:2], second.numbers[:2]) != moved
        assert np.array_equal(first.codes[:2], second.codes[:2]) or moved


def test_unseen_rows_change_nothing_of_the_encoder() -> None:
    assert fitted(TABLE, features(**STATED), WHERE) == fitted(OTHER, features(**STATED), WHERE)
    assert fitted(TABLE, features(), WHERE) != fitted(OTHER, features(), WHERE)


def test_values_outside_are_clipped_and_unknown() -> None:
    found = encoded(OTHER, **STATED, numbers={"scale": "minmax"})
    np.testing.assert_allclose(found.numbers[:, 0], [1 / 6, 1 / 3, 0.0], rtol=1e-6)
    assert found.codes[:, 0].tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"scale": "standard"}, [-(3**0.5), 0.0, 3**0.5]),
        ({"scale": "minmax"}, [0.0, 0.5, 1.0]),
        ({"scale": "robust"}, [-(0.9**0.5), 0.0, 0.9**0.5]),
        ({"scale": "none"}, [0.0, 60.0, 120.0]),
        ({"scale": "minmax", "transform": "log1p"}, [0.0, np.log1p(60) / np.log1p(120), 1.0]),
    ],
)
def test_scales_of_a_range(numbers: dict[str, str], expected: list[float]) -> None:
    table = pa.table({"age": [-5.0, 60.0, 500.0]})
    found = encoded(table, ranges={"age": [0, 120]}, numbers=numbers).numbers[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("missing", "expected"), [("mean", 0.5), ("median", 0.5), ("zero", 0.0)])
def test_a_missing_number_becomes_a_value_of_the_range(missing: str, expected: float) -> None:
    table = pa.table({"age": [None, 118.0, 119.0]})
    numbers = {"scale": "minmax", "missing": missing}
    assert encoded(table, ranges={"age": [0, 120]}, numbers=numbers).numbers[0, 0] == pytest.approx(expected)
    assert encoded(table, ranges={"age": [100, 120]}, numbers=numbers).numbers[0, 0] == pytest.approx(expected)


def test_missing_values_are_refused_where_they_are_to_be() -> None:
    table = pa.table({"age": [None, 1.0], "plan": [None, "pro"]})
    with pytest.raises(DataError, match=r"numbers\.missing"):
        encoded(table, ranges={"age": [0, 1]}, include=["age"], numbers={"missing": "error"})
    with pytest.raises(DataError, match=r"categories\.missing"):
        encoded(table, vocabulary={"plan": ["pro"]}, include=["plan"], categories={"missing": "error"})


def test_a_vocabulary_makes_a_category_of_any_type() -> None:
    whole = pa.table({"code": [3, 1, 7], "left": [True, False, None]})
    found = encoded(whole, vocabulary={"code": [1, 3], "left": [False, True]})
    assert found.codes.tolist() == [[3, 3], [2, 2], [1, 0]]


def test_in_a_csv_file_its_column_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,shop\n1,007\n2,7\n")
    table = PartyTable(
        "telco", TableConfig(path=tmp_path / "t.csv"), "id", features=features(vocabulary={"shop": ["007", "008"]})
    )
    prepared = table.prepare(np.arange(2), np.arange(2))
    assert prepared.store is not None
    assert prepared.store.gather(torch.arange(2))[0].tolist() == [[2], [1]]


def test_names_may_be_ranges_of_columns() -> None:
    stated = features(include=["I1..I3"], ranges={"I1..I3": [0, 1]})
    assert list(stated.ranges) == ["I1", "I2", "I3"]
    assert stated.public_encoding


@pytest.mark.parametrize(
    ("settings", "public"),
    [
        ({}, False),
        (STATED, False),
        ({"include": "none"}, True),
        ({**STATED, "include": ["age", "plan"]}, True),
        ({**STATED, "include": ["age", "plan", "town"]}, False),
        ({**STATED, "include": ["age", "plan", "town"], "exclude": ["town"]}, True),
    ],
)
def test_an_encoding_is_public_if_every_named_column_is_stated(settings: dict[str, Any], public: bool) -> None:
    assert features(**settings).public_encoding == public


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ranges": {"age": [1, 1]}}, "low < high"),
        ({"ranges": {"age": [2, 1]}}, "low < high"),
        ({"ranges": {"age": [0, float("inf")]}}, "finite"),
        ({"ranges": {"age": [-1.7e308, 1.7e308]}}, "finite"),
        ({"ranges": {"age": [1]}}, "ranges.age"),
        ({"vocabulary": {"plan": []}}, "a list of 1 or more"),
        ({"vocabulary": {"plan": ["a", "a"]}}, "once"),
        ({"vocabulary": {"plan": [1, "1"]}}, "once"),
        ({"vocabulary": {"plan": ["a", "b"]}, "categories": {"max_codes": 3}}, "max_codes"),
        ({"ranges": {"age": [0, 1]}, "categorical": ["age"]}, "numeric columns alone"),
        ({"ranges": {"age": [0, 1]}, "vocabulary": {"age": ["0"]}}, "numeric columns alone"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        features(**settings)


def test_a_column_that_is_not_there_or_not_numeric_is_refused() -> None:
    with pytest.raises(DataError, match="ages"):
        encoded(TABLE, ranges={"ages": [0, 1]})
    with pytest.raises(DataError, match="a range for numbers, in column 'plan'"):
        encoded(TABLE, ranges={"plan": [0, 1]})
