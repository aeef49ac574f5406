"""Signs of columns that are named by other rows: known from skewed columns, and doubted where nothing tells them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cutlayer.attacks.feature.naming import Matrix, assign_candidates
from cutlayer.attacks.feature.naming import _signs as signs_of


def drawn(seed: int, *, skewed: bool, rows: int = 2000) -> Matrix:
    """Three correlated columns of symmetric distributions, and a skewed one that is correlated with them if asked."""
    generator = np.random.default_rng(seed)
    first = generator.uniform(-1, 1, rows)
    second = first + 0.5 * generator.laplace(size=rows)
    third = first + generator.triangular(-3, 0, 3, size=rows)
    last = np.exp(first * skewed + generator.normal(size=rows))
    return np.column_stack([first, second, third, last])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("signs", [(1, 1, 1, 1), (-1, -1, -1, 1), (1, -1, 1, -1)])
def test_a_skewed_column_tells_the_signs_of_those_it_is_correlated_with(seed: int, signs: tuple[int, ...]) -> None:
    names = assign_candidates(drawn(seed, skewed=True), drawn(seed + 9, skewed=True) * signs)
    assert [*names.chosen] == [0, 1, 2, 3]
    assert [*names.signs] == [*signs]
    assert names.trust[:3].min() > 0.6


def test_signs_that_nothing_tells_are_not_trusted() -> None:
    """Their correlations agree with each other under all four wrong signs as under the right ones."""
    trusted = []
    for seed, sign in product(range(12), (1, -1)):
        names = assign_candidates(drawn(seed, skewed=False), drawn(seed + 50, skewed=False) * [sign, sign, sign, 1])
        assert names.signs[3] == 1, "the skewed one is known"
        trusted.append(names.trust[:3] * names.signs[:3] * sign)
        assert names.trust[3] > 0.9
    # What a column's values are multiplied by: R² is 1 - (1 - t)², and of a toss of a coin -1 on average.
    r2 = 1 - (1 - np.array(trusted)) ** 2
    assert r2.mean() > -0.5


def test_signs_are_those_of_an_enumeration() -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        right = generator.choice((-1.0, 1.0), 7)
        alone, pairs = 0.02 * generator.normal(size=7), 0.02 * generator.uniform(size=(7, 7))
        pairs = -(pairs + pairs.T) * np.outer(right, right) * (1 - np.eye(7))
        every = np.array([*product((-1.0, 1.0), repeat=7)])
        costs = every @ alone + np.einsum("ni,ij,nj->n", every, pairs, every) / 2
        found, sure = signs_of(np.ones(7), alone, pairs)
        assert [*found] == [*every[costs.argmin()]]
        assert sure.min() > 0
    _, sure = signs_of(np.ones(3), np.zeros(3), pairs[:3, :3])
    assert sure.max() < 1e-9, "the opposite of all costs as much"
