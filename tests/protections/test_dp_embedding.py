"""Noise of the right scale and no other, bounds that hold, gradients that pass, and an account that adds up."""

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import stats

from cutlayer.accounting import Account, GaussianRelease, ReleasePlan
from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.lattice import lattice_step
from cutlayer.protections import build, build_chain
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import Mode, PassiveView
from tests.protections.setup import KEY, context, protection, resume, saved

N, WIDTH, CLIP = 4000, 20, 1.5
PLAN = ReleasePlan(training=20, validation=20, test=1)
BUDGET = {"clip": CLIP, "epsilon": 8.0, "delta": 1e-5}


def mu_of(epsilon, delta):
    """Of the exact Gaussian mechanism, from the theorem and many digits."""

    def excess(mu):
        return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu) - delta

    return float(mp.findroot(excess, (0.01, 5.0), solver="bisect", tol=1e-18))


def passive(options, plan=PLAN, name="dp_embedding", **other):
    return protection(name, options, task=None, party="telco", peers=("bank",), plan=plan, **other)


def seen(n=N, step=0, mode=Mode.TRAIN, epoch=0, rows=None, **other):
    rows = torch.arange(n) if rows is None else rows
    return PassiveView(mode, epoch, step, rows, lambda some: torch.zeros(len(some), WIDTH), **other)


def embedding(n=N, width=WIDTH, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=draw) * torch.rand(n, 1, generator=draw)


def noise_of(options, e=None, plan=PLAN):
    """What is added to the clipped rows."""
    e = embedding() if e is None else e
    norms = e.double().norm(dim=1, keepdim=True)
    clipped = e.double() * (CLIP / norms).clamp(max=1)
    return (passive(options, plan).embedding_out(e, seen(len(e))).double() - clipped).numpy().ravel()


@pytest.mark.parametrize(
    ("options", "multiplier"),
    [
        (BUDGET, math.sqrt(20) / mu_of(8, 1e-5)),
        ({**BUDGET, "per": "release"}, 1 / mu_of(8, 1e-5)),
        ({**BUDGET, "per": "release", "calibration": "classical"}, math.sqrt(2 * math.log(1.25e5)) / 8),
        ({"clip": CLIP, "noise_multiplier": 0.7}, 0.7),
    ],
)
def test_the_noise_is_gaussian_of_the_calibrated_scale_and_no_other(options, multiplier):
    """A sensitivity of C for 2C, or a root of the releases left out, is found."""
    drawn = noise_of(options)
    sigma = multiplier * 2 * CLIP
    assert stats.kstest(drawn, stats.norm(scale=sigma).cdf).pvalue > 1e-4
    assert drawn.std() == pytest.approx(sigma, rel=0.01)
    assert stats.kstest(21 / 20 * drawn, stats.norm(scale=sigma).cdf).pvalue < 1e-6
    for wrong in (1 / 2, 2, math.sqrt(20), 1 / math.sqrt(20)):  # which few numbers show
        assert stats.kstest(wrong * drawn[:2000], stats.norm(scale=sigma).cdf).pvalue < 1e-6
    assert abs(np.corrcoef(drawn, embedding().numpy().ravel())[0, 1]) < 0.02


def test_the_noise_grows_with_the_releases_of_the_row_that_has_most():
    for plan, most in ((ReleasePlan(5), 5), (ReleasePlan(5, test=6), 6), (ReleasePlan(5, 5, 1, serving=4), 9)):
        sigma = passive(BUDGET, plan).metrics()["sigma"]
        assert sigma == pytest.approx(2 * CLIP * math.sqrt(most) / mu_of(8, 1e-5), rel=1e-6)


def test_the_events_total_is_the_budget_it_was_calibrated_to():
    for options, epsilon in ((BUDGET, 8.0), ({**BUDGET, "epsilon": 0.5}, 0.5)):
        event = passive(options).event(PLAN)
        assert isinstance(event, GaussianRelease)
        assert (event.condition, event.delta) == ("conditional on the bottom model and the encoding", 1e-5)
        mu = math.sqrt(20) / event.noise_multiplier
        assert mu == pytest.approx(mu_of(epsilon, 1e-5), rel=1e-6)
    event = passive({**BUDGET, "per": "release"}).event(PLAN)
    assert event.noise_multiplier == pytest.approx(1 / mu_of(8, 1e-5), rel=1e-6)
    assert event.releases.max_releases == 20


