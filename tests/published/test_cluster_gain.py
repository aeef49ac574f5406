"""The gain of clusters against plain loops over pairs, its mean over all shuffles, and its extremes."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
import torch

from cutlayer.errors import DataError
from cutlayer_published.embedding.cluster_gain import cluster_gain


def looped(rows, labels):
    z = [row / np.linalg.norm(row) if row.any() else row for row in np.asarray(rows, dtype=np.float64)]
    cosines = {pair: float(z[pair[0]] @ z[pair[1]]) for pair in combinations(range(len(z)), 2)}
    within = [value for (i, j), value in cosines.items() if labels[i] == labels[j]]
    overall = np.mean(list(cosines.values()))
    return (np.mean(within) - overall) / (1 - overall)


@pytest.mark.parametrize("zeros", [0, 2])
def test_it_is_that_of_plain_loops(zeros):
    draw = np.random.default_rng(1)
    rows, labels = draw.normal(size=(30, 4)) + 0.5, draw.integers(0, 5, 30)
    rows[:zeros] = 0.0
    assert cluster_gain(torch.from_numpy(rows), torch.from_numpy(labels)) == pytest.approx(looped(rows, labels))
    scaled = 1e6 * torch.from_numpy(rows)
    assert cluster_gain(scaled, torch.from_numpy(labels)) == pytest.approx(looped(rows, labels))


def test_its_mean_over_all_shuffles_is_0():
    rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(2)) + 1.0
    gains = [cluster_gain(rows, torch.tensor(labels)) for labels in permutations([0, 0, 0, 1, 1, 2])]
    assert sum(gains) / len(gains) == pytest.approx(0.0, abs=1e-9)
    assert max(gains) > 0.1


def test_it_is_1_where_clusters_coincide_and_negative_where_they_are_worse_than_shuffled():
    rows = torch.eye(3).repeat_interleave(4, dim=0)
    assert cluster_gain(rows, torch.arange(3).repeat_interleave(4)) == pytest.approx(1.0)
    assert cluster_gain(rows, torch.arange(4).repeat(3)) < 0


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 0]])
def test_clusters_that_cannot_be_better_than_shuffled_have_none(labels):
    assert cluster_gain(torch.ones(3, 2), torch.tensor(labels)) == 0.0


def test_rows_and_labels_must_fit():
    with pytest.raises(DataError, match="expected rows"):
        cluster_gain(torch.ones(3, 2), torch.zeros(2, dtype=torch.int64))
