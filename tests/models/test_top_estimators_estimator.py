"""Any estimator with scikit-learn's interface: with consent, without pickle, and with clear refusals."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from cutlayer.consent import allowed
from cutlayer.errors import ConfigError
from cutlayer.models import imported_path, modules_of
from cutlayer.models.top_estimators.estimator import fit_estimator
from cutlayer.models.top_estimators.forest import ForestPart
from cutlayer.models.top_estimators.rows import MIN_LOG_PROBABILITY
from tests.models.estimator_rows import BINARY, MULTI, columns, fit, labels_of, regression, rows_of, top_of

TRAINING, TEST = columns(300, 1), columns(200, 2)
FOREST = {"kind": "sklearn", "path": "sklearn.ensemble:ExtraTreesClassifier", "args": {"n_estimators": 8}}

LINEAR = {"kind": "sklearn", "path": "sklearn.linear_model:LogisticRegression"}


class Shares(ClassifierMixin, BaseEstimator):
    """Predicts the shares of the classes; its rows have no weights."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Shares:
        self.shares_ = np.bincount(y) / len(y)
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return np.tile(self.shares_, (len(x), 1))


class Other(Shares):
    """Another class of an allowed module."""


class Failing(BaseEstimator):
    """Cannot be fitted."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Failing:
        raise ValueError("no such thing as rows")


def test_a_forest_is_stored_as_tensors() -> None:
    with allowed("sklearn.ensemble"):
        model, other = top_of(MULTI, **FOREST), top_of(MULTI, **FOREST)
        result = fit(model, MULTI, TRAINING)
        other.load_state_dict(model.state_dict())
    assert torch.equal(model(TEST), other(TEST))
    assert MULTI.evaluate(model(TEST), labels_of(MULTI, TEST))["accuracy"] > 0.5
    assert result.chosen == "ExtraTreesClassifier"
    assert model.heads[0].parts[0].kind == "forest"
    with pytest.raises(ConfigError, match=r"consent before it imports sklearn\.ensemble:ExtraTreesClassifier"):
        top_of(MULTI, **FOREST)


@pytest.mark.parametrize(
    "path", ["tree:DecisionTree", "tree:ExtraTree", "ensemble:RandomForest", "ensemble:ExtraTrees"]
)
@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_a_forest_predicts_as_its_library_does(path: str, kind: str) -> None:
    draw = np.random.default_rng(4)
    x = draw.normal(size=(200, 3)).astype(np.float32)
    x[draw.random(x.shape) < 0.2] = np.nan
    y = np.nan_to_num(x[:, 0]) + draw.normal(size=200)
    # Of the classes 0, 1, 2 and 3, no row has 1.
    targets = y if kind == "Regressor" else np.array([0, 2, 3])[(y > 0).astype(int) + (y > 1)]
    module, _, name = f"sklearn.{path}{kind}".partition(":")
    model = getattr(import_module(module), name)
    rows = rows_of(x, targets, 0 if kind == "Regressor" else 4)
    args = {"max_depth": 5, **({"n_estimators": 8} if "ensemble" in path else {})}
    part = fit_estimator(model, f"{module}:{name}", args, rows, 3)
    assert isinstance(part, ForestPart)
    own = model(**args, random_state=3).fit(x, targets)
    predicted = part.predicted(rows)
    if kind == "Regressor":
        np.testing.assert_allclose(predicted[:, 0], own.predict(x), rtol=1e-12)
    else:
        np.testing.assert_allclose(np.exp(predicted)[:, [0, 2, 3]], own.predict_proba(x), atol=1e-12)
        assert np.all(predicted[:, 1] == MIN_LOG_PROBABILITY)


def test_a_saved_estimator_is_of_the_class_of_the_job() -> None:
    pytest.importorskip("skops")
    path = f"{__name__}:Shares"
    with allowed(__name__):
        model = top_of(BINARY, kind="sklearn", path=path)
        fit(model, BINARY, TRAINING)
        state = model.state_dict()
        top_of(BINARY, kind="sklearn", path=path).load_state_dict(state)
        with pytest.raises(ConfigError, match="an estimator of Other, got Shares"):
            top_of(BINARY, kind="sklearn", path=f"{__name__}:Other").load_state_dict(state)
    assert model(TEST).unique().sigmoid().tolist() == pytest.approx([float(labels_of(BINARY, TRAINING).float().mean())])
    remedy = r"got a part of type .*Shares; .* allow its module by --allow-model"
    with allowed("sklearn.linear_model"), pytest.raises(ConfigError, match=remedy):
        top_of(BINARY, **LINEAR).load_state_dict(state)
    with pytest.raises(RuntimeError, match="a plan that is damaged"):
        top_of(BINARY, kind="linear").load_state_dict(state)


@pytest.mark.parametrize(
    ("path", "args"),
    [
        ("xgboost:XGB", {"n_estimators": 8}),
        ("lightgbm:LGBM", {"n_estimators": 4, "verbose": -1, "min_child_samples": 5}),
    ],
)
@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_boosting_of_other_libraries(path: str, args: dict[str, Any], kind: str) -> None:
    library = path.partition(":")[0]
    pytest.importorskip(library)
    task = {"binary": BINARY, "multiclass": MULTI}.get(kind) or regression(TRAINING)
    path += "Regressor" if kind == "regression" else "Classifier"
    with allowed(library):
        model, other = (top_of(task, kind="sklearn", path=path, args={**args, "n_jobs": 1}) for _ in range(2))
        fit(model, task, TRAINING)
        other.load_state_dict(model.state_dict())
    assert torch.equal(model(TEST), other(TEST))
    test = labels_of(task, TEST)
    assert task.evaluate(model(TEST), test)[task.metric] > task.chance + 0.2
    assert model.heads[0].parts[0].kind == "estimator"


def test_the_stored_estimator_predicts_as_the_fitted_one() -> None:
    xgboost = pytest.importorskip("xgboost")
    with allowed("xgboost"):
        model = top_of(BINARY, kind="sklearn", path="xgboost:XGBClassifier", args={"n_jobs": 1, "random_state": 3})
        fit(model, BINARY, TRAINING)
    own = xgboost.XGBClassifier(n_jobs=1, random_state=3)
    x, test = (torch.cat(list(part.values()), dim=1).numpy() for part in (TRAINING, TEST))
    own.fit(x, labels_of(BINARY, TRAINING).numpy())
    np.testing.assert_allclose(model(TEST).sigmoid()[:, 0].numpy(), own.predict_proba(test)[:, 1], atol=1e-6)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with allowed(__name__, "sklearn.ensemble", "sklearn.linear_model", "no_such_library"):
        with pytest.raises(ConfigError, match=r"Failing failed at .*no such thing as rows"):
            fit(top_of(BINARY, kind="sklearn", path=f"{__name__}:Failing"), BINARY, TRAINING)
        shares = top_of(BINARY, kind="sklearn", path=f"{__name__}:Shares")
        with pytest.raises(ConfigError, match="take weights of rows"):
            fit(shares, BINARY, TRAINING, weights=torch.ones(300))
        with pytest.raises(ConfigError, match="an importable no_such_library:Model"):
            top_of(BINARY, kind="sklearn", path="no_such_library:Model")
        with pytest.raises(ConfigError, match=r"ExtraTreesClassifier failed at .*n_trees"):
            fit(top_of(BINARY, **{**FOREST, "args": {"n_trees": 3}}), BINARY, TRAINING)
        monkeypatch.setitem(sys.modules, "skops.io", None)
        with pytest.raises(ConfigError, match=r"the package skops.*pip install 'cutlayer\[sklearn\]'"):
            fit(top_of(BINARY, **LINEAR), BINARY, TRAINING)
        monkeypatch.undo()
        with pytest.raises(ConfigError, match="take kind boosting or a forest"):
            fit(top_of(BINARY, **FOREST | {"path": "sklearn.ensemble:GradientBoostingClassifier"}), BINARY, TRAINING)


def test_the_class_is_among_those_that_need_consent() -> None:
    assert imported_path(FOREST) == FOREST["path"]
    assert imported_path({"kind": "auto"}) is None
    assert imported_path({"kind": "sklearn"}) == ""  # of a run folder of somebody else, which is checked later
    assert modules_of({"top": FOREST, "bottom": {"kind": "auto"}}) == ("sklearn.ensemble",)
