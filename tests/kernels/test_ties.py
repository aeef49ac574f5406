"""Scores equal up to rounding become equal, and no other ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.kernels.statistics.ties import RESOLUTION, merge_ties
from cutlayer.problem.metrics.roc import roc_auc


def test_roundings_of_one_number_become_one_value_wherever_it_lies():
    """A grid would have a border somewhere; here no number is special."""
    draw = torch.Generator().manual_seed(1)
    for exact in torch.rand(500, generator=draw, dtype=torch.float64) * 3:
        rounded = exact * (1 + 1e-7 * torch.randn(40, generator=draw, dtype=torch.float64))
        assert len(merge_ties(rounded).unique()) == 1


def test_distinct_scores_stay_apart_and_in_order():
    values = torch.linspace(-2, 3, 20_001, dtype=torch.float64)[torch.randperm(20_001)]
    assert torch.equal(merge_ties(values), values)
    assert torch.equal(merge_ties(values, 100.0).argsort(stable=True), values.argsort(stable=True))


def test_scores_close_to_each_other_along_their_whole_range_are_not_one_group():
    """Rows that lie closer than the tolerance to their neighbours, as many as make their AUC the same as without."""
    draw = torch.Generator().manual_seed(2)
    values = torch.rand(200_000, generator=draw, dtype=torch.float64) / 5
    truth = torch.rand(200_000, generator=draw) / 5 < values
    merged = merge_ties(values, 1.0)
    assert roc_auc(merged, truth) == pytest.approx(roc_auc(values, truth), abs=1e-5)
    assert float((merged - values).abs().max()) <= 5 * RESOLUTION


def test_the_scale_of_the_terms_says_what_a_rounding_is():
    """Differences of large terms are near zero with an error of the terms' own size."""
    values = torch.tensor([1e-8, -2e-8, 0.5], dtype=torch.float64)
    assert merge_ties(values, 1.0).tolist() == [-2e-8, -2e-8, 0.5]
    assert merge_ties(values).tolist() == values.tolist()
    assert merge_ties(values, torch.tensor([0.0, 0.0, 1.0])).tolist() == values.tolist()


def test_an_outlier_does_not_blur_the_other_scores():
    values = torch.tensor([1e-9, 2e-9, 3e-9, 1e9], dtype=torch.float64)
    assert torch.equal(merge_ties(values), values)


def test_columns_are_merged_each_on_its_own():
    values = torch.tensor([[1.0, 5.0], [1.0 + 1e-9, 5.0], [2.0, 4.0]], dtype=torch.float64)
    assert merge_ties(values).tolist() == [[1.0, 5.0], [1.0, 5.0], [2.0, 4.0]]
    assert merge_ties(torch.zeros(0)).shape == (0,)
    assert merge_ties(torch.zeros(0, 3)).shape == (0, 3)
    assert merge_ties(torch.zeros(4, 0)).shape == (4, 0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 10))
def test_merging_moves_no_score_far_and_never_swaps_two(values, scale):
    given = np.array(values)
    merged = merge_ties(torch.tensor(values, dtype=torch.float64), scale).numpy()
    order = np.argsort(given, kind="stable")
    assert (np.diff(merged[order]) >= 0).all()
    assert (merged <= given).all()
    assert (given - merged <= 5 * RESOLUTION * np.maximum(np.abs(given).max(), scale) + 1e-300).all()
