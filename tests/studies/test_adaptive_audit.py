"""The study of defences under the default audit: its jobs, what it reads of a run, and its verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from cutlayer.audit import known_labels
from cutlayer.config import Job, validated
from cutlayer.config.phases import Phase
from cutlayer.jobs.check import check_job
from cutlayer.jobs.options import Progress
from studies.adaptive_audit.page import REPAIRED, adaptive_page
from studies.adaptive_audit.settings import (
    ADULT,
    BANK,
    CREDIT,
    CRITEO,
    DEFENCES,
    LABEL_FREE,
    MORE_ROWS,
    PARTY,
    READINGS,
    SETTINGS,
    job_of,
)
from studies.adaptive_audit.study import AdaptiveAuditStudy
from studies.claims import Verdict
from studies.datasets import ADULT_TABLE
from studies.page import ClaimsTable
from studies.results import Results, TrialResult
from studies.trials import Trial

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.parametrize("setting", SETTINGS[ADULT])
def test_every_job_on_adult_is_valid(setting: str, tmp_path: Path) -> None:
    job = job_of(ADULT, setting, tmp_path, 3)
    check_job(job)
    assert job.train.seed == 3
    assert set(job.parties["bank"].protections) == set(DEFENCES[setting])
    assert (Phase.RELEASE in job.phases_of("employer")) == (setting == LABEL_FREE)


@pytest.mark.parametrize("group", [CRITEO, CREDIT, BANK, MORE_ROWS])
def test_every_job_on_the_other_data_is_valid(group: str) -> None:
    if not DATA.exists():
        pytest.skip("the data sets are not at shared/data beside the checkout")
    for setting in SETTINGS[group]:
        job = job_of(group, setting, DATA, 1)
        check_job(job)
        assert PARTY[group] in job.passives
        assert set(job.parties[job.active].protections) == set(DEFENCES[setting])


def test_a_training_leaves_what_the_page_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        known_labels, "LABEL_COUNTS", (1, 2, 5, 10, 20, 40, 200)
    )  # other runs of these tests have fewer
    raw = job_of(ADULT, "max_norm, paper", tmp_path, 1).model_dump()
    raw["train"] |= {"epochs": 1, "split": {"test": 0.2, "validation": 0.2}}
    raw["parties"]["bank"]["audit"] |= {"attacks": ["norm", "directions", "joint_spectral", "few_labels"]}
    job, few = validated(Job, raw, "a short job"), parquet.read_table(ADULT_TABLE).slice(0, 2800)
    trial = Trial(ADULT, "max_norm, paper", 1, job, dict.fromkeys(job.parties, few))
    result = TrialResult(**AdaptiveAuditStudy().train(trial, tmp_path / "work", Progress()))
    measured = result.measured
    assert measured["strongest"].keys() == {"gradient", "embedding"}
    assert all(0.5 <= cell["leak"] <= 1 for cell in measured["strongest"].values())
    assert 0.8 < measured["own_columns"] < 0.95
    assert set(measured["curves"]["embedding"]) == {"1", "5", "20", "200"}, "few rows: every second number"


def made_up(leak: float, excess: float, metric: float = 0.9) -> list[TrialResult]:
    """Three seeds of every setting, all with these values."""

    def result(group: str, setting: str, seed: int) -> TrialResult:
        shift = 1e-4 * seed
        strongest: dict[str, Any] = {
            message: {"attack": "mixture", "leak": leak + shift} for message in ("gradient", "embedding")
        }
        curves = {message: {"20": leak + shift} for message in strongest}
        measured = {"strongest": strongest, "curves": curves, "own_columns": leak - excess, "chance": 0.51 + shift}
        return TrialResult(group, setting, seed, metric + shift, 1.0, {}, {}, measured)

    return [result(group, setting, seed) for group in SETTINGS for setting in SETTINGS[group] for seed in (1, 2, 3)]


@pytest.mark.parametrize(("leak", "excess", "holds"), [(1.0, 0.01, True), (1.0, 0.05, False), (0.5, 0.01, False)])
def test_verdicts_follow_the_values(leak: float, excess: float, holds: bool) -> None:
    page = adaptive_page(Results(made_up(leak, excess)))
    claims = [claim for block in page.sections[0].blocks if isinstance(block, ClaimsTable) for claim in block.claims]
    repaired = [setting for settings in SETTINGS.values() for setting in settings if setting in REPAIRED]
    hidden = [claim for claim in claims if "reads less than 0.55" in claim.text]
    assert len(claims) == sum(map(len, READINGS.values())) + 2 * len(repaired) + len(SETTINGS) + len(hidden)
    assert all(claim.verdict == Verdict.HOLDS for claim in claims if claim not in hidden) == holds
    assert [claim.verdict == Verdict.HOLDS for claim in hidden] == [leak < 0.55] * 2
    readings = [claim for claim in claims if "the audit reads at most" in claim.text]
    assert all((claim.verdict == Verdict.HOLDS) == (leak == 1.0) for claim in readings)


def test_a_page_without_results_claims_nothing() -> None:
    page = adaptive_page(Results([]))
    claims = [claim for block in page.sections[0].blocks if isinstance(block, ClaimsTable) for claim in block.claims]
    assert {claim.verdict for claim in claims} == {Verdict.NOT_RUN}
