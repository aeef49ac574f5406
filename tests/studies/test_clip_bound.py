"""The clip-bound study: its jobs differ in what their names say, and its verdicts follow from the results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cutlayer.consent import allowed
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.problem.inputs import Inputs
from studies.claims import Verdict
from studies.clip_bound.maps import Maps
from studies.clip_bound.page import clip_bound_page
from studies.clip_bound.settings import FUZZIFIER, GROUPS, LARGE, SMALL, Setup, job_of, setting_of
from studies.clip_bound.study import ClipBoundStudy
from studies.embedding_noise import noise_of
from studies.feature_privacy.settings import ADJUST, FULL, RESCALE, UNPROTECTED, VANILLA
from studies.results import Results, TrialResult
from tests.studies.written_pages import page_of

GAIN = {UNPROTECTED: 0.3, VANILLA: 0.0, RESCALE: 0.1, ADJUST: 0.05, FULL: 0.15}


@pytest.mark.parametrize("name", GROUPS)
def test_jobs_are_valid_and_differ_as_their_names_say(name: str) -> None:
    group = GROUPS[name]
    settings = list(group.settings())
    assert len({setting_of(*setting) for setting in settings}) == len(settings)
    for protection, setup in settings:
        job = job_of(group, protection, setup, 2)
        with allowed("studies", "cutlayer_published"):
            check_job(job)
        assert job.train.optimizer.lr == setup.rate
        party = group.data.parties[0]
        bottom = job.model.bottom_of(party)
        assert bottom.get("cut", "activated") == ("linear" if setup.cut == "linear" else "activated")
        assert job.train.epochs == group.epochs
        noise = noise_of(job.parties[party].protections)
        assert (noise is None) == (protection == UNPROTECTED)
        if noise is not None:
            assert noise["clip"] == setup.clip
            assert ("estimate" in noise) == (protection in (RESCALE, FULL))
            assert ("adjust" in noise) == (protection in (ADJUST, FULL))
            if "adjust" in noise:
                assert noise["adjust"]["fuzzifier"] == FUZZIFIER


def test_maps_are_the_embedding_of_half_an_image() -> None:
    torch.manual_seed(0)
    model = Maps(Inputs(numbers=28 * 14, image=(1, 28, 14)))
    embedding = model(torch.zeros(3, 0, dtype=torch.int32), torch.rand(3, 28 * 14))
    assert embedding.shape == (3, model.width) == (3, 672)
    assert embedding.min() == 0 < embedding.max()
    with pytest.raises(ConfigError, match="expected an image"):
        Maps(Inputs(numbers=4))


def results_of(gain: dict[str, float], small: float) -> list[TrialResult]:
    draw, results = np.random.default_rng(0), []
    for name, group in GROUPS.items():
        for seed in (1, 2, 3):
            noise = float(draw.normal(0, 0.001))
            for protection, setup in group.settings():
                value = 0.5 + gain[protection] + noise + small * (setup.clip == SMALL and protection == VANILLA)
                measured = {
                    "accuracy": value,
                    "largest": 0.5 + noise,
                    "ks": 0.03 + noise,
                    "last_purity": 0.5,
                    "last_kept_purity": 0.6 + noise,
                }
                results.append(TrialResult(name, setting_of(protection, setup), seed, value, 1.0, {}, {}, measured))
    return results


def test_verdicts_follow_from_the_results() -> None:
    held = clip_bound_page(Results(results_of(GAIN, 0.0))).claims
    assert {claim.verdict for claim in held if "no less accurate" in claim.text} == {Verdict.FAILS}
    assert {claim.verdict for claim in held if "no less accurate" not in claim.text} == {Verdict.HOLDS}
    lost = clip_bound_page(Results(results_of({name: -gain for name, gain in GAIN.items()}, 0.0))).claims
    assert {claim.verdict for claim in lost if "more accurate" in claim.text or "gains" in claim.text} == {
        Verdict.FAILS
    }
    small = clip_bound_page(Results(results_of(GAIN, 0.1))).claims
    assert {claim.verdict for claim in small if "no less accurate" in claim.text} == {Verdict.HOLDS}
    assert {claim.verdict for claim in clip_bound_page(Results([])).claims} == {Verdict.NOT_RUN}


def test_the_paper_is_compared_where_it_has_figures() -> None:
    published = [claim.text for claim in clip_bound_page(Results([])).claims if claim.published]
    assert sum("more accurate" in text for text in published) == 5 + 2 * 3
    assert Setup("ReLU", LARGE, 1e-3) == GROUPS["Adult"].paper


def test_curves_are_of_the_trainings_that_recorded_their_epochs(tmp_path: Path) -> None:
    results = results_of(GAIN, 0.0)
    plain = page_of(ClipBoundStudy(), results, tmp_path / "plain")
    assert "figure 9" not in plain
    name = "handwritten"
    own = setting_of(VANILLA, GROUPS[name].paper)
    curved = [
        replace(result, measured={**result.measured, "by_epoch": [0.1 * result.seed, 0.5]})
        if (result.group, result.setting) == (name, own) and result.seed > 1
        else result
        for result in results
    ]
    page = page_of(ClipBoundStudy(), curved, tmp_path / "curved")
    assert "of the 2 seeds" in " ".join(page.split())
    assert f"| epoch | {VANILLA} |" in page
    assert "| 1 | 0.250 ±" in page
    assert "| 2 | 0.500 ± 0.000 |" in page
