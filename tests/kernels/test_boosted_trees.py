"""Boosted trees of many targets at once are those of scikit-learn, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from cutlayer.kernels.fits.boosted_trees import MAX_THRESHOLDS, Boosting, cross_boosted

FOLDS = 3
DRAW = np.random.default_rng(0)
ROWS, OTHERS = 300, 80
INPUTS = DRAW.integers(0, 8, size=(ROWS + OTHERS, 5)).astype(float)
TARGETS = np.stack([INPUTS[:, 0] * INPUTS[:, 1], np.sin(INPUTS[:, 2])], axis=1) + DRAW.normal(size=(ROWS + OTHERS, 2))
FOLD_OF = DRAW.permutation(ROWS) % FOLDS


def ours(settings: Boosting, inputs: np.ndarray = INPUTS) -> tuple[np.ndarray, np.ndarray]:
    return cross_boosted(inputs[:ROWS], inputs[ROWS:], TARGETS[:ROWS], FOLD_OF, settings)


@pytest.mark.parametrize(
    "settings", [Boosting(), Boosting(trees=5, leaves=2, min_leaf_rows=1, learning_rate=0.5), Boosting(7, 12, 20)]
)
def test_predictions_are_those_of_another_implementation(settings: Boosting) -> None:
    left_out, others = ours(settings)
    for target in range(2):
        mean = np.zeros(OTHERS)
        for fold in range(FOLDS):
            out = fold == FOLD_OF
            model = HistGradientBoostingRegressor(
                max_iter=settings.trees,
                max_leaf_nodes=settings.leaves,
                min_samples_leaf=settings.min_leaf_rows,
                learning_rate=settings.learning_rate,
                early_stopping=False,
            ).fit(INPUTS[:ROWS][~out], TARGETS[:ROWS, target][~out])
            np.testing.assert_allclose(left_out[out, target], model.predict(INPUTS[:ROWS][out]), atol=1e-4)
            mean += model.predict(INPUTS[ROWS:]) / FOLDS
        np.testing.assert_allclose(others[:, target], mean, atol=1e-4)


def test_a_column_of_many_values_has_few_thresholds_and_predicts() -> None:
    inputs = INPUTS + 0.01 * DRAW.normal(size=INPUTS.shape)
    assert len(np.unique(inputs[:ROWS, 0])) > MAX_THRESHOLDS
    left_out, others = ours(Boosting(), inputs)
    exact, exact_others = ours(Boosting())
    assert np.corrcoef(left_out[:, 0], exact[:, 0])[0, 1] > 0.98
    assert np.corrcoef(others[:, 0], exact_others[:, 0])[0, 1] > 0.98


@pytest.mark.parametrize("inputs", [INPUTS[:, :0], np.ones((ROWS + OTHERS, 2)), INPUTS])
def test_without_a_split_each_prediction_is_a_mean(inputs: np.ndarray) -> None:
    left_out, others = ours(Boosting(min_leaf_rows=ROWS), inputs)
    for fold in range(FOLDS):
        mean = TARGETS[:ROWS][fold != FOLD_OF].mean(axis=0)
        np.testing.assert_allclose(left_out[fold == FOLD_OF], np.tile(mean, ((fold == FOLD_OF).sum(), 1)), rtol=1e-5)
    assert others.shape == (OTHERS, 2)
    assert np.ptp(others, axis=0) == pytest.approx(0)
