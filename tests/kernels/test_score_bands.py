"""Bands of a score: against simulations, and against scikit-learn and SciPy."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm
from sklearn.metrics import mutual_info_score, roc_auc_score

from cutlayer.kernels.noise.informative_rows import expected_loss, informative_numbers, informative_rows, true_shares
from cutlayer.kernels.noise.score_bands import FINE_BANDS, bands_for, draw_channel, drawn_bits, information, merge_bands

CASES = ((0.5, 2), (2.0, 2), (4.0, 4), (8.0, 16))


@pytest.mark.parametrize(("epsilon", "bands"), CASES)
def test_the_ratio_of_any_two_grades_of_a_draw_is_e_to_the_epsilon(epsilon: float, bands: int) -> None:
    noise = draw_channel(epsilon, bands)
    assert noise.sum(axis=1) == pytest.approx(1)
    assert (noise.max(axis=0) / noise.min(axis=0)) == pytest.approx(math.exp(epsilon))


@pytest.mark.parametrize(("epsilon", "bands"), CASES)
def test_no_test_between_two_grades_is_better_than_that_of_randomised_response(epsilon: float, bands: int) -> None:
    noise = draw_channel(epsilon, bands)
    ratios = np.log(noise[0] / noise[1])
    scores, labels = np.tile(ratios.round(9), 2), np.repeat([1, 0], bands)
    best = roc_auc_score(labels, scores, sample_weight=np.concatenate([noise[0], noise[1]]))
    assert 0.5 < best <= 1 / (1 + math.exp(-epsilon)) + 1e-12


def test_information_is_scikit_learns() -> None:
    table = np.random.default_rng(0).integers(1, 9, size=(4, 3)).astype(float)
    assert information(table) == pytest.approx(mutual_info_score(None, None, contingency=table) / math.log(2))


def test_bits_of_noise_are_fewer_than_those_of_the_grade() -> None:
    shares = np.full(16, 1 / 16)
    assert (
        drawn_bits(0.01, shares)
        < 0.001
        < drawn_bits(4.0, shares)
        < drawn_bits(8.0, shares)
        < drawn_bits(None, shares)
        == pytest.approx(4)
    )


def test_merged_bands_keep_more_than_equal_ones_where_the_score_says_so() -> None:
    """Most bands of a rare class say the same: they are one, and the few that differ are apart."""
    share = np.concatenate([np.full(28, 0.01), np.linspace(0.2, 0.9, 4)])
    joint = np.stack([1 - share, share], axis=1)
    found = merge_bands(joint, 4.0, 4)
    assert list(found) == sorted(found)
    assert set(found) == {0, 1, 2, 3}
    assert (found[:27] == 0).all()

    assert _kept(joint, found, 4.0, 4) > 1.2 * _kept(joint, np.arange(FINE_BANDS) // 8, 4.0, 4)


def _kept(joint: np.ndarray, of_fine: np.ndarray, epsilon: float, bands: int) -> float:
    table = np.stack([joint[of_fine == band].sum(axis=0) for band in range(bands)])
    return information(draw_channel(epsilon, bands).T @ table)


@pytest.mark.parametrize(("epsilon", "bands"), [(1.0, 2), (3.0, 3), (4.0, 4)])
def test_no_other_division_and_no_other_draw_of_the_same_epsilon_keeps_more(epsilon: float, bands: int) -> None:
    """The bound is that of all draws whose probabilities have two values: one of them is the best of all draws."""
    draw = np.random.default_rng(3)
    share = np.sort(1 / (1 + np.exp(-draw.normal(-1, 1.5, size=10))))
    joint = np.stack([1 - share, share], axis=1) * draw.uniform(0.5, 1.5, size=(10, 1))
    found = _kept(joint, merge_bands(joint, epsilon, bands), epsilon, bands)
    divisions = [np.searchsorted(cut, np.arange(10), side="right") for cut in combinations(range(1, 10), bands - 1)]
    assert found == pytest.approx(max(_kept(joint, each, epsilon, bands) for each in divisions), abs=1e-12)
    patterns = np.array([np.where(each, math.exp(epsilon), 1.0) for each in product((0, 1), repeat=10)])
    drawn = patterns @ (joint / joint.sum())
    independent = drawn.sum(axis=1, keepdims=True) * joint.sum(axis=0) / joint.sum()
    said = (drawn * np.log2(drawn / independent)).sum(axis=1)
    bound = -linprog(-said, A_eq=patterns.T, b_eq=np.ones(10)).fun
    assert 0.985 * bound < found <= bound + 1e-9


def test_the_number_of_bands_follows_epsilon_up_to_the_most() -> None:
    assert [bands_for(epsilon, 16) for epsilon in (50.0, 8.0, 7.9, 6.0, 4.0, 3.0, 2.9, 0.1)] == [
        16, 16, 8, 8, 4, 3, 2, 2,
    ]  # fmt: skip
    assert bands_for(8.0, 5) == bands_for(None, 5) == 5


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.2, 0.3, 0.5)])
def test_shares_are_found_again_from_drawn_ones(shares: tuple[float, ...]) -> None:
    drawn = np.asarray(shares) @ draw_channel(1.0, len(shares))
    assert true_shares(drawn.tolist(), 1.0) == pytest.approx(shares)
    assert sum(true_shares([1.0, *[0.0] * (len(shares) - 1)], 1.0)) == pytest.approx(1)


def test_informative_rows_are_those_of_a_rate_that_is_estimated() -> None:
    """Of n drawn labels the true rate is estimated with the error of as many true labels of two equal classes."""
    n, share, epsilon = 2_000, 0.2, 1.0
    noise = draw_channel(epsilon, 2)
    rng = np.random.default_rng(0)
    drawn = rng.binomial(n, share * noise[1, 1] + (1 - share) * noise[0, 1], size=20_000) / n
    estimates = (drawn - noise[0, 1]) / (noise[1, 1] - noise[0, 1])
    logits = estimates.std() / (share * (1 - share))  # the error of the log odds
    assert informative_rows(n, (1 - share, share), epsilon) == pytest.approx(4 / logits**2, rel=0.02)


@pytest.mark.parametrize(("epsilon", "levels"), [(1.0, 2), (2.0, 3), (4.0, 5), (8.0, 17)])
@pytest.mark.parametrize("a", [1.0, 2.0, 4.0])
def test_rounding_to_levels_is_no_information_of_numbers(epsilon: float, levels: int, a: float) -> None:
    """Against the share of an unbiased estimate's variance that the numbers have, of even and of bell-shaped ones."""
    place = np.random.default_rng(0).beta(a, a, size=50_000) * (levels - 1)
    near = np.maximum(1 - np.abs(place[:, None] - np.arange(levels)), 0)
    noise = draw_channel(epsilon, levels)
    drawn = (near @ noise).mean(axis=0)
    means = (near @ noise) @ np.arange(levels)
    exact = 1_000 * means.var() / (drawn @ np.arange(levels) ** 2 - (drawn @ np.arange(levels)) ** 2)
    assert 0.5 < informative_numbers(1_000, drawn.tolist(), epsilon) / exact < 2


