"""The report says how the messages that attacks read were drawn."""

from __future__ import annotations

import torch

from cutlayer.audit.sample import sample_of
from cutlayer.channel.row_history import draw_followed
from cutlayer.channel.transcript import Sampling
from cutlayer.config.sampled_rows import sampled_rows
from tests.parties.runs import make_job


def test_the_sample_is_stated_as_it_is_drawn() -> None:
    job = make_job(batch_size=100, audit={"rows": 1000, "followed": 500})
    result = sample_of(job, 10_050)
    assert "10 of 101 batches, spread evenly over it, 9.95\u00a0% of the 10,050 training rows" in result
    assert "500 rows, 4.98\u00a0% of the 10,050 training rows" in result
    sampling = Sampling.of(101, 100, 1000, 2, 2**20)
    assert sum(sampling.takes(step) for step in range(101)) == 10
    assert len(draw_followed(torch.arange(10_050), 500, 7)) == 500


def test_the_share_of_the_work_says_how_many_of_how_many() -> None:
    """The numbers follow from the job alone: no clock, so that a report can be repeated."""
    job = make_job(batch_size=256, epochs=10, audit={})
    sampling = Sampling.of(63, 256, sampled_rows(job, job.active, 63, 256), 10, 2**30)
    result = sample_of(job, 16_000)
    assert f"{sampling.steps} of 63 batches" in result
    assert "8,192 rows" in result


def test_small_tables_are_recorded_whole() -> None:
    result = sample_of(make_job(batch_size=50, audit={}), 120)
    assert "3 of 3 batches, spread evenly over it, 100" in result
    assert "120 rows, 100" in result


def test_nothing_is_said_where_nothing_is_recorded() -> None:
    assert sample_of(make_job(audit={"every": "never", "attacks": []}), 120) == ""
