"""The share of the work that attacks may take is a number of steps, by the job alone."""

from __future__ import annotations

from typing import Any

import pytest

from cutlayer.config.sampled_rows import MIN_STEPS, sampled_rows
from cutlayer.errors import ConfigError
from tests.parties.runs import make_job

LINEAR = {"kind": "linear", "width": 3}


@pytest.mark.parametrize(
    ("audit", "steps", "batch_size", "expected"),
    [
        ({}, 29, 14, MIN_STEPS * 14),  # small batches: as few as a leak can be measured on
        ({}, 2000, 16, 152 * 16),
        ({}, 782, 256, 8192),
        ({}, 63, 256, 9 * 256),
        ({"rows": 500}, 29, 14, 500),
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


def test_what_is_sent_once_is_recorded_whole_up_to_the_bound() -> None:
    job = make_job(audit={}, release="once", bottom={"bank": {"kind": "auto"}, "telco": LINEAR}, top={"kind": "auto"})
    assert sampled_rows(job, job.active, 38, 64) >= 38 * 64
    assert sampled_rows(job, job.active, 40, 512) == 8192


@pytest.mark.parametrize("audit", [{"rows": 63}, {"rows": 0.5}, {"rows": 100.5}, {"followed": 0.1}])
def test_neither_a_share_nor_a_number_of_rows_is_refused(audit: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"audit\.{next(iter(audit))}"):
        make_job(audit=audit)