def test_fewer_informative_rows_and_weaker_columns_lose_more() -> None:
    losses = [expected_loss(rows, 10_000, 0.8) for rows in (10_000, 5_000, 500, 150, 5, 0)]
    assert losses == sorted(losses)
    assert losses[0] == 0  # nothing is lost where no label is changed
    assert losses[-1] == pytest.approx(0.3)  # what the score says is all that noise can take
    assert expected_loss(500, 10_000, 0.6) > 2 * expected_loss(500, 10_000, 0.8)
    assert expected_loss(500, 10_000, 0.8, rare=True) == pytest.approx(4 * expected_loss(500, 10_000, 0.8))
    assert informative_rows(1000, (0.5, 0.5), 0.0) == 0


@pytest.mark.parametrize(("distance", "epsilon"), [(0.8, 1.0), (1.2, 1.0), (1.2, 2.0)])
def test_the_loss_is_that_of_weights_fitted_to_drawn_labels(distance: float, epsilon: float) -> None:
    """Two normal classes, the direction between them estimated in 25 columns from labels as drawn: simulated."""
    rng, n, width = np.random.default_rng(0), 2_000, 25
    flip, lost = draw_channel(epsilon, 2)[0, 1], []
    means = np.zeros(width)
    means[0] = distance
    for _ in range(60):
        labels = rng.random(n) < 0.5
        x = rng.normal(size=(n, width)) + np.outer(labels, means)
        reached = []
        for given in (labels, labels ^ (rng.random(n) < flip)):
            weights = x[given].mean(axis=0) - x[~given].mean(axis=0)
            reached.append(norm.cdf(weights @ means / np.linalg.norm(weights) / math.sqrt(2)))
        lost.append(reached[0] - reached[1])
    rows = informative_rows(n, (0.5, 0.5), epsilon)
    assert expected_loss(rows, n, norm.cdf(distance / math.sqrt(2))) == pytest.approx(np.mean(lost), rel=0.3)
