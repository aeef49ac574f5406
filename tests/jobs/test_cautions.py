"""What `check` warns of besides columns."""

from __future__ import annotations

from typing import Any

import pytest

from cutlayer.config import Job
from cutlayer.data.profile import ColumnProfile
from cutlayer.jobs.cautions import cautions_of
from cutlayer.training.run_ledger import ledger_of
from tests.parties.runs import ACTIVE, PASSIVES, make_job, raw_job


def label(distinct: int) -> ColumnProfile:
    return ColumnProfile(
        party=ACTIVE, name="y", role="label", kind="category", type="int64", distinct=distinct, missing=0
    )


def cautions(job: Job, common: int = 4000, training: int = 3200, distinct: int = 2) -> list[str]:
    rows = {ACTIVE: 6000, PASSIVES[0]: 4200}
    return list(cautions_of(job, rows, common, training, (label(distinct),), ledger_of(job)))


def guarded(**privacy: Any) -> Job:
    raw = raw_job()
    raw["parties"][ACTIVE]["privacy"] = privacy
    return Job.model_validate(raw)


def test_a_sound_job_has_none() -> None:
    assert not cautions(make_job())
    assert not cautions(guarded(label_dp={"eps": 1.0}))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (cautions(make_job(), common=30), "only 30 of the 4,200 rows"),
        (cautions(make_job("regression")), "write task: binary"),
        (cautions(make_job(), training=400), "400 training rows are few"),
        (cautions(guarded(label_dp={"eps": 100.0})), "epsilon of 100 hardly limits"),
    ],
)
def test_what_is_odd_is_said_once(found: list[str], words: str) -> None:
    (line,) = found
    assert words in line


def test_a_regression_of_many_values_is_one() -> None:
    assert not cautions(make_job("regression"), distinct=900)


def test_a_delta_above_one_in_all_rows() -> None:
    raw = raw_job()
    noise = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 20.0}, "budget": {"epsilon": 9.0, "delta": 1e-3}}
    raw["parties"][PASSIVES[0]]["privacy"] = noise
    job = Job.model_validate(raw)
    assert any("delta 0.001 is above 1 / 3,200" in line for line in cautions(job))
    assert not any("delta" in line for line in cautions(job, training=900))
