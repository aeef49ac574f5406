"""ROC AUC: equal to scikit-learn's, ties and all."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from cutlayer.errors import DataError
from cutlayer.kernels.statistics.ranks import mean_ranks
from cutlayer.problem.metrics.roc import macro_auc, permuted_macro_aucs, roc_auc, tie_groups

tied = st.integers(2, 60).flatmap(
    lambda n: st.tuples(hnp.arrays(np.float64, n, elements=st.integers(-3, 3).map(float)), hnp.arrays(np.bool_, n))
)


@given(tied)
def test_equals_scikit_learn_with_ties(case):
    scores, truth = case
    if truth.all() or not truth.any():
        assert np.isnan(roc_auc(scores, truth))
    else:
        assert roc_auc(scores, truth) == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.003, 0.5, 0.98])
def test_equals_scikit_learn_on_many_rows(dtype, share):
    generator = torch.Generator().manual_seed(4)
    truth = torch.rand(20_000, generator=generator) < share
    scores = (torch.randn(20_000, generator=generator) + truth).to(dtype)
    assert roc_auc(scores, truth) == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)


@given(tied)
def test_turning_scores_round_gives_the_complement(case):
    scores, truth = case
    if truth.any() and not truth.all():
        assert roc_auc(-scores, truth) == pytest.approx(1 - roc_auc(scores, truth), abs=1e-15)


def test_infinities_are_only_extremes():
    scores = torch.tensor([float("-inf"), 0.0, 1.0, float("inf"), float("inf")])
    assert roc_auc(scores, torch.tensor([0, 1, 0, 1, 0])) == roc_auc(
        torch.tensor([-9.0, 0.0, 1.0, 9.0, 9.0]), torch.tensor([0, 1, 0, 1, 0])
    )


def test_integer_and_boolean_truth_mean_the_same():
    scores = torch.tensor([0.1, 0.7, 0.7, 0.9])
    assert roc_auc(scores, torch.tensor([0, 0, 1, 1])) == roc_auc(scores, torch.tensor([False, False, True, True]))


def test_groups_count_equal_scores_together():
    groups = tie_groups(np.array([2.0, 1.0, 2.0, 0.0, -0.0]), np.array([1, 0, 0, 1, 1]))
    assert groups.positives.tolist() == [2, 0, 1]
    assert groups.negatives.tolist() == [0, 1, 1]
    assert tie_groups(np.zeros(0), np.zeros(0, bool)).positives.tolist() == []


@pytest.mark.parametrize(
    ("scores", "truth", "message"),
    [
        ([0.0, float("nan")], [0, 1], "without NaN"),
        ([0.0, 1.0], [0, 2], "truth of 0 and 1, got values such as 2"),
        ([0.0, 1.0], [0, 1, 1], "one score and one label per row"),
    ],
)
def test_bad_input_is_refused(scores, truth, message):
    with pytest.raises(DataError, match=message):
        roc_auc(torch.tensor(scores), torch.tensor(truth))


def test_permuted_macro_aucs_are_those_of_scikit_learn_for_each_class():
    """Ties, infinities, other counts in every order, a class without rows, and an order of a single class."""
    draw = np.random.default_rng(3)
    scores = np.stack([draw.normal(size=80), draw.integers(4, size=80), draw.normal(size=80).round(1)], axis=1)
    scores[:3, 0] = np.inf, -np.inf, -np.inf
    orders = draw.choice(3, p=[0.6, 0.3, 0.1], size=(80, 6))
    orders[:, 4] = orders[:, 4] > 0  # no row of class 2
    orders[:, 5] = 1
    finite = scores.clip(-9, 9)
    wanted = [
        np.mean([roc_auc_score(order == code, finite[:, code]) for code in np.unique(order)]) for order in orders.T[:5]
    ]
    found = permuted_macro_aucs(scores, orders)
    np.testing.assert_allclose(found[:5], wanted, atol=1e-12)
    assert np.isnan(found[5])
    assert found[0] == pytest.approx(macro_auc(torch.from_numpy(scores), torch.from_numpy(orders[:, 0])), abs=1e-12)


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(0, 40)), elements=st.integers(-3, 3).map(float)))
def test_mean_ranks_equal_those_of_scipy(values):
    assert np.array_equal(mean_ranks(values), rankdata(values, axis=1))
