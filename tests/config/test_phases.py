"""The phases of every kind of job, at each party."""

from __future__ import annotations

from typing import Any

import pytest

from cutlayer.config import Job
from cutlayer.config.phases import Phase
from tests.parties.runs import PASSIVES, make_job

TELCO, SHOP = PASSIVES[:2]
STREAMING = (Phase.END_TO_END,)
ALONE = (Phase.RELEASE, Phase.LEAVE)
WARM = (Phase.WARM_UP, Phase.RELEASE, Phase.END_TO_END)


def job_of(top: str = "mlp", **train: Any) -> Job:
    return make_job(passives=2, top={"kind": top}, **train)


@pytest.mark.parametrize(
    ("job", "active", "telco", "shop"),
    [
        (job_of(), (Phase.SET_UP, Phase.END_TO_END), STREAMING, STREAMING),
        (
            job_of(release={TELCO: "once"}),
            (Phase.SET_UP, Phase.RELEASE, Phase.END_TO_END),
            (Phase.RELEASE, Phase.END_TO_END),
            STREAMING,
        ),
        (job_of(release={TELCO: "once"}, warmup_epochs=1), (Phase.SET_UP, *WARM), WARM, STREAMING),
        (job_of(release="once", warmup_epochs=1), (Phase.SET_UP, *WARM), WARM, WARM),
        (job_of(release="once"), (*ALONE, Phase.SET_UP, Phase.TRAIN_ALONE), ALONE, ALONE),
        (job_of("auto", release="once"), (*ALONE, Phase.SET_UP, Phase.FIT), ALONE, ALONE),
        (job_of("auto", release="once", warmup_epochs=1), (Phase.SET_UP, *WARM), WARM, WARM),
    ],
)
def test_phases(job: Job, active: tuple[Phase, ...], telco: tuple[Phase, ...], shop: tuple[Phase, ...]) -> None:
    assert job.phases == job.phases_of(job.active) == active
    assert (job.phases_of(TELCO), job.phases_of(SHOP)) == (telco, shop)
