"""Repeated observations: against the generalised eigenproblem, invariance, and noise that must vanish."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import torch

from cutlayer.kernels.statistics.repeated_mean import shrunk_mean


def observations(rows=4000, width=6, times=12, signal=1.0, seed=1):
    """A signal on two axes, the same in every observation, in correlated noise."""
    draw = np.random.default_rng(seed)
    truth = signal * draw.normal(size=(rows, 2))
    mixing = draw.normal(size=(width, width))
    directions = draw.normal(size=(2, width))
    made = [truth @ directions + draw.normal(size=(rows, width)) @ mixing * 2 for _ in range(times)]
    return truth, [torch.from_numpy(matrix) for matrix in made]


def test_the_generalised_eigenproblem_gives_the_same_variances():
    _, made = observations()
    present = torch.ones(len(made[0]), len(made), dtype=torch.bool)
    mean = np.mean([matrix.numpy() for matrix in made], axis=0)
    changes = np.concatenate([(a - b).numpy() for a, b in itertools.pairwise(made)])
    noise = changes.T @ changes / (2 * len(changes)) / len(made)
    variances = scipy.linalg.eigh(np.cov(mean.T, bias=True), noise, eigvals_only=True)[::-1]
    got = shrunk_mean(made, present).square().mean(dim=0).numpy()
    assert got == pytest.approx(np.maximum(variances - 1, 0), rel=1e-6, abs=1e-9)


def test_any_invertible_map_of_the_observations_gives_the_same_distances():
    _, made = observations(rows=500)
    present = torch.ones(500, len(made), dtype=torch.bool)
    mapping = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    plain = shrunk_mean(made, present)
    mapped = shrunk_mean([matrix @ mapping + 3 for matrix in made], present)
    assert torch.allclose(torch.cdist(plain, plain), torch.cdist(mapped, mapped), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("times", [4, 16, 64])
def test_the_two_axes_of_the_signal_predict_it_better_with_more_observations(times):
    truth, made = observations(times=times, signal=0.3)
    coordinates = shrunk_mean(made, torch.ones(len(truth), times, dtype=torch.bool)).numpy()[:, :2]
    residual = truth - coordinates @ np.linalg.lstsq(coordinates, truth, rcond=None)[0]
    explained = 1 - residual.var() / truth.var()
    # The worst axis of the plain mean has noise of standard deviation above 2; 4 observations leave most of it.
    assert explained > {4: 0.03, 16: 0.1, 64: 0.3}[times]


def test_noise_alone_leaves_next_to_nothing():
    _, noise = observations(signal=0.0)
    _, signal = observations(signal=1.0)
    present = torch.ones(len(noise[0]), len(noise), dtype=torch.bool)
    left = float(shrunk_mean(noise, present).square().sum(dim=1).mean())
    assert left < 0.3  # of 6 axes of variance 1 before shrinking, by the spread of their estimates
    assert float(shrunk_mean(signal, present).square().sum(dim=1).mean()) > 10 * left


def test_rows_count_by_the_observations_that_they_have():
    truth, made = observations(rows=600, times=6)
    present = torch.rand(600, 6, generator=torch.Generator().manual_seed(3)) < 0.7
    present[0] = False
    masked = [matrix * held[:, None] for matrix, held in zip(made, present.T, strict=True)]
    got = shrunk_mean(masked, present)
    assert not got[0].any()
    assert got.isfinite().all()
    correlation = np.corrcoef(got[present.any(dim=1), 0].numpy(), truth[present.any(dim=1).numpy()].T)[0, 1:]
    assert np.abs(correlation).max() > 0.5


def test_rows_that_were_never_observed_twice_have_no_coordinates():
    _, made = observations(rows=40, times=2)
    present = torch.zeros(40, 2, dtype=torch.bool)
    present[:20, 0] = present[20:, 1] = True
    assert not shrunk_mean(made, present).any()
