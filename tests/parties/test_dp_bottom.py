"""Whole runs whose bottom model is trained privately."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mpmath as mp
import pytest
import torch
from torch import Tensor

from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError, NotApplied
from cutlayer.parties.passive_step import PassiveStep
from cutlayer.parties.session.plan import plan_of
from cutlayer.protections.contract.views import PassiveView
from cutlayer.protections.dp_embedding import DPEmbedding
from cutlayer.training.run_ledger import ledger_of
from tests.parties.interruptions import Dying, assert_equal, halves, interrupted
from tests.parties.noisy import gaussian_epsilon
from tests.parties.runs import PASSIVES, raw_job, run, tables

TELCO = PASSIVES[0]
GIVEN = tables()
STEPS, EPOCHS = 2, 2
BOTTOM = {"clip": 1.0, "noise_multiplier": 2.0}
EMBEDDING = {"clip": 1.0, "noise_multiplier": 4.0}


def job(train: Mapping[str, Any] | None = None, **privacy: Any) -> Job:
    raw = raw_job(epochs=EPOCHS, batch_size=96, audit={"rows": 64, "attacks": []}, **(train or {}))
    raw["parties"][TELCO]["privacy"] = privacy
    return validated(Job, raw, "")


JOB = job(dp_bottom=BOTTOM, dp_embedding=EMBEDDING)


def test_every_step_is_covered_and_a_resume_repeats_the_noise(tmp_path: Path) -> None:
    whole = run(JOB, GIVEN, tmp_path / "whole")
    by_name = {item.protection: item for item in whole.active.evidence}
    assert by_name["dp_bottom"].covered == by_name["dp_bottom"].sent == EPOCHS * STEPS
    interrupted(JOB, GIVEN, tmp_path / "again", Dying(STEPS + 1))
    assert_equal(tmp_path / "again", run(JOB, GIVEN, tmp_path / "again", resume=True), tmp_path / "whole", whole, JOB)


def test_without_noise_and_clipping_it_is_plain_training(tmp_path: Path) -> None:
    # By SGD: Adam makes whole steps of roundings where a gradient is nearly 0, and does not see a gradient's scale.
    train = {"optimizer": {"kind": "sgd", "lr": 0.1}}
    plain = job(train, dp_bottom={"clip": 1e6, "noise_multiplier": 1e-15})
    run(plain, GIVEN, tmp_path / "one")
    run(job(train), GIVEN, tmp_path / "other")
    mine, theirs = (halves(tmp_path / name, plain)[TELCO] for name in ("one", "other"))
    for name, tensor in theirs.items():
        if name.startswith("last/module"):
            torch.testing.assert_close(mine[name], tensor, rtol=1e-3, atol=1e-4)


def test_the_total_adds_both_costs_and_lifts_the_condition_on_the_bottom_model() -> None:
    assert plan_of(JOB, TELCO).bottom == "private"
    (total,) = ledger_of(JOB).totals
    mu = mp.sqrt(EPOCHS / 4.0**2 + EPOCHS * (2 / 2.0) ** 2)
    assert total.epsilon == pytest.approx(gaussian_epsilon(mu), rel=1e-6)
    assert total.condition == "conditional on the encoding"
    (alone,) = ledger_of(job(dp_embedding=EMBEDDING)).totals
    assert alone.condition == "conditional on the bottom model and the encoding"
    calibrated = job(dp_bottom={"clip": 1.0, "epsilon": 4.0, "delta": 1e-8}, dp_embedding=EMBEDDING)
    assert [total.delta for total in ledger_of(calibrated).totals] == [1e-8]
    (without,) = ledger_of(job(dp_bottom=BOTTOM)).totals
    assert (without.epsilon, "without noise" in without.why) == (None, True)


class Bypassing(PassiveStep):
    """Trains as if nothing was asked."""

    def _update(self, embedding: Tensor, released: Tensor, extra: Tensor | None, view: PassiveView) -> None:
        torch.autograd.backward([released], [view.gradient])


def test_a_step_past_the_chain_is_not_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.parties.phases.passive_side.PassiveStep", Bypassing)
    with pytest.raises(NotApplied, match=f"dp_bottom of telco covered 0 of {EPOCHS * STEPS}"):
        run(JOB, GIVEN, tmp_path)


def test_a_term_that_a_protection_has_in_a_step_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DPEmbedding, "local_loss", lambda self, view: view.embedding.sum())
    with pytest.raises(ConfigError, match="no loss term of telco's own"):
        run(JOB, GIVEN, tmp_path)
