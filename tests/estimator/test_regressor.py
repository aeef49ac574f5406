"""`VerticalRegressor`: values in, values out, on the scale they came."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.metrics import r2_score

from cutlayer import LabelDPConfig, MaxNormConfig
from cutlayer.config import Job
from cutlayer.errors import CutlayerError
from cutlayer.estimator.job import notes_of_labels
from tests.estimator.tables import ROWS, regressor, tables
from tests.parties.runs import raw_job


@pytest.fixture(scope="module")
def data():
    X, _ = tables()
    y = 1000 + 50 * (X["bank"]["age"].to_numpy() + X["shop"][:, 0])
    return X, y


@pytest.fixture(scope="module")
def fitted(data):
    """Of several epochs, and not to be changed."""
    X, y = data
    return regressor(epochs=14, lr=0.05).fit(X, y)


def test_it_learns_numbers_on_their_own_scale(fitted, data):
    X, y = data
    model = fitted
    predicted = model.predict(X)
    assert predicted.shape == (ROWS,)
    assert predicted.dtype == np.float64
    assert 900 < predicted.mean() < 1100
    assert model.score(X, y) == r2_score(y, predicted) > 0.7
    assert is_regressor(model)
    assert not hasattr(model, "classes_")
    assert model.report_.task.kind == "regression"
    assert model.report_.utility.metric == "r2"


def test_whole_numbers_are_targets_too(data):
    X, y = data
    model = regressor().fit(X, np.round(y).astype(int))
    assert np.isfinite(model.predict(X)).all()
    assert len(np.unique(model.predict(X))) > 2


def test_only_protections_that_fit_numbers(data):
    X, y = data
    model = regressor(protections=[MaxNormConfig()]).fit(X, y)
    assert [part.name for part in model.report_.protections] == ["max_norm"]
    with pytest.raises(CutlayerError, match="label_dp on a task of kind binary or multiclass, got regression"):
        regressor(protections=[LabelDPConfig(eps=1.0)]).fit(X, y)


def test_labels_that_check_would_warn_of_are_warned_of(data):
    """One row of 1e12 decides a model of squares, and a range cuts what lies beyond it."""
    X, y = data
    with pytest.warns(UserWarning, match=r"^y: one row's 1e\+12 deviates more than"):
        regressor().fit(X, np.where(np.arange(ROWS) == 5, 1e12, y))
    raw = raw_job("regression", privacy={"label_dp": {"eps": 1.0, "range": [0, 10]}})
    (cut,) = notes_of_labels(Job.model_validate(raw), np.linspace(-1.0, 9.0, 50))
    assert "label_dp.range: labels of y are from -1 to 9; those beyond 0 to 10 are drawn as its ends" in cut
    assert not [*notes_of_labels(Job.model_validate(raw), np.linspace(0, 10, 50))]
    assert not [*notes_of_labels(Job.model_validate(raw_job()), np.arange(50) % 2)]


def test_a_clone_fits_to_the_same(fitted, data):
    X, y = data
    np.testing.assert_array_equal(clone(fitted).fit(X, y).predict(X), fitted.predict(X))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (lambda y: np.where(y > 1000, "high", "low"), "expected numbers for task regression"),
        (lambda y: np.where(np.arange(len(y)) == 3, np.nan, y), "expected a label in every row, got none in 1 rows"),
        (lambda y: np.where(np.arange(len(y)) == 3, np.inf, y), "expected finite labels, got inf"),
        (lambda y: np.zeros(len(y)), "expected different labels, got 0 in all rows"),
    ],
)
def test_labels_that_are_no_numbers(data, labels, message):
    X, y = data
    with pytest.raises(CutlayerError, match=message):
        regressor().fit(X, labels(y))
