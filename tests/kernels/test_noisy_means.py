"""Posterior means of noisy cells: shrinkage, smoothing, and a Gaussian process against its own formula."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from cutlayer.kernels.fits.noisy_means import posterior_mean


def test_means_without_order_are_shrunk_by_their_own_noise() -> None:
    """Means of variance 4 with noise of variance 1 and 4: factors of .8 and .5."""
    draw = np.random.default_rng(0)
    error = np.tile([1.0, 4.0], 20_000)
    truth = draw.normal(0, 2, (len(error), 2))
    found = truth + draw.normal(0, 1, truth.shape) * np.sqrt(error)[:, None]
    shrunk = posterior_mean(found, error, np.ones(len(error)), 9.0, ordered=False)
    np.testing.assert_allclose(shrunk[::2], found[::2] * 0.8, rtol=0.03)
    np.testing.assert_allclose(shrunk[1::2], found[1::2] * 0.5, rtol=0.03)


def test_noise_alone_leaves_next_to_nothing() -> None:
    found = np.random.default_rng(1).normal(size=(40, 2))
    for ordered in (False, True):
        assert np.abs(posterior_mean(found, np.ones(40), np.ones(40), 9.0, ordered=ordered)).mean() < 0.3


def test_means_of_few_cells_are_no_larger_than_they_may_be() -> None:
    """Noise of three cells can pass for means of any variance."""
    found, error = np.array([[30.0], [-30.0], [0.0]]), np.full(3, 100.0)
    for ordered in (False, True):
        assert np.abs(posterior_mean(found, error, np.ones(3), 1.0, ordered=ordered)).max() == pytest.approx(30 / 101)
    many, noise = np.tile(found, (10, 1)), np.full(30, 100.0)
    assert np.abs(posterior_mean(many, noise, np.ones(30), 1.0, ordered=True)).max() < 1


def test_a_smooth_effect_is_found_better_by_its_order() -> None:
    draw = np.random.default_rng(2)
    truth = np.sin(np.linspace(0, 4, 40))[:, None]
    errors = {True: 0.0, False: 0.0}
    for _ in range(10):
        found = truth + draw.normal(0, 0.7, truth.shape)
        for ordered in errors:
            made = posterior_mean(found, np.full(40, 0.49), np.ones(40), 9.0, ordered=ordered)
            errors[ordered] += float(((made - truth) ** 2).mean())
    assert errors[True] < 0.6 * errors[False]


def test_a_frequent_value_among_smooth_ones_keeps_its_own_mean() -> None:
    truth = np.zeros((30, 1))
    truth[12] = 3.0
    counts, error = np.full(30, 100.0), np.full(30, 0.05)
    counts[12], error[12] = 3000.0, 0.002
    found = truth + np.random.default_rng(3).normal(size=truth.shape) * np.sqrt(error)[:, None]
    made = posterior_mean(found, error, counts, 9.0, ordered=True)
    assert made[12, 0] == pytest.approx(3.0, abs=0.15)
    assert np.abs(np.delete(made[:, 0], 12)).max() < 0.5


def test_the_process_is_that_of_scikit_learn() -> None:
    """Its posterior mean under the prior of largest likelihood, an Ornstein-Uhlenbeck process."""
    draw = np.random.default_rng(4)
    places = (np.arange(30)[:, None] + 0.5) / 30
    truth = np.cumsum(draw.normal(0, 0.4, 30))
    found = (truth - truth.mean() + draw.normal(0, 0.3, 30))[:, None]
    made = posterior_mean(found, np.full(30, 0.09), np.ones(30), 99.0, ordered=True)
    most = max(float((found**2).mean()) - 0.09, 0.009)
    processes = [
        GaussianProcessRegressor(
            ConstantKernel(scale * most * smooth) * Matern(length, nu=0.5)
            + WhiteKernel(max(scale * most * (1 - smooth), 1e-12)),
            alpha=0.09,
            optimizer=None,
        ).fit(places, found[:, 0])
        for length in (0.05, 0.2, 0.6)
        for smooth in (1.0, 0.8, 0.4)
        for scale in (0.03, 0.1, 0.3, 1.0, 3.0)
    ]
    best = max(processes, key=lambda process: process.log_marginal_likelihood_value_)
    kernel = best.kernel_
    alone = float(kernel.k2.noise_level) * np.eye(30) if kernel.k2.noise_level > 1e-9 else np.zeros((30, 30))
    prior = kernel.k1(places) + alone
    expected = prior @ np.linalg.solve(prior + 0.09 * np.eye(30), found)
    assert made == pytest.approx(expected, abs=1e-6)
