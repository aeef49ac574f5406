"""Quantiles of numeric columns: codes against pandas, missing and unseen values, public ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlayer.config import FeaturesConfig, validated
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.data.quantiles import QuantileEncoder
from cutlayer.errors import ConfigError, DataError
from tests.data.fitted import fitted

WHERE = "party telco"
TABLE = pa.table({"age": [20.0, None, 90.0, 40.0], "plan": ["a", "b", "a", None]})


def features(**settings: Any) -> FeaturesConfig:
    return validated(FeaturesConfig, settings, "features")


def test_codes_are_those_of_pandas() -> None:
    values = np.random.default_rng(2).normal(size=999) ** 3
    encoder = QuantileEncoder.fit("x", values, 7)
    expected = pd.cut(values, [-np.inf, *encoder.edges, np.inf], right=False, labels=False) + 2
    assert np.array_equal(encoder.apply(values), expected)
    assert set(np.bincount(encoder.apply(values))[2:] // 10) == {14}  # of 999 rows each of 7 intervals has 142 or 143
    assert encoder.cardinality == 9


def test_missing_and_unseen_values_have_codes() -> None:
    encoder = QuantileEncoder.fit("x", np.array([1.0, 2.0, 3.0, np.nan]), 3)
    assert encoder.apply(np.array([np.nan, -1e9, 1.0, 2.0, 2.5, 3.0, 1e9])).tolist() == [0, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("values", "count", "edges"),
    [
        ([5.0] * 9, 4, ()),
        ([0.0] * 8 + [1.0, 2.0], 4, (1.0, 2.0)),
        ([0.0] * 6 + [1.0, 2.0, 3.0, 4.0], 4, (1.0, 2.0, 3.0)),
        ([-1.0, -2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0], 5, (-1.0, 0.0, 1.0)),
        ([1.0, 2.0], 1, ()),
        ([np.nan], 3, ()),
    ],
)
def test_equal_edges_count_once_and_no_interval_is_empty(
    values: list[float], count: int, edges: tuple[float, ...]
) -> None:
    encoder = QuantileEncoder.fit("x", np.array(values), count)
    assert encoder.edges == edges
    present = [value for value in values if value == value]
    assert set(encoder.apply(np.array(present)).tolist()) == set(range(2, encoder.cardinality)) or not present


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.0, 1.0, *np.arange(2, 9), np.nan]), max_size=80), st.integers(1, 12))
def test_a_frequent_value_is_an_interval_of_its_own(values: list[float], count: int) -> None:
    """No more intervals than asked for, none empty, and no other value with one of two shares or more."""
    encoder = QuantileEncoder.fit("x", np.array(values, dtype=np.float64), count)
    present = np.array([value for value in values if value == value])
    assert len(encoder.edges) < count
    assert len(np.unique(encoder.apply(present))) == len(encoder.edges) + bool(len(present))
    different, counts = np.unique(present, return_counts=True)
    codes = encoder.apply(different)
    for code in codes[(counts * count >= 2 * len(present)) & (count > 1)]:
        assert (codes == code).sum() == 1


def test_a_number_becomes_a_number_and_a_category() -> None:
    encoder = fitted(TABLE, features(numbers={"quantiles": 2}), WHERE)
    assert encoder.names == ("age", "plan")
    assert encoder.columns.category_names == ("age (quantile)", "plan")
    assert encoder.columns.number_names == ("age",)
    encoded = Encoder.from_json(encoder.to_json()).transform(TABLE, WHERE)
    assert encoded.codes[:, 0].tolist() == [2, 0, 3, 3]
    assert fitted(TABLE, features(), WHERE).columns.category_names == ("plan",)


def test_one_quantile_flags_missing_numbers() -> None:
    encoded = fitted(TABLE, features(numbers={"quantiles": 1}), WHERE).transform(TABLE, WHERE)
    assert encoded.codes[:, 0].tolist() == [2, 0, 2, 2]


def test_a_public_range_has_intervals_of_equal_width_and_sees_no_row() -> None:
    stated = features(numbers={"quantiles": 4}, ranges={"age": [0, 80]})
    encoder = fitted(TABLE, stated, WHERE)
    assert encoder.encoders[:2] == fitted(TABLE.slice(0, 1), stated, WHERE).encoders[:2]
    assert encoder.transform(TABLE, WHERE).codes[:, 0].tolist() == [3, 0, 5, 4]


def test_a_table_of_an_earlier_encoder_is_encoded_alike() -> None:
    encoder = fitted(TABLE, features(numbers={"quantiles": 2}), WHERE)
    store = PartyTable("telco", TABLE, encoder=encoder).encode_all()
    assert store.codes[:, 0].tolist() == [2, 0, 3, 3]


def test_bad_values_are_refused() -> None:
    for count in (-1, 1001):
        with pytest.raises(ConfigError, match=r"numbers\.quantiles"):
            features(numbers={"quantiles": count})
    with pytest.raises(DataError, match="infinity"):
        fitted(pa.table({"age": [1.0, np.inf]}), features(numbers={"quantiles": 2}), WHERE)
