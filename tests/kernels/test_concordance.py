"""Concordance against a count of all pairs, and its interval against repeated draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cutlayer.kernels.statistics.concordance import (
    concordance,
    concordance_interval,
    permuted_concordances,
    untied_share,
)
from cutlayer.problem.metrics.roc import roc_auc


def counted(scores: np.ndarray, labels: np.ndarray) -> float:
    """Chance over all pairs of rows with different labels."""
    first, second = np.triu_indices(len(scores), 1)
    same = np.sign((scores[first] - scores[second]) * (labels[first] - labels[second]))
    return float(0.5 + 0.5 * same[labels[first] != labels[second]].mean())


def test_it_is_the_share_of_pairs_in_the_same_order() -> None:
    draw = np.random.default_rng(0)
    scores, labels = draw.normal(size=60), draw.normal(size=60)
    labels += scores
    assert concordance(torch.tensor(scores), torch.tensor(labels)) == pytest.approx(counted(scores, labels), abs=1e-12)
    assert concordance(torch.tensor(-scores), torch.tensor(labels)) == pytest.approx(
        1 - counted(scores, labels), abs=1e-12
    )


@pytest.mark.parametrize("coarse", [(False, True), (True, False), (True, True)], ids=["labels", "scores", "both"])
def test_ties_count_half_and_rows_with_one_label_not_at_all(coarse: tuple[bool, bool]) -> None:
    draw = np.random.default_rng(3)
    scores, labels = draw.normal(size=60), draw.normal(size=60)
    labels += scores
    scores, labels = (np.round(x) if rough else x for x, rough in zip((scores, labels), coarse, strict=True))
    found = concordance(torch.tensor(scores), torch.tensor(labels))
    assert found == pytest.approx(counted(scores, labels), abs=1e-12)


def test_perfect_scores_of_values_that_repeat_reach_one() -> None:
    """Half of all people work 40 hours: tau-b of a perfect order would be 0.93."""
    labels = torch.tensor([40.0] * 50 + [float(hours) for hours in range(10, 60)])
    scores = labels + torch.linspace(0, 0.5, 100)
    assert concordance(scores, labels) == pytest.approx(1.0, abs=1e-12)
    assert concordance(-scores, labels) == pytest.approx(0.0, abs=1e-12)


def test_equal_labels_have_none_and_equal_scores_are_chance() -> None:
    assert math.isnan(concordance(torch.arange(5.0), torch.ones(5)))
    assert math.isnan(concordance(torch.ones(1), torch.ones(1)))
    assert concordance(torch.ones(5), torch.arange(5.0)) == 0.5


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_of_two_labels_it_is_the_auc(share: float) -> None:
    draw = torch.Generator().manual_seed(1)
    truth = torch.rand(500, generator=draw) < share
    scores = (torch.randn(500, generator=draw) + truth).round(decimals=1)
    assert concordance(scores, truth.double()) == pytest.approx(roc_auc(scores, truth), abs=1e-12)


def test_the_interval_covers_repeated_draws() -> None:
    draw = np.random.default_rng(2)
    values = []
    for _ in range(200):
        labels = draw.normal(size=300)
        values.append(concordance(torch.tensor(labels + draw.normal(size=300)), torch.tensor(labels)))
    expected = 0.75  # asin(1 / sqrt(2)) / pi + 1 / 2
    covered = [low <= expected <= high for low, high in (concordance_interval(value, 300) for value in values)]
    assert np.mean(covered) > 0.95
    low, high = concordance_interval(expected, 300.0)
    assert high - low < 6 * 2 * np.std(values), "it is conservative, and no more than three times too wide"


@pytest.mark.parametrize("distance", [0.0, 1.0])
def test_the_interval_covers_where_most_labels_are_equal(distance: float) -> None:
    """Of 400 rows 20 have another label: the pairs that differ are a tenth of all."""
    labels = torch.zeros(400)
    labels[:20] = 1
    rows = 400 * untied_share(labels)
    assert rows == pytest.approx(400 * (2 * 20 * 380) / (400 * 399))
    draw = torch.Generator().manual_seed(5)
    values = [concordance(torch.randn(400, generator=draw) + distance * labels, labels) for _ in range(200)]
    expected = float(np.mean(values))
    covered = [low <= expected <= high for low, high in (concordance_interval(value, rows) for value in values)]
    assert np.mean(covered) > 0.95
    uncorrected = [low <= expected <= high for low, high in (concordance_interval(value, 400) for value in values)]
    assert np.mean(uncorrected) < 0.9


def test_concordances_of_random_orders_are_those_of_all_pairs() -> None:
    """With ties in scores and values. The rest has a 2n-th of the variance: a deviation of 0.0012, the whole 0.024."""
    draw = np.random.default_rng(2)
    scores = np.stack([draw.normal(size=200), draw.integers(5, size=200)])
    orders = np.stack([draw.permutation(np.arange(200) // 3) for _ in range(20)], axis=1)
    found = permuted_concordances(scores, orders)
    wanted = [[counted(row, orders[:, column]) for column in range(20)] for row in scores]
    np.testing.assert_allclose(found, wanted, atol=0.006)
    assert np.std(found) == pytest.approx(0.024, rel=0.3)


def test_of_two_labels_they_are_aucs_and_of_one_nothing() -> None:
    draw = np.random.default_rng(4)
    scores, orders = draw.normal(size=(3, 90)).round(1), (draw.random((90, 2)) < 0.3).astype(np.int64)
    scores[0] += 3 * orders[:, 0]
    for row, column in np.ndindex(3, 2):
        auc = roc_auc(torch.tensor(scores[row]), torch.tensor(orders[:, column] == 1))
        assert permuted_concordances(scores, orders)[row, column] == pytest.approx(auc, abs=1e-12)
    assert np.isnan(permuted_concordances(scores, np.zeros((90, 1), np.int64))).all()
