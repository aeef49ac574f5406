"""Concordance against a count of all pairs, and its interval against repeated draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cutlayer.kernels.concordance import concordance, concordance_interval
from cutlayer.kernels.roc import roc_auc


def counted(scores: np.ndarray, labels: np.ndarray) -> float:
    """Chance over all pairs of rows."""
    pairs = [(scores[a] - scores[b]) * (labels[a] - labels[b]) > 0 for a in range(len(scores)) for b in range(a)]
    return float(np.mean(pairs))


def test_it_is_the_share_of_pairs_in_the_same_order() -> None:
    draw = np.random.default_rng(0)
    scores, labels = draw.normal(size=60), draw.normal(size=60)
    labels += scores
    assert concordance(torch.tensor(scores), torch.tensor(labels)) == pytest.approx(counted(scores, labels), abs=1e-12)
    assert concordance(torch.tensor(-scores), torch.tensor(labels)) == pytest.approx(
        1 - counted(scores, labels), abs=1e-12
    )


def test_equal_labels_have_none() -> None:
    assert math.isnan(concordance(torch.arange(5.0), torch.ones(5)))


def test_of_two_labels_it_ranks_as_the_auc_does() -> None:
    draw = torch.Generator().manual_seed(1)
    truth = torch.rand(500, generator=draw) < 0.5
    scores = torch.randn(500, generator=draw) + truth
    # Pairs of one class tie in the label, which tau-b corrects for: the order of both is the same, the scale is not.
    assert 0.5 < concordance(scores, truth.double()) < roc_auc(scores, truth)


def test_the_interval_covers_repeated_draws() -> None:
    draw = np.random.default_rng(2)
    values = []
    for _ in range(200):
        labels = draw.normal(size=300)
        values.append(concordance(torch.tensor(labels + draw.normal(size=300)), torch.tensor(labels)))
    expected = 0.75  # asin(1 / sqrt(2)) / pi + 1 / 2
    covered = [low <= expected <= high for low, high in (concordance_interval(value, 300) for value in values)]
    assert np.mean(covered) > 0.95
    low, high = concordance_interval(expected, 300)
    assert high - low < 6 * 2 * np.std(values), "it is conservative, and no more than three times too wide"
