"""The study of reasons: its controls change what they say, and their verdicts follow from the results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys
from studies.claims import Verdict
from studies.clip_bound.settings import FUZZIFIER, THRESHOLD
from studies.embedding_noise import noise_of
from studies.feature_privacy.settings import ADJUST, VANILLA
from studies.forward_leakage.study import BEST, dcor_setting
from studies.model_completion.claims import dimip_setting
from studies.reasons.held_out import held_out_values
from studies.reasons.page import reasons_page
from studies.reasons.settings import (
    ALPHAS,
    FEWER,
    FEWER_ROWS,
    HALVES,
    HELD_OUT,
    LAMS,
    LEFT,
    LEFT_SETTINGS,
    MASKED,
    MODELS,
    NOISE,
    SHALLOW,
    STEPS,
    masked,
    more_steps,
    rows_setting,
    with_steps,
)
from studies.reasons.study import ReasonsStudy
from studies.results import UNDEFENDED, Results, TrialResult
from studies.trials import study_key
from tests.studies.test_smoke import tiny_job, tiny_tables
from tests.studies.written_pages import page_of


def test_the_groups_with_more_steps_differ_in_the_top_model_alone() -> None:
    settings = more_steps()
    assert set(settings[SHALLOW]) == set(settings[STEPS]) - set(NOISE)
    job = with_steps(tiny_job(1, {}))
    assert (job.train.batch_size, job.train.epochs, job.train.optimizer.lr) == (512, 19, 1e-4)


def test_the_mask_of_adjusting_is_that_of_the_other_study() -> None:
    adjusting, none = (noise_of(masked(1, setting).parties["left"].protections) or {} for setting in (ADJUST, VANILLA))
    assert (adjusting["adjust"]["fuzzifier"], adjusting["adjust"]["threshold"]) == (FUZZIFIER, THRESHOLD)
    assert not none.get("adjust")


def test_values_of_held_out_rows_are_those_of_the_run(tmp_path: Path) -> None:
    """The AUC is that of the summary, and a linear task of two columns is read from the embedding."""
    job = tiny_job(1, {})
    job = job.model_copy(update={"train": job.train.model_copy(update={"epochs": 20})})
    keys = Keys(tmp_path / "keys", study_key(job), simulated=True)
    folder = execute(job, tmp_path / "run", Options(keys, tables=tiny_tables()), Progress())
    values = held_out_values(job, folder)
    assert set(values) == {"test_leak", "test_auc", "train_leak", "train_auc"}
    assert values["test_auc"] == pytest.approx(folder.summary.utility.rows[0].metrics["auc"])
    assert all(0.5 <= value <= 1 for value in values.values())
    assert values["train_auc"] > 0.8


def results_of(beyond: float, lost: float) -> list[TrialResult]:
    """Leaks above the AUC of the same rows by `beyond`, and defended models that lose `lost`."""
    draw, results = np.random.default_rng(0), []

    def near(value: float) -> float:
        return value + float(draw.normal(0, 0.0005))

    for seed in (1, 2, 3):
        for group, setting in MODELS:
            values = {f"{part}_auc": 0.7 for part in ("test", "train")}
            values |= {f"{part}_leak": near(0.7 + beyond) for part in ("test", "train")}
            results.append(TrialResult(group, setting, seed, 0.7, 1.0, {}, {}, values))
        for group in (STEPS, SHALLOW):
            results.append(TrialResult(group, UNDEFENDED, seed, 0.7, 1.0, {}, {}))
            for setting in (*NOISE, *(dcor_setting(alpha, BEST) for alpha in ALPHAS)):
                leaks = {"embedding/spectral": {"auc": 0.5 + near(0.02 + lost), "epoch": 1, "last": 0.5}}
                reached = near(0.7 - lost - 0.1 * (group == SHALLOW))
                results.append(TrialResult(group, setting, seed, reached, 1.0, leaks, {}))
        for setting in (UNDEFENDED, *map(dimip_setting, LAMS)):
            hidden = 0.11 if setting != UNDEFENDED and not lost else 0.7
            measured = {
                "references": {"bank alone": 0.8, "left alone": 0.8},
                "plain": {"few": {"frozen MLP, supervised": near(hidden)}},
                "supervised": {"few": {"frozen MLP, supervised": 0.8}},
                "norm": 1.0,
                "spread": 1.0,
            }
            results.append(TrialResult(HALVES.group, setting, seed, near(0.97 - lost), 1.0, {}, {}, measured))
        for rows, reached in zip(FEWER_ROWS, (0.58 - lost, 0.6 - 2 * lost), strict=True):
            sides = {side: {"accuracy": near(reached)} for side in ("left", "right")}
            attacks = {"attacks": {"membership": sides}}
            results.append(TrialResult(FEWER, rows_setting(rows), seed, 0.4, 1.0, {}, {}, attacks))
        for setting, share in ((VANILLA, 0.5), (ADJUST, 0.52 - lost)):
            values = {"class_share": near(share), "last_kept": near(0.8 + 2 * lost)}
            results.append(TrialResult(MASKED, setting, seed, 0.9, 1.0, {}, {}, values))
        for setting, reached in zip(LEFT_SETTINGS, (0.22 - lost, 0.2), strict=True):
            without = {"without": {"": near(reached), "right": near(reached - 0.05)}}
            results.append(TrialResult(LEFT.group, setting, seed, 0.2, 1.0, {}, {}, without))
    return results


def test_verdicts_follow_from_the_results(tmp_path: Path) -> None:
    held = {claim.text: claim.verdict for claim in reasons_page(Results(results_of(0.0, 0.0))).claims}
    costs = {text for text in held if "within 0.01" in text}
    assert {held[text] for text in costs} == {Verdict.FAILS}, "the noise costs less than in the report"
    assert {verdict for text, verdict in held.items() if text not in costs} == {Verdict.HOLDS}
    failed = {claim.text: claim.verdict for claim in reasons_page(Results(results_of(0.05, 0.1))).claims}
    assert failed.keys() == held.keys()
    rest = {text for text in failed if "top layer" not in text and "standardised columns" not in text}
    assert {failed[text] for text in rest} == {Verdict.FAILS}
    page = page_of(ReasonsStudy(), results_of(0.0, 0.0), tmp_path / "whole")
    assert "**not run**" not in page


def test_claims_of_a_paper_in_another_set_up_do_not_count_as_the_papers() -> None:
    assert not [claim for claim in reasons_page(Results(results_of(0.0, 0.0))).claims if claim.published]


def test_a_control_that_was_not_run_has_no_section(tmp_path: Path) -> None:
    results = [result for result in results_of(0.0, 0.0) if result.group in HELD_OUT]
    page = page_of(ReasonsStudy(), results, tmp_path / "part")
    assert "## The leak is above the test AUC" in page
    assert "## The costs of Marvell's noise" not in page
    assert page.count("| not run |") == 6
