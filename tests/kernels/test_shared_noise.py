"""The noise that all classes share: against a general-purpose optimiser, and the bound on tests of a row's sign."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm

from cutlayer.errors import DataError
from cutlayer.kernels.noise.shared_noise import bounded_rows, class_second_moments, leak_of_sum_kl, shared_noise


def rows(n=400, d=5, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=draw) * torch.tensor([4.0, 1.0, 0.5, 0.1, 0.02])[:d], torch.arange(n) % 3 // 2


def sizes(labels, classes):
    return torch.bincount(labels, minlength=classes).tolist()


def divergence(second_moment, covariance):
    return float(4 * torch.linalg.solve(covariance, second_moment).trace())


def auc(scores, labels):
    positive, negative = scores[labels == 1], scores[labels == 0]
    return float((positive[:, None] > negative).double().mean())


def test_second_moments_are_of_each_class_around_zero():
    g, labels = rows()
    moments = class_second_moments(g, labels, sizes(labels, 3))
    for code in (0, 1):
        own = g[labels == code].double().numpy()
        np.testing.assert_allclose(moments[code].numpy(), own.T @ own / len(own), rtol=1e-12)
    assert not moments[2].any()


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e9])
def test_the_noise_leaves_the_divergence_that_was_asked_for(scale):
    g, labels = rows()
    moment = class_second_moments(scale * g.double(), labels, sizes(labels, 2)).mean(0)
    root = shared_noise(moment, 0.16)
    assert divergence(moment, root @ root.T) == pytest.approx(0.16, rel=1e-9)


def test_no_covariance_reaches_it_with_less_power():
    g, labels = rows(d=3)
    moment = class_second_moments(g, labels, sizes(labels, 2)).mean(0)
    root = shared_noise(moment, 0.5)

    def power(entries):
        lower = torch.zeros(3, 3, dtype=torch.float64)
        lower[tuple(torch.tril_indices(3, 3))] = torch.from_numpy(entries)
        covariance = lower @ lower.T
        # Scaling a covariance divides its divergence, so that the constraint can be put into the objective.
        return float(covariance.trace()) * divergence(moment, covariance) / 0.5

    best = minimize(power, np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]), method="BFGS").fun
    assert float(root.square().sum()) == pytest.approx(best, rel=1e-5)
    assert float(root.square().sum()) < 0.9 * 3 * divergence(moment, torch.eye(3, dtype=torch.float64)) / 0.5


def test_there_is_noise_in_directions_without_a_gradient():
    root = shared_noise(torch.diag(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)), 0.16)
    variances = (root @ root.T).diagonal()
    assert 0 < float(variances[1]) == pytest.approx(1e-7 * float(variances[0]))


@pytest.mark.parametrize("strength", [1.0, 2 / 3])
def test_the_bound_holds_against_an_attacker_who_knows_each_gradient_but_for_its_sign(strength):
    g, labels = rows(n=6000)
    root = shared_noise(class_second_moments(g, labels, sizes(labels, 2)).mean(0), 0.64)
    signs = 2.0 * labels.double()[:, None] - 1
    draw = torch.Generator().manual_seed(1)
    sent = signs * g.double() + strength * torch.randn(g.shape, generator=draw, dtype=torch.float64) @ root.T
    # The likelihood ratio of the two signs of every row, which no other score of it beats.
    read = auc((sent @ torch.linalg.inv(root @ root.T) * g.double()).sum(1), labels)
    bound, error = leak_of_sum_kl(0.64), 3 / math.sqrt(len(g))
    assert (read < bound + error) == (strength == 1.0)
    assert read > bound - 0.06  # rows of unequal length leave it below the bound


def test_the_leak_of_a_divergence_is_that_of_two_gaussians():
    assert leak_of_sum_kl(0.0) == 0.5
    assert leak_of_sum_kl(1.7) == pytest.approx(norm.cdf(math.sqrt(1.7) / math.sqrt(2)), rel=1e-12)


@pytest.mark.parametrize("sum_kl", [0.0, -1.0, math.inf, math.nan])
def test_a_divergence_out_of_range_is_refused(sum_kl):
    with pytest.raises(DataError, match="a finite sum_kl > 0"):
        shared_noise(torch.eye(2, dtype=torch.float64), sum_kl)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_a_second_moment_that_is_none_is_refused(value):
    with pytest.raises(DataError, match="second moment"):
        shared_noise(torch.full((2, 2), value, dtype=torch.float64), 0.16)


def test_bounded_rows_stay_where_the_noise_was_made_for_them_and_lose_what_it_does_not_cover():
    rows = torch.randn(500, 4, generator=torch.Generator().manual_seed(2)).double() * torch.tensor([2.0, 1.0, 0.5, 0.0])
    rows = rows @ torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(3)).double()).Q
    moment = rows.T @ rows / len(rows)
    root = shared_noise(moment, 0.4)
    within, divergences = bounded_rows(rows, moment, root, 100.0)
    torch.testing.assert_close(within, rows, rtol=1e-6, atol=1e-9)
    precision = torch.linalg.inv(root @ root.T)
    torch.testing.assert_close(divergences, 4 * ((rows @ precision) * rows).sum(1), rtol=1e-6, atol=1e-9)
    assert float(divergences.mean()) == pytest.approx(0.4, rel=1e-6)
    # Ten times as long, and in a direction that no row had: what is left of a row has at most the bound.
    other, most = bounded_rows(10 * rows + torch.linalg.eigh(moment).eigenvectors[:, 0], moment, root, 3.0)
    assert float(most.max()) <= 9 * 0.4 * (1 + 1e-9)
    assert float(most.mean()) > 2 * 0.4
    assert float((other @ torch.linalg.eigh(moment).eigenvectors[:, 0]).abs().max()) < 1e-5
