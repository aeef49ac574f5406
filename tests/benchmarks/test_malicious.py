"""The benchmark of malicious parties: its jobs, and how it counts the steps until an alarm."""

from __future__ import annotations

import pytest

from benchmarks import malicious
from cutlayer.config.guard import Alarm
from cutlayer.jobs.check import check_job


@pytest.mark.parametrize("privacy", malicious.OF_LABELS.values(), ids=malicious.OF_LABELS)
def test_jobs_of_adult_are_guarded_and_keep_the_last_epoch(privacy: dict[str, object]) -> None:
    job = malicious._job(malicious.ADULT, 1, privacy=privacy, attacks=malicious.READERS)
    check_job(job)
    assert all(party.guard is not None and party.guard.on_alarm == "warn" for party in job.parties.values())
    assert not job.keeps_best
    assert job.bottom_of("census_office")["hidden"] == [64, malicious.WIDTH]


@pytest.mark.parametrize("victims", malicious.OF_FEATURES.values(), ids=malicious.OF_FEATURES)
def test_victims_keep_their_own_protections(victims: dict[str, object]) -> None:
    job = malicious._job(malicious.ADULT, 1, victims=victims)
    check_job(job)
    assert all(job.parties[name].protections.keys() == victims.keys() for name in job.passives)


def test_halves_of_digits_state_their_classes() -> None:
    job = malicious._job(malicious.HALVES, 1)
    check_job(job)
    assert {party.guard.classes for party in job.parties.values() if party.guard is not None} == {10}


def test_steps_until_an_alarm_count_whole_epochs() -> None:
    alarms = [Alarm("telco", "bank", 2, 3, ""), Alarm("bank", "telco", 0, 0, "")]
    outcome = malicious.Outcome(0.9, alarms, 10, None, {}, {})
    assert outcome.steps_until("telco", "bank") == 24
    assert outcome.steps_until("bank", "telco") == 1
    assert outcome.steps_until("shop", "bank") is None
