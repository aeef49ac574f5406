"""The bootstrap interval: as a plain bootstrap gives it, honest, repeatable and bounded."""

import math

import numpy as np
import pytest

from cutlayer.errors import ConfigError
from cutlayer.problem.metrics import bootstrap
from cutlayer.problem.metrics.bootstrap import auc_replicates
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.training.utility import percentile_interval


def sample(rows, share, shift, seed=0):
    draw = np.random.default_rng(seed)
    truth = draw.random(rows) < share
    return draw.normal(size=rows) + shift * truth, truth


def auc_interval(scores, truth, repeats=1000, seed=0):
    return percentile_interval(auc_replicates(scores, truth, repeats, seed))


def plain(scores, truth, repeats=1000):
    """The bootstrap as in the textbook: redraw rows, sort again."""
    draw = np.random.default_rng(77)
    picks = (draw.integers(len(truth), size=len(truth)) for _ in range(repeats))
    return np.array([roc_auc(scores[pick], truth[pick]) for pick in picks])


@pytest.mark.parametrize(("rows", "share", "shift"), [(200, 0.3, 0.5), (800, 0.5, 0.0), (2100, 0.25, 1.0)])
def test_agrees_with_the_plain_bootstrap(rows, share, shift):
    scores, truth = sample(rows, share, shift)
    ours, theirs = auc_replicates(scores, truth, repeats=2000), plain(scores, truth)
    assert ours.mean() == pytest.approx(theirs.mean(), abs=5 * theirs.std() / 1000**0.5)
    assert ours.std() == pytest.approx(theirs.std(), rel=0.1)
    np.testing.assert_allclose(
        auc_interval(scores, truth), np.quantile(theirs, [0.025, 0.975]), atol=0.25 * theirs.std()
    )


@pytest.mark.parametrize("shift", [0.5, 4.0])
def test_merging_neighbours_changes_nothing_that_shows(monkeypatch, shift):
    scores, truth = sample(1000, 0.2, shift)
    merged = auc_replicates(scores, truth, repeats=2000)
    monkeypatch.setattr(bootstrap, "MAX_GROUPS", 10**9)
    apart = auc_replicates(scores, truth, repeats=1000)
    assert merged.mean() == pytest.approx(apart.mean(), abs=5 * apart.std() / 1000**0.5)
    assert merged.std() == pytest.approx(apart.std(), rel=0.1)


def test_merged_groups_keep_every_pair():
    scores, truth = sample(30_000, 0.1, 0.7)
    groups, inner = bootstrap._merged(bootstrap.tie_groups(scores, truth))
    assert len(inner) <= bootstrap.MAX_GROUPS
    below = np.cumsum(groups.negatives) - groups.negatives
    won = (groups.positives * (below + inner * groups.negatives)).sum()
    assert won / (truth.sum() * (~truth).sum()) == pytest.approx(roc_auc(scores, truth), abs=1e-12)


def test_ties_count_half():
    truth = np.arange(400) % 2 == 0
    assert auc_interval(np.zeros(400), truth) == (0.5, 0.5)


def test_covers_chance_about_as_often_as_it_says():
    covered = 0
    for seed in range(100):
        scores, truth = sample(300, 0.4, 0.0, seed)
        low, high = auc_interval(scores, truth, repeats=300)
        covered += low <= 0.5 <= high
    assert 88 <= covered <= 99


def test_sees_a_weak_leak():
    scores, truth = sample(8192, 0.25, 0.2)
    low, high = auc_interval(scores, truth)
    assert 0.5 < low < roc_auc(scores, truth) < high


def test_the_seed_decides():
    scores, truth = sample(500, 0.3, 0.5)
    before = np.random.get_state()[1].copy()
    assert auc_interval(scores, truth, seed=3) == auc_interval(scores, truth, seed=3)
    assert auc_interval(scores, truth, seed=3) != auc_interval(scores, truth, seed=4)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_degenerate_truths():
    assert all(math.isnan(end) for end in auc_interval(np.arange(5.0), np.ones(5, bool)))
    assert all(math.isnan(end) for end in auc_interval(np.zeros(0), np.zeros(0, bool)))
    assert auc_interval(np.arange(100.0), np.arange(100) > 50) == (1.0, 1.0)
    few = auc_replicates(np.arange(10.0), np.arange(10) == 9, repeats=500)
    assert 0.2 < np.isnan(few).mean() < 0.5


def test_no_repeats_are_refused():
    with pytest.raises(ConfigError, match="expected"):
        auc_replicates(np.arange(4.0), np.arange(4) > 1, repeats=0)
