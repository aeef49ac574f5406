"""Rows that are encoded as an earlier training: what is hardly the same is said by column; single values are not."""

from __future__ import annotations

import datetime
import json
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import FeaturesConfig, validated
from cutlayer.data.arrivals import ArrivalWarning
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable

ROWS = np.arange(40)
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(int(day)) for day in ROWS]
TRAINED = {
    "plan": list("abcd") * 10,
    "usage": (ROWS % 10).astype(float).tolist(),
    "opened_on": DAYS,
    "active": [True, False] * 20,
    "empty": pa.nulls(40, pa.string()),
    "none": pa.nulls(40, pa.float64()),
}


def encoder_of(**features: Any) -> Encoder:
    table = PartyTable("telco", pa.table(TRAINED), features=validated(FeaturesConfig, features, ""))
    encoder = table.prepare(ROWS, ROWS).encoder
    assert encoder is not None
    return Encoder.from_json(encoder.to_json())


ENCODER = encoder_of()


def notes(encoder: Encoder = ENCODER, *, prepared: bool = False, **changes: Any) -> list[str]:
    """What is said of 20 rows of the training with other columns."""
    rows = pa.table({**pa.table(TRAINED).slice(0, 20).to_pydict(), **changes}, schema=None)
    table = PartyTable("telco", rows, encoder=encoder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ArrivalWarning)
        table.prepare(np.arange(20), ROWS[:0]) if prepared else table.encode_all()
    assert [str(warning.message) for warning in caught] == [*table.arrivals]
    return [note.removeprefix("party telco: column ") for note in table.arrivals]


EPOCH = pa.array([datetime.datetime(1970, 1, 1) + datetime.timedelta(int(day)) for day in ROWS[:20]])
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the rows of the training": ({}, []),
    "all of other words": ({"plan": ["PLUS"] * 20}, ["'plan': 20 of 20 values were not seen in training"]),
    "codes": ({"plan": [7] * 20}, ["'plan': 20 of 20 values were not seen in training; it was text there, and is a"]),
    "a fifth": ({"plan": ["new"] * 5 + ["a"] * 15}, ["'plan': 5 of 20 values were not seen in training"]),
    "below a fifth": ({"plan": ["new"] * 4 + ["a"] * 16}, []),
    "a few of few": ({"plan": ["new"] * 4 + [None] * 16}, ["'plan': 4 of 4 values were not seen"]),
    "a single one": ({"plan": ["new"] + [None] * 19}, []),
    "no category": ({"plan": [None] * 20}, ["'plan': no value in 20 rows, and values in training"]),
    "no number": ({"usage": pa.nulls(20, pa.float64())}, ["'usage': no value in 20 rows, and values in training"]),
    "a date as a number": ({"opened_on": [1_600_000_000] * 20}, ["'opened_on': a number in these rows, and a date in"]),
    "a number as a date": ({"usage": EPOCH}, ["'usage': a date in these rows, and a number in training"]),
    "a truth value as a number": ({"active": [1, 0] * 10}, ["'active': 20 of 20 values were .* a truth value there"]),
    "far away": ({"usage": [1000.0] * 20}, ["'usage': all 20 values, 1000 to 1000, are far outside of the 0 to 9 of"]),
    "some far away": ({"usage": [1000.0] * 19 + [9.0]}, []),
    "just above": ({"usage": [12.0] * 20}, []),
    "a value where there was none": ({"empty": ["x"] * 20}, ["'empty': 20 of 20 values were not seen in training"]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("prepared", [False, True], ids=["all rows", "some rows"])
def test_what_is_hardly_the_same_is_said(case: str, prepared: bool) -> None:
    changes, wanted = CASES[case]
    got = notes(prepared=prepared, **changes)
    assert len(got) == len(wanted), got
    for note, words in zip(got, wanted, strict=True):
        assert pa.compute.match_substring_regex(pa.array([note]), f"^{words}")[0].as_py(), note


def test_rare_and_stated_categories_are_said_as_what_they_are() -> None:
    rare = encoder_of(categories={"min_count": 10})
    assert notes(rare, plan=["e"] * 20) == ["'plan': 20 of 20 values were in fewer than 10 training rows"]
    assert notes(rare, plan=["e"] * 19 + ["a"]) == []
    assert notes(encoder_of(categories={"min_count": 11})) == []
    stated = encoder_of(vocabulary={"plan": ["a", "b", "c", "d"]}, ranges={"usage": [0, 9]})
    assert notes(stated, plan=["e"] * 20) == ["'plan': 20 of 20 values are not in its stated vocabulary"]
    assert notes(stated, usage=[99.0] * 20)[0].startswith(
        "'usage': all 20 values, 99 to 99, are far outside of the 0 to"
    )


def test_hashed_categories_are_all_known() -> None:
    assert notes(encoder_of(categories={"max_codes": 4}), plan=["e"] * 20) == []


def test_an_encoder_of_an_earlier_version_knows_categories_alone() -> None:
    plain = json.loads(ENCODER.to_json())
    del plain["types"]
    for encoder in plain["encoders"]:
        encoder.pop("seen", None)
        encoder.pop("min_count", None)
    earlier = Encoder.from_json(json.dumps(plain))
    assert notes(earlier, opened_on=[18_300] * 20, usage=[1e9] * 20) == []
    assert notes(earlier, plan=["e"] * 20) == ["'plan': 20 of 20 values were not seen in training"]


def test_a_training_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PartyTable("telco", pa.table(TRAINED)).prepare(ROWS, ROWS[:1]).store is not None
