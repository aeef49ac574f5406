"""Counts, times and intervals by the estimators, against scikit-learn's metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import set_config
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import cross_val_score

from cutlayer import VerticalClassifier, VerticalRegressor
from cutlayer.errors import CutlayerError
from tests.models.estimator_rows import fit_briefly

ROWS = 300
COLUMNS = {"bank": ["age"], "shop": ["spent", "visits"]}


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    fit_briefly(monkeypatch)


def rows() -> tuple[pd.DataFrame, np.ndarray, np.random.Generator]:
    """Columns, and the rate of each row."""
    draw = np.random.default_rng(2)
    X = pd.DataFrame(draw.normal(size=(ROWS, 3)), columns=["age", "spent", "visits"])
    return X, np.exp(0.5 + 0.6 * X["age"] + 0.6 * X["spent"]).to_numpy(), draw


def model(task: str, **more: Any) -> VerticalRegressor:
    settings: dict[str, Any] = {"attacks": (), "top": {"kind": "linear", "folds": 1}, "key": bytes(32), **more}
    return VerticalRegressor("bank", columns=COLUMNS, task=task, **settings)


def test_counts_by_exposure_are_scored_as_scikit_learn_does(tmp_path) -> None:
    X, rate, draw = rows()
    years = draw.uniform(0.5, 2, ROWS)
    y = draw.poisson(rate * years)
    fitted = model("count", coverage=0.8, validation=0.2, run_dir=tmp_path).fit(X, y, exposure=years)
    predicted = fitted.predict(X)
    assert np.corrcoef(np.log(predicted), np.log(rate))[0, 1] > 0.9
    score = fitted.score(X, y, exposure=years)
    assert score == pytest.approx(d2_tweedie_score(y / years, predicted, sample_weight=years, power=1), abs=1e-5)
    assert fitted.evaluate_unprotected(X, y, exposure=years).metrics["d2"] == pytest.approx(score)
    values, bounds = fitted.predict_interval(X)
    np.testing.assert_array_equal(values, predicted)
    inside = (bounds[:, 0] <= y / years) & (y / years <= bounds[:, 1])
    assert 0.7 < inside.mean() < 0.95
    loaded = VerticalRegressor.load(tmp_path / "run", key=bytes(32))
    assert (loaded.task, loaded.coverage) == ("count", 0.8)
    np.testing.assert_array_equal(loaded.predict_interval(X)[1], bounds)
    for call in (lambda: fitted.score(X, y), lambda: fitted.evaluate(X, y, event=years > 1)):
        with pytest.raises(CutlayerError, match=r"(exposure|event), as in fit"):
            call()
    with pytest.raises(CutlayerError, match="no sample_weight in the score"):
        fitted.score(X, y, years, exposure=years)
    with pytest.raises(CutlayerError, match="task='survival', got 'count'"):
        fitted.predict_survival(X, [1.0])


def test_exposure_is_routed_in_cross_validation() -> None:
    X, rate, draw = rows()
    years = draw.uniform(0.5, 2, ROWS)
    y = draw.poisson(rate * years)
    set_config(enable_metadata_routing=True)
    try:
        routed = model("count").set_fit_request(exposure=True).set_score_request(exposure=True)
        scores = cross_val_score(routed, X, y, cv=2, params={"exposure": years}, error_score="raise")
    finally:
        set_config(enable_metadata_routing=False)
    assert (scores > 0.3).all()


def test_times_are_scored_by_concordance() -> None:
    X, rate, draw = rows()
    times, ends = draw.exponential(1 / rate), draw.exponential(1.0, ROWS)
    y, event = np.minimum(times, ends), times <= ends
    fitted = model("survival").fit(X, y, event=event)
    assert 0.65 < fitted.score(X, y, event=event) < 0.95
    survival = fitted.predict_survival(X, [0.1, 0.5, 1.0])
    assert survival.shape == (ROWS, 3)
    assert (np.diff(survival, axis=1) < 0).all()
    assert ((survival > 0) & (survival < 1)).all()


def test_a_classifier_has_sets_of_classes() -> None:
    X, rate, draw = rows()
    y = np.where(rate + draw.normal(size=ROWS) > 2, "many", "few")
    settings: dict[str, Any] = {"attacks": (), "top": {"kind": "linear", "folds": 1}, "validation": 0.2}
    fitted = VerticalClassifier("bank", columns=COLUMNS, coverage=0.8, **settings).fit(X, y)
    chosen, sets = fitted.predict_set(X)
    np.testing.assert_array_equal(chosen, fitted.predict(X))
    assert 0.7 < sets[np.arange(ROWS), np.searchsorted(fitted.classes_, y)].mean() < 0.95


@pytest.mark.parametrize(
    ("made", "given", "message"),
    [
        (lambda: model("binary"), {}, "expected task as one of regression, count, amount, severity, survival"),
        (lambda: model("count"), {"exposure": np.zeros(ROWS)}, r"^exposure: expected exposures above 0"),
        (lambda: model("count"), {"exposure": np.ones(3)}, r"exposure as numbers \(300,\), one per row"),
        (lambda: model("count"), {"event": np.ones(ROWS)}, "expected event with task survival alone"),
        (lambda: model("survival"), {}, "expected event with task survival, got none"),
        (lambda: model("count", coverage=0.2), {}, r"VerticalRegressor.coverage: expected"),
        (lambda: model("count", release="every_step"), {}, "top"),
        (lambda: model("count").fit(*rows()[:1], np.arange(ROWS)), None, "a fit with coverage, got none"),
    ],
)
def test_what_is_refused(made: Any, given: Any, message: str) -> None:
    X, _, _ = rows()
    with pytest.raises(CutlayerError, match=message):
        made().predict_interval(X) if given is None else made().fit(X, np.arange(ROWS), **given)
