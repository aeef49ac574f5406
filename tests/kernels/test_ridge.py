"""Ridge regression against scikit-learn's, which leaves one row out as well."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import RidgeCV

from cutlayer.kernels.fits.ridge import fit_ridge

PENALTIES = tuple(10.0**power for power in range(-2, 5))


@pytest.mark.parametrize(("rows", "columns", "noise"), [(60, 9, 0.1), (60, 9, 5.0), (20, 50, 0.5), (2, 3, 0.1)])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_weights_are_those_of_scikit_learn(rows: int, columns: int, noise: float, kind: type) -> None:
    draw = np.random.default_rng(rows + columns)
    x = draw.normal(size=(rows, columns)) + 3.0
    targets = x @ draw.normal(size=columns) + noise * draw.normal(size=rows)
    expected = RidgeCV(PENALTIES).fit(x, targets)
    weights, intercept = fit_ridge(kind(x), targets, PENALTIES)
    np.testing.assert_allclose(weights, expected.coef_, rtol=1e-6, atol=1e-8)
    assert intercept == pytest.approx(expected.intercept_)


def test_inputs_that_are_constant_predict_the_mean() -> None:
    weights, intercept = fit_ridge(np.full((5, 2), 7.0), np.arange(5.0), PENALTIES)
    assert weights.tolist() == [0.0, 0.0]
    assert intercept == 2.0
