"""Marvell in its published form: what it adds, measured against the solver, and the batches it must not fail on."""

import math

import numpy as np
import pytest
import torch

from cutlayer.errors import ConfigError, DataError, NotApplicable
from cutlayer.kernels.noise.marvell import minimise_sum_kl
from cutlayer.protections import REGISTRY, build, build_chain
from cutlayer.protections.contract.keyed_noise import Noise
from tests.protections.setup import gradients, protection, resume, saved, view

DRAWS = 100


def marvell_of(options, **other):
    return protection("marvell", {"form": "paper", **options}, **other)


def naive(g, positive):
    """u, v, d, g, p and the difference of means, by definition."""
    g = g.double().numpy()
    pos, neg = g[positive.numpy()], g[~positive.numpy()]
    difference = pos.mean(0) - neg.mean(0)
    return (
        neg.var(0).mean(),
        pos.var(0).mean(),
        g.shape[1],
        float(difference @ difference),
        len(pos) / len(g),
        difference,
    )


def noises(marvell, g, labels, draws=DRAWS):
    """Noise of several steps on the same gradient, (draws, n, width)."""
    return np.stack([(marvell.gradient_out(g, "telco", view(labels, s)) - g).double().numpy() for s in range(draws)])


def along_and_across(noise, difference):
    unit = difference / np.linalg.norm(difference)
    along = noise @ unit
    across = noise - along[..., None] * unit
    return (along**2).mean(), (across**2).sum(-1).mean() / (noise.shape[-1] - 1), along.size


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_each_class_gets_the_variances_of_the_optimum(share):
    g, labels = gradients(200, 6, share=share)
    u, v, d, distance, p, difference = naive(g, labels == 1)
    optimum = minimise_sum_kl(u, v, d, distance, p, 2.0 * distance)
    drawn = noises(marvell_of({"s": 2.0}), g, labels)
    expected = {0: (optimum.lam10, optimum.lam20), 1: (optimum.lam11, optimum.lam21)}
    for code, (lam1, lam2) in expected.items():
        along, across, count = along_and_across(drawn[:, (labels == code).numpy()], difference)
        error = 4 * math.sqrt(2 / count)
        assert along == pytest.approx(lam1, rel=error)
        assert across == pytest.approx(lam2, rel=error, abs=1e-9 * lam1)
        for wrong in (2 / 3, 3 / 2):
            assert wrong * along != pytest.approx(lam1, rel=error)
    spent = (drawn**2).sum(-1).mean()
    assert spent == pytest.approx(2.0 * distance, rel=0.04)


def test_the_noises_of_all_rows_and_directions_are_independent():
    signs = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    # The classes' means differ in the first column alone, so that the last two hold no noise along the difference. The
    # narrow class gets noise in every direction, the wide one along the difference only.
    narrow, wide = torch.full((4, 1), -1.0), torch.full((4, 1), 1.0)
    g = torch.cat([torch.cat([narrow, 0.1 * signs], 1), torch.cat([wide, 2 * signs], 1)])
    labels = torch.tensor([0] * 4 + [1] * 4)
    drawn = noises(marvell_of({"s": 2.0}), g, labels, draws=300)
    noised = drawn.reshape(len(drawn), -1)[:, (drawn.std(0) > 1e-6).reshape(-1)]
    assert noised.shape[1] == 4 * 3 + 4
    # Noises that share their random bits need not correlate, but their squares do.
    for values in (noised, noised**2):
        correlations = np.corrcoef(values.T) - np.eye(noised.shape[1])
        assert abs(correlations).max() < 6 / math.sqrt(len(drawn))


@pytest.mark.parametrize("scale", [1.0, 1e-10])
def test_the_noised_batch_has_the_sum_kl_that_was_asked_for(scale):
    g, labels = gradients(400, 8, scale=scale)
    marvell = marvell_of({"sum_kl": 0.3})
    drawn = noises(marvell, g, labels)
    u, v, d, distance, _, difference = naive(g, labels == 1)
    spread = {}
    for code, own in ((0, u), (1, v)):
        along, across, _ = along_and_across(drawn[:, (labels == code).numpy()], difference)
        spread[code] = (own + along, own + across)
    (b0, a0), (b1, a1) = spread[0], spread[1]
    twice = (d - 1) * (a0 / a1 + a1 / a0) + (b0 + distance) / b1 + (b1 + distance) / b0 - 2 * d
    assert twice / 2 == pytest.approx(0.3, rel=0.06)
    assert marvell.metrics()["mean_sum_kl"] == pytest.approx(0.3, rel=1e-9)
    assert marvell.metrics()["batches_already_satisfying"] == 0


