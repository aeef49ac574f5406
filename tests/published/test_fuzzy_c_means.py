"""Fuzzy c-means against its two equations walked in plain loops, on a real data set, and where nothing can be found."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

from cutlayer.errors import DataError
from cutlayer_published.embedding.fuzzy_c_means import fuzzy_c_means


def looped_memberships(rows, centres, m):
    n, c = len(rows), len(centres)
    u = np.zeros((n, c))
    for i in range(n):
        d = [math.dist(rows[i], centre) for centre in centres]
        on = [k for k in range(c) if d[k] == 0]
        for k in range(c):
            if on:
                u[i, k] = (k in on) / len(on)
            else:
                u[i, k] = 1 / sum((d[k] / d[j]) ** (2 / (m - 1)) for j in range(c))
    return u


def looped_centres(rows, u, m):
    n, c = u.shape
    centres = np.zeros((c, rows.shape[1]))
    for k in range(c):
        whole = sum(u[i, k] ** m for i in range(n))
        for i in range(n):
            centres[k] += u[i, k] ** m / whole * rows[i]
    return centres


def looped(rows, start, m, rounds):
    centres = start
    u = looped_memberships(rows, centres, m)
    for _ in range(rounds):
        centres = looped_centres(rows, u, m)
        u = looped_memberships(rows, centres, m)
    return centres, u


def objective(rows, centres, u, m):
    return float((u**m * ((rows[:, None] - centres[None]) ** 2).sum(axis=2)).sum())


def blobs(n=60, clusters=3, d=2, seed=0):
    draw = np.random.default_rng(seed)
    return draw.normal(size=(clusters, d))[np.arange(n) % clusters] * 4 + draw.normal(size=(n, d))


@pytest.mark.parametrize("m", [1.2, 1.5, 2.0, 3.5])
@pytest.mark.parametrize("rounds", [1, 7])
def test_every_round_is_that_of_the_loops(m, rounds):
    rows = blobs()
    start = rows[:3] + 0.1
    found = fuzzy_c_means(
        torch.from_numpy(rows), 3, fuzzifier=m, tolerance=1e-300, rounds=rounds, start=torch.from_numpy(start)
    )
    centres, u = looped(rows, start, m, rounds)
    np.testing.assert_allclose(found.centres.numpy(), centres, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.memberships.numpy(), u, rtol=1e-7, atol=1e-9)
    assert found.rounds == rounds
    wrong, _ = looped(rows, start, m + 0.3, rounds)
    assert not np.allclose(found.centres.numpy(), wrong, rtol=1e-3)


def test_the_published_clusters_of_iris():
    """Its three clusters at m = 2, at the centres other software reports, and the loops stay where they are."""
    rows = load_iris().data
    found = fuzzy_c_means(torch.from_numpy(rows), 3, tolerance=1e-9)
    assert found.converged
    centres = found.centres.numpy()
    order = centres[:, 2].argsort()
    expected = [[5.0040, 3.4141, 1.4828, 0.2535], [5.8890, 2.7611, 4.3640, 1.3973], [6.7750, 3.0524, 5.6468, 2.0535]]
    np.testing.assert_allclose(centres[order], expected, atol=2e-3)
    u = looped_memberships(rows, centres, 2.0)
    np.testing.assert_allclose(found.memberships.numpy(), u, atol=1e-7)
    np.testing.assert_allclose(looped_centres(rows, u, 2.0), centres, atol=1e-7)
    assert objective(rows, centres, u, 2.0) == pytest.approx(60.5057, abs=1e-3)
    assert adjusted_rand_score(load_iris().target, found.memberships.argmax(1).numpy()) > 0.7


@pytest.fixture(scope="module")
def best_of_random():
    """The least objective of three fits by loops from random rows."""
    rows, draw = blobs(90, 4, seed=5), np.random.default_rng(0)
    others = [looped(rows, rows[draw.choice(90, 4, replace=False)], 2.0, 25) for _ in range(3)]
    return min(objective(rows, *other, 2.0) for other in others)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_start_is_seeded_and_no_worse_than_the_best_of_random_ones(seed, best_of_random):
    rows = blobs(90, 4, seed=5)
    first, again = (fuzzy_c_means(torch.from_numpy(rows), 4, seed=seed, tolerance=1e-8) for _ in range(2))
    assert torch.equal(first.memberships, again.memberships)
    assert objective(rows, first.centres.numpy(), first.memberships.numpy(), 2.0) <= 1.001 * best_of_random


def test_an_earlier_batchs_centres_go_on_where_they_were():
    rows = torch.from_numpy(blobs())
    first = fuzzy_c_means(rows, 3, tolerance=1e-10)
    again = fuzzy_c_means(rows, 3, start=first.centres)
    assert again.rounds == 1
    torch.testing.assert_close(again.centres, first.centres)


@given(st.integers(1, 25), st.integers(1, 6), st.integers(1, 4), st.floats(1.05, 6.0), st.integers(0, 99))
@settings(deadline=None)
def test_rows_add_up_to_one_and_rounds_lower_the_objective(n, clusters, d, m, seed):
    rows = np.round(np.random.default_rng(seed).normal(size=(n, d)), 1)
    values = []
    for rounds in (1, 2, 5):
        found = fuzzy_c_means(torch.from_numpy(rows), clusters, fuzzifier=m, rounds=rounds, seed=seed)
        assert bool(((found.memberships >= 0) & (found.memberships <= 1)).all())
        torch.testing.assert_close(found.memberships.sum(1), torch.ones(n, dtype=torch.float64))
        assert bool(found.centres.isfinite().all())
        values.append(objective(rows, found.centres.numpy(), found.memberships.numpy(), m))
    assert values[0] * (1 + 1e-9) + 1e-9 >= values[1]
    assert values[1] * (1 + 1e-9) + 1e-9 >= values[2]


@pytest.mark.parametrize(
    "rows",
    [
        torch.full((6, 3), 0.1),
        torch.zeros(5, 2),
        torch.tensor([[1.0, 2.0]]),
        torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]),
    ],
)
def test_fewer_distinct_rows_than_clusters(rows):
    found = fuzzy_c_means(rows, 4)
    assert found.converged
    assert found.memberships.shape == (len(rows), 4)
    assert found.centres.shape == (4, rows.shape[1])
    torch.testing.assert_close(found.memberships.sum(1), torch.ones(len(rows), dtype=torch.float64))
    for centre in found.centres:
        assert any(torch.allclose(centre, row.double(), atol=1e-12) for row in rows)


def test_a_row_on_several_centres_is_shared_equally_and_a_centre_without_rows_stays():
    rows = torch.tensor([[0.0], [0.0], [4.0]], dtype=torch.float64)
    start = torch.tensor([[0.0], [0.0], [4.0], [9.0]], dtype=torch.float64)
    found = fuzzy_c_means(rows, 4, start=start)
    expected = torch.tensor([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0]], dtype=torch.float64)
    torch.testing.assert_close(found.memberships, expected)
    torch.testing.assert_close(found.centres, start)


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1e20, 1e307])
def test_scale_and_place_do_not_matter(scale):
    rows = torch.from_numpy(blobs())
    plain, moved = fuzzy_c_means(rows, 3), fuzzy_c_means((rows + 7.0) * scale, 3)
    torch.testing.assert_close(moved.memberships, plain.memberships, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(moved.centres / scale - 7.0, plain.centres, rtol=1e-6, atol=1e-9)


def test_rows_far_from_zero_lose_no_digits():
    rows = torch.from_numpy(blobs())
    plain, moved = fuzzy_c_means(rows, 3), fuzzy_c_means(rows + 2.0**36, 3)
    torch.testing.assert_close(moved.memberships, plain.memberships, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rounds", [1, 20])
def test_equal_rows_belong_to_all_clusters_alike(rounds):
    found = fuzzy_c_means(torch.tensor([[0.1, 0.3]], dtype=torch.float64).repeat(3, 1), 2, rounds=rounds)
    assert torch.equal(found.memberships, torch.full((3, 2), 0.5, dtype=torch.float64))


def test_a_small_fuzzifier_gives_ones_and_zeros():
    found = fuzzy_c_means(torch.from_numpy(blobs()), 3, fuzzifier=1.001)
    assert float(found.memberships.amax(1).min()) > 0.999


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": torch.zeros(0, 2)}, r"both 1 or more, got torch.float32 of shape \(0, 2\)"),
        ({"points": torch.zeros(3, 2, dtype=torch.int64)}, "floating rows"),
        ({"points": torch.tensor([[1.0, math.nan]])}, "finite rows"),
    ],
)
def test_refusals(options, message):
    given_ = {"points": torch.ones(3, 2), "clusters": 2, **options}
    with pytest.raises(DataError, match=message):
        fuzzy_c_means(given_.pop("points"), given_.pop("clusters"), **given_)
