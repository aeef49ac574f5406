"""Gain and pairs of rankings within groups, against scikit-learn's and by all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score, roc_auc_score

from cutlayer.kernels.statistics.ranking import ndcg, ordered_pairs


def drawn(seed: int, grades: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    groups = draw.integers(12, size=300)
    groups[:12] = np.arange(12)
    return draw.normal(size=300).round(1), draw.integers(grades, size=300).astype(float), groups  # with ties


@pytest.mark.parametrize("seed", [0, 1])
def test_the_gain_is_that_of_scikit_learn_with_ties(seed: int) -> None:
    scores, grades, groups = drawn(seed)
    expected = [ndcg_score([2 ** grades[groups == g] - 1], [scores[groups == g]], k=10) for g in range(12)]
    np.testing.assert_allclose(ndcg(scores, grades, groups), expected)
    assert not np.allclose(ndcg(-scores, grades, groups), expected)


def test_pairs_of_two_grades_are_the_auc_of_each_group() -> None:
    scores, grades, groups = drawn(2, grades=2)
    expected = [roc_auc_score(grades[groups == g], scores[groups == g]) for g in range(12)]
    np.testing.assert_allclose(ordered_pairs(scores, grades, groups), expected)


def test_groups_of_one_grade_have_no_ranking_and_equal_scores_are_chance() -> None:
    groups = np.repeat([0, 1], 40)
    grades = np.concatenate([np.ones(40), np.arange(40) % 2.0])
    for measure in (ndcg, ordered_pairs):
        first, second = measure(np.zeros(80), grades, groups)
        assert np.isnan(first)
        assert second == pytest.approx(0.5)
