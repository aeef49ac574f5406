"""Optimal 1-D 2-means: no partition is better."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from cutlayer.kernels.fits.k_means import upper_of_two


def inertia(values, upper):
    return sum(((part - part.mean()) ** 2).sum() for part in (values[upper], values[~upper]) if len(part))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=7))
def test_no_partition_at_all_is_better(values):
    given_values = torch.tensor(values, dtype=torch.float64)
    upper = upper_of_two(given_values).numpy()
    array = given_values.numpy()
    best = min(inertia(array, np.array(mask)) for mask in product([False, True], repeat=len(values)))
    assert inertia(array, upper) == pytest.approx(best, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("gap", [0.0, 1.0, 5.0])
def test_is_at_least_as_good_as_scikit_learn(gap):
    values = np.concatenate([np.random.default_rng(1).normal(size=200), gap + np.random.default_rng(2).normal(size=40)])
    upper = upper_of_two(torch.from_numpy(values)).numpy()
    fitted = KMeans(2, n_init=3, random_state=0).fit(values[:, None])
    assert inertia(values, upper) <= fitted.inertia_ * (1 + 1e-12)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.sampled_from([2.0**-100, 1.0, 2.0**100]))
def test_equal_values_stay_together_at_any_scale(values, scale):
    tensor = torch.tensor(values, dtype=torch.float64)
    upper = upper_of_two(tensor)
    for value in set(values):
        assert len(set(upper[tensor == value].tolist())) == 1
    assert torch.equal(upper_of_two(tensor * scale), upper)
    if len(set(values)) > 1:
        assert float(tensor[upper].min()) > float(tensor[~upper].max())


def test_constant_and_tiny_inputs_have_no_upper_cluster():
    for values in (torch.zeros(0), torch.ones(1), torch.full((7,), 3.5)):
        assert not bool(upper_of_two(values).any())