def test_the_targets_agree():
    g, labels = gradients(300, 8)
    sent = marvell_of({"sum_kl": 0.16}).gradient_out(g, "telco", view(labels))
    power = marvell_of({"sum_kl": 0.16})
    power.gradient_out(g, "telco", view(labels))
    by_s = marvell_of({"s": power.metrics()["mean_power_over_g"]})
    torch.testing.assert_close(by_s.gradient_out(g, "telco", view(labels)), sent, rtol=1e-5, atol=1e-12)


def test_a_batch_that_satisfies_the_target_is_left_and_counted():
    g, labels = gradients(300, 8)
    marvell = marvell_of({"sum_kl": 1e4})
    assert torch.equal(marvell.gradient_out(g, "telco", view(labels)), g)
    metrics = marvell.metrics()
    assert metrics["batches_already_satisfying"] == metrics["batches"] == 1
    assert metrics["mean_power_over_g"] == 0
    u, v, d, distance, p, _ = naive(g, labels == 1)
    assert metrics["mean_sum_kl"] == pytest.approx(minimise_sum_kl(u, v, d, distance, p, 0.0).sum_kl, rel=1e-6)


def test_equal_means_and_dead_parties_get_none():
    marvell = marvell_of({"sum_kl": 0.16})
    labels = torch.tensor([0, 1, 0, 1])
    for g in (torch.zeros(4, 2), torch.tensor([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]])):
        assert torch.equal(marvell.gradient_out(g, "telco", view(labels)), g)
    assert marvell.metrics()["batches_without_difference"] == 2
    assert all(math.isfinite(value) for value in marvell.metrics().values())


def test_a_batch_of_one_class_is_withheld_until_statistics_are_known_and_then_served():
    g, labels = gradients(300, 8)
    ones = torch.ones_like(labels)
    marvell = marvell_of({"sum_kl": 0.16})
    assert not marvell.gradient_out(g, "telco", view(ones)).any()
    marvell.gradient_out(100 * g, "telco", view(labels))
    marvell.gradient_out(g, "telco", view(labels, 1))
    served = marvell.gradient_out(g, "telco", view(ones, 2))
    u, v, d, distance, p, difference = naive(g, labels == 1)
    lam11 = minimise_sum_kl(u, v, d, distance, p, marvell.metrics()["mean_power_over_g"] * distance).lam11
    along, _, count = along_and_across((served - g).double().numpy(), difference)
    assert along == pytest.approx(lam11, rel=4 * math.sqrt(2 / count))
    assert not marvell.gradient_out(g, "shop", view(ones, 2)).any()
    metrics = marvell.metrics()
    assert (metrics["one_class_batches_withheld"], metrics["one_class_batches_served"], metrics["batches"]) == (2, 1, 5)


def test_a_batch_of_one_class_never_leaves_without_noise():
    g, labels = gradients(300, 8)
    marvell = marvell_of({"sum_kl": 1e4})
    marvell.gradient_out(g, "telco", view(labels))
    assert not marvell.gradient_out(g, "telco", view(torch.zeros_like(labels), 1)).any()


def test_a_class_of_one_row_and_a_batch_of_one_row():
    g, labels = gradients(50, 8)
    labels = torch.zeros_like(labels)
    labels[7] = 1
    marvell = marvell_of({"sum_kl": 0.16})
    sent = marvell.gradient_out(g, "telco", view(labels))
    assert bool(sent.isfinite().all())
    assert bool((sent != g).any(1).all())
    assert marvell.gradient_out(g[:1], "telco", view(labels[:1], 1)).shape == (1, 8)


def test_width_one_and_constant_classes():
    labels = torch.tensor([0, 0, 0, 1, 1])
    g = torch.where(labels == 1, 2.0, -1.0)[:, None]
    for width in (1, 5):
        marvell = marvell_of({"sum_kl": 0.16})
        sent = marvell.gradient_out(g.repeat(1, width), "telco", view(labels))
        noise = sent - g.repeat(1, width)
        assert bool((noise[:, :1] != 0).all())
        torch.testing.assert_close(noise, noise[:, :1].repeat(1, width), rtol=0, atol=1e-4)


