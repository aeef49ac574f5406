"""The label-free study: its jobs send no gradient where they say so, and its verdicts follow from the results."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from cutlayer.accounting import LabelFree
from cutlayer.consent import allowed
from cutlayer.jobs.check import check_job
from cutlayer.jobs.options import Progress
from cutlayer.training.run_ledger import ledger_of
from studies.claims import Verdict
from studies.label_free.page import label_free_page
from studies.label_free.settings import ADULT, BANK, DATA, LEARNING_CURVE, SMALL_BATCH, job_of, setting_of, settings_of
from studies.label_free.study import LabelFreeStudy
from studies.results import UNDEFENDED, Results, TrialResult
from studies.trials import Trial, run_trial
from tests.studies.written_pages import page_of

ROWS = "\n".join(f"{20 + i % 50};job{i % 3};{i % 7};cell;{i % 31};{'yes' if i % 5 == 0 else 'no'}" for i in range(400))


@pytest.mark.parametrize("setting", settings_of(ADULT))
def test_jobs_are_valid_and_label_free_where_they_release_once(setting: str) -> None:
    job = job_of(ADULT, setting, Path(), 2)
    with allowed("cutlayer_published"):
        check_job(job)
    events = [entry.event for entry in ledger_of(job).entries if entry.protects == "labels"]
    assert events == ([] if setting == UNDEFENDED else [LabelFree()])
    totals = {total.epsilon for total in ledger_of(job).totals if total.protects == "features"}
    assert len(totals) == ("eps" in setting)
    for epsilon in totals:
        assert epsilon is not None
        assert epsilon == pytest.approx(float(setting.split()[-1]), rel=1e-3)


def test_a_training_is_measured(tmp_path: Path) -> None:
    """One of 400 made-up rows in the place of the bank's file."""
    header = "age;job;balance;contact;day;y"
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "bank-full.csv.gz").write_bytes(gzip.compress(f"{header}\n{ROWS}\n".encode()))
    raw = job_of(BANK, "sketch 8", tmp_path, 1).model_dump()
    raw["parties"]["bank"]["features"]["include"] = ("age", "job", "balance")
    raw["parties"]["call_centre"]["features"]["include"] = ("contact", "day")
    raw["parties"]["call_centre"]["audit"] = {"attacks": ("inversion", "attribute"), "layers": False}
    raw["train"] |= {"epochs": 1, "batch_size": 64}
    study = LabelFreeStudy()
    job = type(job_of(ADULT, UNDEFENDED, Path(), 1)).model_validate(raw)
    result = run_trial(study, Trial("Bank", "sketch 8", 1, job), tmp_path / "work", Progress())
    assert result["measured"]["label_epsilon"] == 0.0
    assert "embedding/probe" in result["leaks"]
    assert not [key for key in result["leaks"] if key.startswith("gradient")]


def results_of(cost: float) -> list[TrialResult]:
    """Three seeds of every setting; sketches lose `cost`."""
    conditions = [(group, setting) for group, data in DATA.items() for setting in settings_of(data)]
    conditions += [(group, setting) for group in LEARNING_CURVE for setting in (SMALL_BATCH, setting_of(128))]
    measured: dict[str, Any] = {"r2": 0.9, "weighted_r2": 0.95, "attribute": 0.9, "best_attribute": 1.0}
    return [
        TrialResult(
            group, setting, seed, 0.9 - (cost if "sketch" in setting else 0) + 1e-4 * seed, 1.0, {}, {}, measured
        )
        for group, setting in conditions
        for seed in (1, 2, 3)
    ]


@pytest.mark.parametrize(("cost", "verdict"), [(0.01, Verdict.HOLDS), (0.03, Verdict.FAILS)])
def test_verdicts_follow_from_the_results(cost: float, verdict: Verdict) -> None:
    page = label_free_page(Results(results_of(cost)))
    assert {claim.verdict for claim in page.claims} == {verdict}
    assert {claim.verdict for claim in label_free_page(Results([])).claims} == {Verdict.NOT_RUN}


def test_the_page_has_every_setting(tmp_path: Path) -> None:
    page = page_of(LabelFreeStudy(), results_of(0.01), tmp_path / "out")
    for setting in (*settings_of(ADULT), SMALL_BATCH, *LEARNING_CURVE):
        assert f"| {setting} |" in page
