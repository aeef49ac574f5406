"""Ridge logistic regression: scikit-learn's, with its penalty and stopping rule, is the other implementation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from cutlayer.kernels.fits.logistic import fit_logistic, fit_two_classes


def rows(classes: int, count: int = 60, width: int = 9, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    codes = np.arange(count) % classes
    return draw.normal(size=(count, width)) + np.eye(classes, width)[codes], 3 * codes + 1


@pytest.mark.parametrize("strength", [0.1, 1.0])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_weights_are_those_of_scikit_learn(classes: int, strength: float, kind: type) -> None:
    x, codes = rows(classes)
    expected = LogisticRegression(C=strength, max_iter=300).fit(kind(x), codes)
    found = fit_logistic(kind(x), codes, strength, 300)
    np.testing.assert_array_equal(found.classes, expected.classes_)
    np.testing.assert_allclose(found.weights.T, expected.coef_, atol=1e-9)
    np.testing.assert_allclose(found.intercepts, expected.intercept_, atol=1e-9)
    logits = x @ found.weights + found.intercepts
    np.testing.assert_allclose(found.log_probabilities(logits), expected.predict_log_proba(x), atol=1e-8)


@pytest.mark.parametrize("classes", [2, 3])
def test_no_small_step_lowers_the_loss(classes: int) -> None:
    x, codes = rows(classes, seed=1)
    model = fit_logistic(x, codes, 0.5, 300)
    chosen = np.arange(len(x)), np.searchsorted(model.classes, codes)

    def loss(weights: np.ndarray, intercepts: np.ndarray) -> float:
        logs = model.log_probabilities(x @ weights + intercepts)[chosen]
        return float(np.square(weights).sum() / (2 * 0.5 * len(x)) - logs.mean())

    best, draw = loss(model.weights, model.intercepts), np.random.default_rng(2)
    for _ in range(30):
        step = draw.normal(size=model.weights.shape)
        assert loss(model.weights + 0.1 * step, model.intercepts + 0.1 * draw.normal()) > best


def test_few_rounds_stop_short_of_the_optimum() -> None:
    x, codes = rows(2, seed=3)
    one, many = fit_logistic(x, codes, 1.0, 1), fit_logistic(x, codes, 1.0, 300)
    assert np.abs(one.weights - many.weights).max() > 0.01


@pytest.mark.parametrize(("count", "width", "strength"), [(60, 9, 1.0), (8, 30, 0.1), (2, 3, 1.0), (200, 40, 100.0)])
def test_newton_reaches_the_optimum_of_scikit_learn(count: int, width: int, strength: float) -> None:
    x, codes = rows(2, count, width)
    x[:, 0] += 20 * (codes == codes.max())  # separable: steps from zero are too long
    expected = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-12, max_iter=500).fit(x, codes)
    found = fit_two_classes(x, codes, strength)
    np.testing.assert_array_equal(found.classes, expected.classes_)
    np.testing.assert_allclose(found.weights.T, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(found.intercepts, expected.intercept_, atol=1e-5)