def test_the_condition_is_that_of_the_plan():
    once = ReleasePlan(1, 1, 1, once=True, bottom="independent", encoding="public")
    event = passive(BUDGET, once).event(once)
    assert (event.condition, event.releases.max_releases) == ("unconditional", 1)
    assert event.noise_multiplier == pytest.approx(1 / mu_of(8, 1e-5), rel=1e-6)


def test_noise_repeats_for_the_same_message_only():
    e = embedding(50)
    first = passive(BUDGET).embedding_out(e, seen(50, step=3))
    assert torch.equal(passive(BUDGET).embedding_out(e.clone(), seen(50, step=3)), first)
    others = [
        seen(50, step=4),
        seen(50, step=3, epoch=1),
        seen(50, step=3, mode=Mode.EVALUATE),
        seen(50, step=3, rows=torch.arange(50) + 1),
    ]
    found = [passive(BUDGET).embedding_out(e, view) for view in others]
    found.append(passive(BUDGET, noise=Noise(KEY[::-1])).embedding_out(e, seen(50, step=3)))
    found.append(passive({**BUDGET, "clip": 100.0}).embedding_out(e + 1e-3, seen(50, step=3)) - 1e-3)
    base = passive({**BUDGET, "clip": 100.0}).embedding_out(e, seen(50, step=3))
    for other, compared in zip(found, [first] * 5 + [base], strict=True):
        assert float((other - compared).abs().mean()) > 1.0


def test_the_gradient_passes_back_through_the_clip():
    e = embedding(200).double().requires_grad_()
    g = embedding(200, seed=1).double()
    (found,) = torch.autograd.grad(passive(BUDGET).embedding_out(e, seen(200)), e, g)
    by_hand = e * (CLIP / e.norm(dim=1, keepdim=True)).clamp(max=1)
    (expected,) = torch.autograd.grad(by_hand, e, g)
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert 20 < int((e.norm(dim=1) > CLIP).sum()) < 190


@pytest.mark.parametrize("options", [{}, {"rescale": "sphere"}])
def test_two_rows_are_never_farther_apart_than_the_sensitivity(options):
    """Without noise to speak of, the replaced row moves by 2C at most and no other row moves."""
    quiet = passive({"clip": CLIP, "noise_multiplier": 1e-12, **options})
    e = embedding(100) * 1e3
    neighbour = e.clone()
    neighbour[7] = -e[7]
    here, there = (quiet.embedding_out(x, seen(100)).double() for x in (e, neighbour))
    moved = (here - there).norm(dim=1)
    assert float(moved[7]) == pytest.approx(2 * CLIP, rel=1e-5)
    assert int((moved > 1e-6).sum()) == 1


def test_the_sphere_gives_every_row_one_norm():
    e = embedding(300)
    quiet = {"clip": CLIP, "noise_multiplier": 1e-12}
    sphere = passive({**quiet, "rescale": "sphere"}).embedding_out(e, seen(300))
    assert torch.allclose(sphere.norm(dim=1), torch.tensor(CLIP), rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"rescale": "sphere"}])