def test_several_classes_are_each_hidden_from_the_rest():
    g, labels = gradients(300, 6, classes=3)
    marvell = marvell_of({"s": 2.0}, classes=3)
    drawn = noises(marvell, g, labels)
    for code in range(3):
        u, v, d, distance, p, difference = naive(g, labels == code)
        optimum = minimise_sum_kl(u, v, d, distance, p, 2.0 * distance)
        along, across, count = along_and_across(drawn[:, (labels == code).numpy()], difference)
        assert along == pytest.approx(optimum.lam11, rel=4 * math.sqrt(2 / count))
        assert across == pytest.approx(optimum.lam21, rel=4 * math.sqrt(2 / count), abs=1e-9 * optimum.lam11)
    assert marvell.metrics()["mean_power_over_g"] == pytest.approx(2.0)


def test_a_class_in_the_middle_does_not_leave_the_later_classes_bare():
    # The mean of class 0 is that of all other rows: it needs no noise, and the two others do.
    g = torch.tensor([[0.0, 0.1], [0.0, -0.1], [1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    sent = marvell_of({"s": 2.0}, classes=3).gradient_out(g, "telco", view(labels))
    assert (sent != g).any(1).tolist() == [False, False, True, True, True, True]


def test_a_multi_class_batch_without_some_classes():
    g, labels = gradients(300, 6, classes=3)
    marvell = marvell_of({"sum_kl": 0.16}, classes=5)
    sent = marvell.gradient_out(g, "telco", view(labels))
    assert bool((sent != g).any(1).all())
    assert not marvell.gradient_out(g, "telco", view(torch.full_like(labels, 4), 1)).any()
    assert marvell.gradient_out(g, "telco", view(torch.full_like(labels, 2), 2)).any()


def test_noise_repeats_for_the_same_key_step_and_peer_only():
    g, labels = gradients(100, 6)
    first = marvell_of({"sum_kl": 0.16}).gradient_out(g, "telco", view(labels, 5))
    assert torch.equal(
        marvell_of({"sum_kl": 0.16}).gradient_out(g.clone(), "telco", view(labels, 5)),
        first,
    )
    for peer, step, noise in (("telco", 6, None), ("shop", 5, None), ("telco", 5, Noise(bytes(32)))):
        other = marvell_of({"sum_kl": 0.16}, **({"noise": noise} if noise else {}))
        assert not torch.equal(other.gradient_out(g, peer, view(labels, step)), first)


def test_a_resumed_run_keeps_the_last_statistics():
    g, labels = gradients(100, 6)
    marvell, resumed = (marvell_of({"sum_kl": 0.16}) for _ in range(2))
    marvell.gradient_out(g, "telco", view(labels))
    resume(resumed, saved(marvell))
    ones = view(torch.ones_like(labels), 1)
    served = marvell.gradient_out(g, "telco", ones)
    assert served.any()
    assert torch.equal(resumed.gradient_out(g, "telco", ones), served)
    assert resumed.metrics() == marvell.metrics()


def test_gradients_that_are_no_numbers_are_not_sent():
    g, labels = gradients(50, 4)
    g[3, 2] = math.nan
    with pytest.raises(DataError):
        marvell_of({"sum_kl": 0.16}).gradient_out(g, "telco", view(labels))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either sum_kl or s, got none"),
        ({"sum_kl": 1.0, "s": 1.0}, "got both"),
        ({"sum_kl": -0.16}, "greater than 0, got -0.16; a sum_kl of 0.16 to 0.64 is a usual range"),
        ({"s": 1.0}, "sum_kl in form: past, got s; write form: paper with it"),
    ],
)
def test_refusals_say_what_is_recommended(options, message):
    with pytest.raises(ConfigError, match=message):
        build("marvell", options, "privacy")


def test_a_regression_and_a_second_noise_are_refused():
    with pytest.raises(NotApplicable, match="marvell"):
        marvell_of({"s": 1.0}, kind="regression")
    with pytest.raises(ConfigError, match="keep one of them"):
        build_chain("bank", "active", {"marvell": {"sum_kl": 1.0}, "max_norm": None}, "privacy")


def test_one_noise_per_message():
    noisy = {"marvell", "max_norm", "iso_noise", "noisy_gradient", "ppdl"}
    for item in noisy - {"max_norm"}:
        assert noisy - {item} <= REGISTRY[item].excludes
    assert REGISTRY["gradient_compression"].rank < REGISTRY["noisy_gradient"].rank
