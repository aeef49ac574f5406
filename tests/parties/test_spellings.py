"""The attack of a label owner that chooses ids: a row whose id is written otherwise must not be drawn again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.channel import Kind, Message
from cutlayer.channel.parcel import ParcelWriter
from cutlayer.config import IdConfig, LimitsConfig
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import DataError
from cutlayer.kernels.noise.randomized_response import flip_probability
from cutlayer.serving.between import PredictionSide
from cutlayer.serving.by_file import release_prediction, with_agreed_rows
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.training.folder import RunFolder
from tests.parties.runs import ACTIVE
from tests.parties.test_grades import TELCO, graded, tables
from tests.training.test_all_runs import World

ROWS, MONTHS = 300, 6


def written(row: int, month: int) -> str:
    """A spelling of a number that no other month has."""
    zeros = "0" * (1 + month // 4)
    return (f"{zeros}{row}", f"+{zeros}{row}", f"{row}.{zeros}", f" {zeros}{row}.")[month % 4]


@pytest.mark.parametrize("rule", ["strip", "none"])
def test_a_row_under_many_spellings_is_one_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Any) -> None:
    """The mean of six draws of an epsilon of 1 is the grade; one draw is right of .73 of the rows.

    By `none` each spelling is a row, as the party states: there the attack succeeds, which shows that it is one. Of
    three draws the most frequent one is right of .82 of the rows, so that two halves agree on .71 (standard error
    .026); without the attack on half (.029).
    """
    job, given = graded(epsilon=1.0), tables(rows=600)
    job = job.with_parties({name: {"id": IdConfig(column="id", normalise=rule)} for name in (ACTIVE, TELCO)})
    given = {name: each.set_column(0, "id", each["id"].cast(pa.string())) for name, each in given.items()}
    folder, sent = RunFolder(World(tmp_path).run(job, given)), list[Message]()
    monkeypatch.setattr(ParcelWriter, "add", lambda _, message: sent.append(message))
    rows, months = given[TELCO].slice(0, ROWS), MONTHS if rule == "none" else 8
    draws = np.zeros((months, ROWS))
    for month in range(months):
        ids = pa.array([written(int(row), month) for row in rows["id"].to_pylist()])
        side = PredictionSide.open(job, folder, TELCO, rows.set_column(0, "id", ids), LimitsConfig())
        serving, out = PredictionReleases(job, folder, TELCO, side.width, None), tmp_path / f"{month}"
        sent.clear()
        release_prediction(with_agreed_rows(side, None, alone=True), serving, out, None, None)
        order = intersect({TELCO: side.table.digests})[TELCO]
        draws[month, order] = np.concatenate(
            [each.tensors["embedding"][:, 0].numpy() for each in sent if each.kind is Kind.EVALUATION]
        )
    counted = serving._log.draws
    if rule == "strip":
        assert (draws == draws[0]).all()
        assert (counted.most, sum(map(len, counted._runs))) == (1, len(given[TELCO]))
        return
    halves, one = [draws[part::2].mean(axis=0) > 0.5 for part in (0, 1)], 1 - flip_probability(1.0, 2)
    assert (draws[1:] == draws[:-1]).mean() < one**2 + (1 - one) ** 2 + 0.06
    assert (halves[0] == halves[1]).mean() > 0.6  # what three draws read, three others do: the grade
    assert sum(map(len, counted._runs)) > MONTHS * ROWS


@pytest.mark.parametrize(
    ("first", "second", "rule"),
    [
        ({"id": ["007", "x"]}, {"id": ["7", "X "]}, "strip"),
        ({"id": ["a b", "c"]}, {"id": ["A B", "C"]}, "lower"),
        ({"id": ["\uff17", "x\u200b"]}, {"id": ["7", "\ufeffX"]}, "strip"),
        ({"id": ["+49 89 1", "z"]}, {"id": ["0049891", "Z"]}, "strip"),
        ({"id": ["1", "2"], "key": ["x", "y"]}, {"id": ["1.0", "02"], "key": ["X", "Y"]}, "strip"),
    ],
)
def test_ids_are_graded_by_what_they_are(first: Any, second: Any, rule: Any) -> None:
    columns = [[name] for name in first] if len(first) > 1 else "id"
    ids = [
        PartyTable(TELCO, pa.table({**each, "a": [1, 2]}), IdConfig(column=columns, normalise=rule))
        for each in (first, second)
    ]
    assert (ids[0].grade_digests(ids[0].digests) == ids[1].grade_digests(ids[1].digests)).all()
    assert (ids[0].grade_digests(ids[0].digests[::-1]) == ids[1].grade_digests(ids[1].digests)[::-1]).all()


def test_values_of_two_keys_are_no_one_id() -> None:
    keys = IdConfig(column=(("one",), ("two",)))
    table = PartyTable(TELCO, pa.table({"one": ["7", None], "two": ["x", "7"], "a": [1, 2]}), keys)
    ids = table.grade_digests(table.digests)
    assert not (ids[0] == ids[1]).all()


def test_numbers_of_several_parts_are_no_telephone_numbers() -> None:
    """House numbers, invoices and days without zeros: by their digits alone they would be taken for one row."""
    ids = ["1-12", "11-2", "2024-1-12", "2024-11-2", "10.1", "101", "a b", "ab", "(1) 1", "1/1"]
    table = PartyTable(TELCO, pa.table({"id": ids, "a": range(len(ids))}), "id")
    assert len(np.unique(table.grade_digests(table.digests), axis=0)) == len(ids)


def test_ids_that_differ_in_spelling_alone_are_refused() -> None:
    """In one table they would be one draw of two rows, or two of one."""
    rows = pa.table({"id": ["12", "007", "7.0", "7"], "a": [1, 2, 3, 4]})
    table = PartyTable(TELCO, rows, "id")
    with pytest.raises(DataError, match=r"in more than spelling, got '007' and '7\.0' and '7'; set id.normal"):
        table.grade_digests(table.digests[:1])
    exact = PartyTable(TELCO, rows, IdConfig(column="id", normalise="none"))
    ids = exact.grade_digests(exact.digests)
    assert (ids[:, :8] == exact.digests[:, :8]).all()  # by which they are drawn and counted
    assert len(np.unique(ids[1:, 8:], axis=0)) == 1  # by which jobs are joined
