"""The share of the work that attacks may take is a number of steps, and of followed rows, by the job alone."""

from __future__ import annotations

from typing import Any

import pytest

from cutlayer.config import Job
from cutlayer.config.sampled_rows import MAX_FOLLOWED, MIN_FOLLOWED, MIN_STEPS, followed_rows, sampled_rows
from cutlayer.errors import ConfigError
from tests.parties.runs import make_job


@pytest.mark.parametrize(
    ("audit", "steps", "batch_size", "expected"),
    [
        ({}, 29, 14, MIN_STEPS * 14),  # small batches: as few as a leak can be measured on
        ({}, 2000, 16, 152 * 16),
        ({"live": 0.2}, 2000, 16, 304 * 16),
        ({"live": 0.5}, 782, 256, 8192),
        ({}, 63, 256, 9 * 256),
        ({"rows": 500}, 29, 14, 500),
        ({"rows": 500, "live": 0.9}, 29, 14, 500),
    ],
)
def test_a_share_is_of_estimated_work_and_a_number_is_as_it_is(
    audit: dict[str, Any], steps: int, batch_size: int, expected: int
) -> None:
    job = make_job(audit=audit)
    assert sampled_rows(job, job.active, steps, batch_size) == expected


def test_several_classes_cost_more_and_a_party_that_attacks_features_records_all() -> None:
    job = make_job(audit={})
    several = job.model_copy(update={"task": "multiclass"})
    assert 2 * sampled_rows(several, job.active, 2000, 8) <= sampled_rows(job, job.active, 2000, 8)
    telco = job.parties["telco"]
    named = telco.model_copy(update={"audit": telco.audit.model_copy(update={"attacks": ("decoder",)})})
    job = job.model_copy(update={"parties": {**job.parties, "telco": named}})
    assert sampled_rows(job, "telco", 29, 14) == 8192


@pytest.mark.parametrize("audit", [{"rows": 63}, {"rows": 0.5}, {"rows": 100.5}, {"live": 0}, {"live": 1}])
def test_neither_a_share_nor_a_number_of_rows_is_refused(audit: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"audit\.{next(iter(audit))}"):
        make_job(audit=audit)


def followed(steps: int, passives: int = 1, epochs: int = 10, **audit: Any) -> int:
    job: Job = make_job(passives=passives, epochs=epochs, audit={"followed": 0.1} | audit)
    return followed_rows(job, steps, 512)


def test_followed_rows_grow_with_the_training_and_are_shared_by_its_attackers() -> None:
    assert followed(8) == MIN_FOLLOWED
    assert MIN_FOLLOWED < followed(150) < followed(200) < followed(20_000) == MAX_FOLLOWED
    assert followed(200, passives=3) < followed(200), "four attackers: each partner, and all of them together"
    assert followed(400, passives=3) < followed(400, passives=3, collusion=False)
    assert followed(200, followed=0.07) < followed(200)


def test_a_number_of_followed_rows_is_as_it_is_and_a_gate_has_as_many_as_a_share_can_give() -> None:
    assert followed(8, followed=300) == 300
    assert followed(8, fail_above={"label_auc": 0.9}) == MAX_FOLLOWED
    assert followed(8, followed=300, fail_above={"label_auc": 0.9}) == 300
