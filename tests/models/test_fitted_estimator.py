"""Any estimator with scikit-learn's interface: with consent, without pickle, and with clear refusals."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from cutlayer.consent import allowed
from cutlayer.errors import ConfigError
from cutlayer.models import imported_path, modules_of
from tests.models.fitted_rows import BINARY, MULTI, columns, fit, labels_of, regression, top_of

TRAINING, TEST = columns(300, 1), columns(200, 2)
FOREST = {"kind": "sklearn", "path": "sklearn.ensemble:ExtraTreesClassifier", "args": {"n_estimators": 20}}


class Shares(ClassifierMixin, BaseEstimator):
    """Predicts the shares of the classes; its rows have no weights."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Shares:
        self.shares_ = np.bincount(y) / len(y)
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return np.tile(self.shares_, (len(x), 1))


class Failing(BaseEstimator):
    """Cannot be fitted."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Failing:
        raise ValueError("no such thing as rows")


def test_an_estimator_of_scikit_learn_is_stored_without_pickle() -> None:
    pytest.importorskip("skops")
    with allowed("sklearn.ensemble"):
        model, other = top_of(MULTI, **FOREST), top_of(MULTI, **FOREST)
        result = fit(model, MULTI, TRAINING)
        other.load_state_dict(model.state_dict())
    assert torch.equal(model(TEST), other(TEST))
    assert MULTI.evaluate(model(TEST), labels_of(MULTI, TEST))["accuracy"] > 0.5
    assert result.chosen == "ExtraTreesClassifier"
    content = model.heads[0].parts[0].content.numpy().tobytes()
    assert content.startswith(b"skops sklearn.ensemble:ExtraTreesClassifier\nPK")
    with pytest.raises(ConfigError, match=r"consent before model\.top imports sklearn\.ensemble:ExtraTreesClassifier"):
        top_of(MULTI, **FOREST)


def test_a_saved_estimator_needs_consent_again() -> None:
    pytest.importorskip("skops")
    path = f"{__name__}:Shares"
    with allowed(__name__):
        model = top_of(BINARY, kind="sklearn", path=path)
        fit(model, BINARY, TRAINING)
    assert model(TEST).unique().sigmoid().tolist() == pytest.approx([float(labels_of(BINARY, TRAINING).float().mean())])
    with allowed("sklearn.ensemble"):
        other = top_of(BINARY, **FOREST)
        with pytest.raises(ConfigError, match=r"consent before model\.top imports"):
            other.load_state_dict(model.state_dict())
        # A state that names an allowed class, and holds another one.
        state = model.state_dict()
        body = state["heads.0.parts.0.content"].numpy().tobytes().partition(b"\n")[2]
        forged = b"skops sklearn.ensemble:ExtraTreesClassifier\n" + body
        state["heads.0.parts.0.content"] = torch.frombuffer(bytearray(forged), dtype=torch.uint8)
        with pytest.raises(ConfigError, match=r"an estimator of allowed modules alone, got parts of type .*Shares"):
            top_of(BINARY, **FOREST).load_state_dict(state)


@pytest.mark.parametrize(
    ("path", "args"),
    [
        ("xgboost:XGB", {"n_estimators": 20}),
        ("lightgbm:LGBM", {"n_estimators": 20, "verbose": -1, "min_child_samples": 5}),
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
    assert model.heads[0].parts[0].content.numpy().tobytes().startswith(f"{library} ".encode())


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
    with allowed(__name__, "sklearn.ensemble", "no_such_library"):
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
            fit(top_of(BINARY, **FOREST), BINARY, TRAINING)


def test_the_class_is_among_those_that_need_consent() -> None:
    assert imported_path(FOREST) == FOREST["path"]
    assert imported_path({"kind": "auto"}) is None
    assert modules_of({"top": FOREST, "bottom": {"kind": "auto"}}) == ("sklearn.ensemble",)
