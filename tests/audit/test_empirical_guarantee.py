"""Games against noisy embeddings: the mechanism as it is stays under its epsilon, each mutant exceeds it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cutlayer.accounting import Composition, ReleasePlan
from cutlayer.audit.empirical import GuaranteeTest, embedding_game, label_game
from cutlayer.kernels import gaussian_mechanism
from cutlayer.kernels.empirical_epsilon import mu_bound
from cutlayer.kernels.row_norms import clip_rows
from cutlayer.protections import DPEmbedding, build_chain
from cutlayer.protections import dp_embedding as module
from cutlayer.protections.base import Context, Mode, Noise

KEY = bytes(range(32))
PLAN = ReleasePlan(4, 4, 1)


def play(options: dict[str, Any], plan: ReleasePlan = PLAN, canaries: int = 4000) -> GuaranteeTest:
    """One game against `dp_embedding` of a party with six numbers at the cut."""
    chain = build_chain("telco", "passive", {"dp_embedding": {"clip": 2.0, **options}}, "privacy")
    event = chain.protections[0].event(plan)
    noise = Noise(KEY)
    context = Context("telco", ("bank",), {"telco": 6}, None, None, torch.arange(0), KEY, noise, epochs=4, plan=plan)
    outcome = embedding_game(chain, context, event, 1e-5, canaries)
    return outcome.against(event, 1e-5, protection="dp_embedding", party="telco", protects="features")


BUDGET = {"epsilon": 8.0, "delta": 1e-5}


@pytest.mark.parametrize("options", [BUDGET, {**BUDGET, "rescale": "sphere"}, {"noise_multiplier": 2.0}])
def test_the_mechanism_stays_under_its_epsilon(options: dict[str, Any]) -> None:
    found = play(options, canaries=16_000)
    assert 0.6 * found.epsilon < found.bound < found.epsilon
    assert not found.exceeded
    assert found.telling
    assert (found.canaries, found.releases) == (16_000, 4)


def test_more_canaries_show_more() -> None:
    few, many = play(BUDGET, canaries=1000), play(BUDGET, canaries=16_000)
    assert few.bound < many.bound < 8.0
    assert few.reach < many.reach


def test_two_kinds_of_rows_share_the_risk() -> None:
    plans = {1: ReleasePlan(4), 2: PLAN}
    for kinds, plan in plans.items():
        rows = 4000 // kinds // 2
        most = mu_bound(torch.zeros(rows), torch.ones(rows), 1 - 0.001 / kinds)
        assert play(BUDGET, plan).reach == pytest.approx(gaussian_mechanism.epsilon(most, 1e-5))


def test_noise_that_is_halved_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = DPEmbedding.setup

    def halved(self: DPEmbedding, context: Context) -> None:
        setup(self, context)
        self._sigma /= 2

    monkeypatch.setattr(DPEmbedding, "setup", halved)
    found = play(BUDGET)
    assert found.bound > 1.5 * found.epsilon
    assert found.exceeded


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVALUATE])
def test_noise_that_is_missing_on_one_occasion_exceeds_it(monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    release = DPEmbedding.embedding_out

    def bare(self: DPEmbedding, e: torch.Tensor, view: Any) -> torch.Tensor:
        return clip_rows(e, 2.0) if view.mode is mode else release(self, e, view)

    monkeypatch.setattr(DPEmbedding, "embedding_out", bare)
    assert play(BUDGET).exceeded


def test_rows_that_are_clipped_too_late_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "clip_rows", lambda e, clip: clip_rows(e, 2 * clip))
    assert play(BUDGET).exceeded


def test_a_budget_of_one_release_that_is_spent_in_each_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = module.DPEmbeddingConfig.multiplier
    monkeypatch.setattr(module.DPEmbeddingConfig, "multiplier", lambda self, plan: fixed(self, ReleasePlan(1)))
    chain = build_chain("telco", "passive", {"dp_embedding": {"clip": 2.0, **BUDGET}}, "privacy")
    assert Composition.of([chain.protections[0].event(ReleasePlan(1))]).epsilon(1e-5) == pytest.approx(8.0)
    assert play(BUDGET).bound > 8.0


def test_so_few_canaries_that_no_fault_could_show_are_told() -> None:
    assert not play({"noise_multiplier": 0.1}, canaries=200).telling


def test_labels_are_told_by_their_votes() -> None:
    truth = torch.arange(2000) % 2
    found = label_game(truth, truth, releases=3)
    assert found.bound == pytest.approx(found.reach)
    assert (found.canaries, found.releases) == (2000, 3)
    assert label_game(torch.zeros(2000), truth, 3).bound == 0.0
