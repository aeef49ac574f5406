"""Canaries against noisy embeddings, read from the wire: the mechanism stays under its epsilon, mutants exceed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cutlayer.audit.empirical import CONFIDENCE, Score, gaussian_game
from cutlayer.audit.guarantees.embeddings import embedding_scores
from cutlayer.config import Job, validated
from cutlayer.kernels.noise import gaussian_mechanism as gaussian
from cutlayer.kernels.noise.empirical_epsilon import mu_bound
from cutlayer.kernels.rows import row_norms
from cutlayer.kernels.rows.row_norms import clip_rows
from cutlayer.parties.phases import agree
from cutlayer.parties.phases.passive_side import PassiveSide
from cutlayer.parties.session.plan import plan_of
from cutlayer.protections import build_chain
from cutlayer.protections.catalogue import DPEmbedding
from cutlayer.protections.contract.base import Context
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import Mode
from cutlayer.results.guarantee import GuaranteeTest
from tests.parties.runs import raw_job

KEY = bytes(range(32))
BUDGET = {"epsilon": 8.0, "delta": 1e-5}
WIDTH = 6


def play(options: dict[str, Any] = BUDGET, canaries: int = 6000, **train: Any) -> GuaranteeTest:
    """Test `dp_embedding` of a job of three epochs, whose noise is calibrated to all of them."""
    raw = raw_job(**{"epochs": 3, **train})
    raw["parties"]["telco"]["privacy"] = {"dp_embedding": {"clip": 2.0, **options}}
    job = validated(Job, raw, "")
    chain = build_chain("telco", "passive", job.parties["telco"].privacy, "privacy")
    event: Any = chain.protections[0].event(plan_of(job, "telco"))
    scores = embedding_scores(job, "telco", "dp_embedding", event, WIDTH, canaries, KEY)
    outcome = gaussian_game(scores, 1e-5, event.releases.max_releases)
    return outcome.against(event, 1e-5, protection="dp_embedding", party="telco", protects="features")


ONCE = {"release": {"telco": "once"}}
NO_VALIDATION = {"split": {"test": 0.2, "validation": 0.0}}
MANY = 8_000


@pytest.fixture(scope="module")
def many() -> GuaranteeTest:
    return play(canaries=MANY)


@pytest.mark.parametrize(
    ("options", "train"),
    [
        (BUDGET, {}),
        (BUDGET, ONCE),
        (BUDGET, NO_VALIDATION),
        ({**BUDGET, "rescale": "sphere"}, {}),
        ({"noise_multiplier": 2.0}, ONCE),
    ],
)
def test_the_mechanism_stays_under_its_epsilon(
    many: GuaranteeTest, options: dict[str, Any], train: dict[str, Any]
) -> None:
    # One release is read once.
    result = play(options, 12_000 if train is ONCE else MANY, **train) if train or options is not BUDGET else many
    assert 0.4 * result.epsilon < result.lower_bound < result.epsilon
    assert not result.exceeded
    assert result.conclusive


def test_more_canaries_show_more(many: GuaranteeTest) -> None:
    few = play(canaries=1000)
    assert few.lower_bound < many.lower_bound < 8.0
    assert few.detectable < many.detectable


def divided(factor: float) -> Callable[[DPEmbedding, Context], None]:
    """A set-up with noise that is too small by a factor."""
    setup = DPEmbedding.setup

    def small(self: DPEmbedding, context: Context) -> None:
        setup(self, context)
        self._sigma /= factor

    return small


@pytest.mark.parametrize(("factor", "train"), [(2, {}), (2, ONCE)])
def test_too_little_noise_exceeds_it(monkeypatch: pytest.MonkeyPatch, factor: float, train: dict[str, Any]) -> None:
    monkeypatch.setattr(DPEmbedding, "setup", divided(factor))
    assert play(**train).lower_bound > 1.5 * 8.0


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVALUATE])
def test_noise_that_is_missing_on_one_occasion_exceeds_it(monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    release = DPEmbedding.embedding_out

    def bare(self: DPEmbedding, e: Tensor, view: Any) -> Tensor:
        return clip_rows(e, 2.0) if view.mode is mode else release(self, e, view)

    monkeypatch.setattr(DPEmbedding, "embedding_out", bare)
    assert play().exceeded


def test_rows_that_are_not_clipped_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_norms, "clip_rows", lambda e, clip: clip_rows(e, 2 * clip))
    assert play().exceeded


def test_a_budget_of_one_release_that_is_spent_in_each_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = DPEmbedding.setup

    def of_one(self: DPEmbedding, context: Context) -> None:
        setup(self, context)
        self._sigma /= 5**0.5

    monkeypatch.setattr(DPEmbedding, "setup", of_one)
    assert play(epochs=5).lower_bound > 8.0


def rows_of_one_batch_share_their_noise(self: DPEmbedding, e: Tensor, view: Any) -> Tensor:
    noise = released(self, e, view) - clip_rows(e, 2.0)
    return clip_rows(e, 2.0) + noise[:1]


def noise_does_not_depend_on_step_or_content(self: Noise, *, hook: str, peer: str, step: int, content: Tensor) -> bytes:
    return KEY


released = DPEmbedding.embedding_out


def test_noise_that_rows_share_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DPEmbedding, "embedding_out", rows_of_one_batch_share_their_noise)
    assert play(canaries=2000).exceeded


def test_noise_that_is_used_again_for_other_content_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noise, "key", noise_does_not_depend_on_step_or_content)
    assert play(canaries=4000).exceeded


def test_noise_drawn_anew_by_a_resume_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = agree.follow

    def with_another_key(side: PassiveSide) -> Any:
        if side.local.resume:
            object.__setattr__(side.local, "noise_key", bytes(32))
        return (yield from follow(side))

    monkeypatch.setattr(agree, "follow", with_another_key)
    assert play({"noise_multiplier": 0.7}, 16_000, epochs=1).exceeded


def test_float32_noise_exceeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(self: DPEmbedding, e: Tensor, view: Any) -> Tensor:
        bounded = clip_rows(e, 2.0)
        noise = self.context.noise.normal(
            tuple(e.shape), hook=f"{view.mode}", peer="bank", step=view.step, content=bounded
        )
        return torch.add(bounded, noise, alpha=self._sigma)

    monkeypatch.setattr(DPEmbedding, "embedding_out", rounded)
    assert play(canaries=2000).exceeded


def test_too_few_canaries_for_a_fault_to_show_are_reported() -> None:
    assert not play({"noise_multiplier": 0.1}, 800).conclusive


def test_scores_share_the_risk_and_the_largest_bound_is_stated() -> None:
    draw = torch.Generator().manual_seed(0)
    present = torch.arange(4000) % 2 == 1
    strong, weak = (torch.randn(4000, generator=draw, dtype=torch.float64) + factor * present for factor in (1.0, 0.0))
    scores = [Score("sum", strong, present), Score("sum of others", weak, present), Score("one", weak, present)]
    for given in (scores, scores[::-1]):
        found = gaussian_game(given, 1e-5, 1)
        mu = mu_bound(strong[~present], strong[present], 1 - (1 - CONFIDENCE) / 3)
        assert found.lower_bound == gaussian.epsilon(mu, 1e-5)
        most = mu_bound(torch.zeros(2000), torch.ones(2000), 1 - (1 - CONFIDENCE) / 3)
        assert found.detectable == gaussian.epsilon(most, 1e-5)
        assert found.canaries == 8000