def test_what_is_released_is_whole_steps_from_the_truncated_rows(options):
    """Exactly representable lattice points, whatever the rescaling; broken rows count as zeros."""
    one = passive({**BUDGET, **options})
    e = embedding(300)
    e[3, 0] = float("nan")
    released = one.embedding_out(e, seen(300)).double() / lattice_step(one.metrics()["sigma"], CLIP)
    assert torch.equal(released, released.round())
    assert float(released.abs().max()) < 2**24
    low = torch.bincount(released.long().flatten() % 8, minlength=8)
    assert stats.chisquare(low.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("clip", [1e-31, 1e31])
def test_a_clip_that_no_lattice_holds_is_refused_before_anything_is_sent(clip):
    with pytest.raises(ConfigError, match=r"from 2\^-100 to 2\^100 .* scale rows, clip and noise"):
        build("dp_embedding", {**BUDGET, "clip": clip}, "privacy").event(PLAN)
    with pytest.raises(ConfigError, match=r"from 2\^-100 to 2\^100"):
        passive({**BUDGET, "clip": clip})


def test_a_broken_row_is_released_as_noise_alone():
    e = embedding(4)
    e[1, 0], e[2, 0] = float("nan"), float("inf")
    released = passive(BUDGET).embedding_out(e, seen(4))
    assert bool(released.isfinite().all())


def test_metrics_are_taken_from_what_was_sent():
    """Root mean square norm over C, and over the noise's, from the noisy rows: right to a percent on many rows."""
    one = passive({"clip": CLIP, "noise_multiplier": 0.2})
    e = embedding()
    released = one.embedding_out(e, seen())
    clipped = e * (CLIP / e.norm(dim=1, keepdim=True)).clamp(max=1)
    norm = float(clipped.norm(dim=1).square().mean().sqrt())
    metrics = one.metrics()
    assert metrics["norm_over_clip"] == pytest.approx(norm / CLIP, rel=0.03)
    assert metrics["signal_to_noise"] == pytest.approx(norm / (0.2 * 2 * CLIP * math.sqrt(WIDTH)), rel=0.03)
    assert metrics["rows"] == N
    again = passive({"clip": CLIP, "noise_multiplier": 0.2})
    resume(again, saved(one))
    assert again.metrics() == metrics
    other = passive({"clip": CLIP, "noise_multiplier": 0.2})
    other.counts = {"rows": N, "squares": float(released.double().square().sum()), "width": WIDTH}
    assert other.metrics() == pytest.approx(metrics)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": 0.0}, r"dp_embedding\.clip: expected greater than 0"),
        ({"clip": -1.0}, r"dp_embedding\.clip: expected greater than 0"),
        ({"clip": float("inf")}, r"dp_embedding\.clip: expected a finite number"),
        ({"epsilon": 0.0}, r"dp_embedding\.epsilon: expected greater than 0"),
        ({"epsilon": float("nan")}, r"dp_embedding\.epsilon: expected a finite number"),
        ({"delta": 0.0}, r"dp_embedding\.delta: expected greater than 0"),
        ({"delta": 1.0}, r"dp_embedding\.delta: expected less than 1"),
        ({"noise_multiplier": 1.0}, "got epsilon and delta and noise_multiplier"),
        ({"epsilon": None, "delta": None}, "got none"),
        ({"delta": None}, "got epsilon;"),
        ({"epsilon": None, "delta": None, "noise_multiplier": 0.0}, "noise_multiplier: expected greater than 0"),
        ({"epsilon": None, "delta": None, "noise_multiplier": 1.0, "per": "release"}, "per with epsilon and delta"),
        (
            {"epsilon": None, "delta": None, "noise_multiplier": 1.0, "per": "run", "calibration": "exact"},
            "calibration and per with epsilon and delta",
        ),
        ({"calibration": "classical"}, "got per: run"),
        ({"rescale": "paper"}, "rescale: expected 'off' or 'sphere', got 'paper'; .* cutlayer-published"),
        ({"epsilno": 1.0}, "did you mean 'epsilon'"),
    ],
)
def test_bad_options_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        build("dp_embedding", {**BUDGET, **options}, "privacy")


def test_it_is_a_passive_partys():
    with pytest.raises(ConfigError, match="in the part of the passive party"):
        build_chain("bank", "active", {"dp_embedding": BUDGET}, "privacy")


def test_a_budget_of_the_same_size_pays_for_exactly_the_plan():
    chain = build_chain("telco", "passive", {"dp_embedding": BUDGET, "budget": {"epsilon": 8.0, "delta": 1e-5}}, "p")
    account = chain.account(PLAN)
    assert isinstance(account, Account)
    assert (account.planned, account.allowed) == (20, 20)


def test_the_default_context_plan_is_what_the_noise_is_for():
    assert context().plan.max_releases == 1
    assert passive(BUDGET, ReleasePlan(1)).metrics()["sigma"] == pytest.approx(2 * CLIP / mu_of(8, 1e-5), rel=1e-6)


@pytest.mark.parametrize("changed", [{"clip": 2 * CLIP}, {"noise_multiplier": 1.4}])
def test_two_scales_of_noise_on_the_same_rows_do_not_cancel(changed):
    """The attack: with one draw at two scales, rows = (s2 r1 - s1 r2) / (s2 - s1), whatever epsilon is."""
    options, rows = {"clip": CLIP, "noise_multiplier": 0.7}, embedding() * CLIP / 10
    first, second = (passive(some).embedding_out(rows, seen()).double() for some in (options, options | changed))
    solved = 2 * first - second
    assert float((solved - rows).abs().mean()) > CLIP
