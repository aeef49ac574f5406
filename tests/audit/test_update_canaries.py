"""Canaries against DP-SGD, read at the optimiser: the mechanism stays under its epsilon, each mutant exceeds it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutlayer.audit.empirical import gaussian_game
from cutlayer.audit.guarantees.updates import update_scores
from cutlayer.config import Job, validated
from cutlayer.kernels.rows import row_norms
from cutlayer.parties.session.plan import plan_of
from cutlayer.protections import build_chain
from cutlayer.protections import dp_bottom as module
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.results.guarantee import GuaranteeTest
from tests.parties.runs import raw_job

KEY = bytes(range(32))


def play(canaries: int = 1000) -> GuaranteeTest:
    """Test `dp_bottom` of a job of three epochs."""
    raw = raw_job(epochs=3)
    raw["parties"]["telco"]["privacy"] = {"dp_bottom": {"clip": 2.0, "epsilon": 8.0, "delta": 1e-5}}
    job = validated(Job, raw, "")
    event: Any = (
        build_chain("telco", "passive", job.parties["telco"].privacy, "privacy")
        .protections[0]
        .event(plan_of(job, "telco"))
    )
    scores = update_scores(job, "telco", "dp_bottom", canaries, KEY)
    outcome = gaussian_game(scores, 1e-5, event.steps)
    return outcome.against(event, 1e-5, protection="dp_bottom", party="telco", protects="features")


def test_the_mechanism_stays_under_its_epsilon() -> None:
    result = play(2500)
    assert 0.4 * 8 < result.lower_bound < result.epsilon == pytest.approx(8.0)
    assert result.conclusive


def test_too_little_noise_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    multiplier = module.DPBottomConfig.multiplier
    monkeypatch.setattr(module.DPBottomConfig, "multiplier", lambda self, plan: multiplier(self, plan) / 3)
    raised = play()
    assert raised.lower_bound > 1.2 * 8.0


def test_rows_that_are_not_clipped_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_norms, "clip_rows", lambda rows, clip: rows)
    assert play().exceeded


def test_noise_that_steps_share_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_no_step(self: Noise, *, hook: str, peer: str, step: int, content: Tensor) -> bytes:
        return KEY

    monkeypatch.setattr(Noise, "key", of_no_step)
    assert play().exceeded


def test_without_noise_the_rows_are_distinguished_with_certainty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "rounded_normal", lambda *arguments: torch.zeros(arguments[2]))
    result = play()
    assert result.lower_bound == pytest.approx(result.detectable, rel=0.01)
