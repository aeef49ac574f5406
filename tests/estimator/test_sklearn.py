"""One table divided among parties: scikit-learn's own checks, and its tools."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

from cutlayer import CutlayerError, VerticalClassifier, VerticalRegressor
from cutlayer.estimator.single_table import column_numbers
from cutlayer.protections.dp_embedding import DPEmbeddingConfig
from tests.estimator.tables import classifier, tables

FAST: dict[str, Any] = {
    "columns": {"bank": [0], "shop": "rest"},
    "release": "every_step",
    "epochs": 3,
    "batch_size": 16,
    "lr": 0.1,
    "bottom": {"kind": "mlp", "hidden": [8]},
    "top": {"kind": "mlp", "hidden": [8]},
    "attacks": (),
    "key": bytes(32),
    "validation": 0.0,
}

LEARNING = ("_train", "_classes")
"""Parts of the names of checks of what was learned; all others see as much of a model of one epoch of few steps."""
FEW_STEPS = {"epochs": 1, "batch_size": "auto"}


REGRESSORS = ("regressors", "supervised", "score", "invariance", "unfitted", "init", "params", "tag", "no_", "all_zero")
"""Parts of the names of checks that see code of a regressor's own, which has fit, prediction and tables in common."""
SINGLE = {"readonly_memmap": True, "X_dtype": "float32"}
"""Of three equal checks of what was learned the one whose tables are the most unlike a plain array."""

UNMET = {"check_sample_weight_equivalence_on_dense_data": "batches and split are drawn by the number of rows"}
"""A row of weight 2 is drawn into one batch, and two equal rows into two; and rows of weight 0 are held out too."""
IN_COMMON = ("check_methods_subset_invariance",)
"""Checks of code that both estimators have in common: of the classifier alone."""


def checks() -> Iterator[Any]:
    """Pairs of an estimator and a check."""
    for kind in (VerticalClassifier, VerticalRegressor):
        found = estimator_checks_generator(kind(**FAST), expected_failed_checks=UNMET, mark="xfail")
        for pair in found:
            check = getattr(pair, "values", pair)[1]  # those of `UNMET` are in a set of parameters
            name = check.func.__name__
            own = kind is VerticalClassifier or (name not in IN_COMMON and any(word in name for word in REGRESSORS))
            if own and (not name.endswith("_train") or check.keywords == SINGLE):
                yield pair


def name_of(part: Any) -> str:
    return part.func.__name__ if hasattr(part, "func") else type(part).__name__


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), [*checks()], ids=name_of)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    """All but `UNMET`; scikit-learn skips the one for other arrays itself, unless SCIPY_ARRAY_API is set."""
    if not any(word in check.func.__name__ for word in LEARNING):
        estimator = clone(estimator).set_params(**FEW_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as the checks' own runner does
        check(estimator)


@pytest.mark.parametrize(
    "name", ["dict_unchanged", "estimators_pickle", "estimators_overwrite_params", "n_features_in"]
)
def test_the_default_passes_them_too(name: str) -> None:
    """Those that a choice by the data could fail."""
    settings: dict[str, Any] = {"top": {"kind": "linear", "folds": 1}, "attacks": (), "key": bytes(32)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check = getattr(estimator_checks, f"check_{name}")
        check("VerticalClassifier", VerticalClassifier(columns=FAST["columns"], validation=0.0, **settings))


@pytest.fixture(scope="module")
def one() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 4))
    return x, (x[:, 0] + x[:, 2] > 0).astype(int)


def test_the_tools_of_scikit_learn_take_it(one: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = one
    model = VerticalClassifier(**FAST)
    search = GridSearchCV(model, {"epochs": [2]}, cv=2).fit(x, y)
    assert len(search.best_estimator_.report_.history) == 2
    assert search.best_score_ > 0.7
    assert search.predict_proba(x).shape == (120, 2)
    calibrated = CalibratedClassifierCV(make_pipeline(StandardScaler(), clone(model)), cv=2).fit(x, y)
    assert calibrated.score(x, y) > 0.8
    assert calibrated.predict_proba(x).shape == (120, 2)


@pytest.fixture(scope="module")
def divided(one: tuple[np.ndarray, np.ndarray]) -> VerticalClassifier:
    """Fitted to one table; not to be changed."""
    protections = [DPEmbeddingConfig(clip=1.0, noise_multiplier=1.0)]
    return VerticalClassifier(**{**FAST, **FEW_STEPS, "protections": protections, "predictions": 1}).fit(*one)


def test_it_is_the_same_as_tables_by_party(one: tuple[np.ndarray, np.ndarray], divided: VerticalClassifier) -> None:
    x, y = one
    by_party = {"bank": x[:, :1], "shop": x[:, 1:]}
    apart = clone(divided).set_params(active="bank", columns=None).fit(by_party, y)
    np.testing.assert_array_equal(divided.predict_proba(x), apart.predict_proba(by_party))


def test_columns_by_name_keep_their_types_and_may_be_absent() -> None:
    x, y = tables()
    frame = x["bank"].assign(usage=x["shop"][:, 0], other=x["shop"][:, 1])
    columns = {"bank": ["age", "job"], "shop": ["usage"]}
    model = VerticalClassifier("shop", **{**FAST, **FEW_STEPS, "columns": columns}).fit(frame, y)
    assert model.job_.active == "shop"
    assert {*model.encoders_} == {"bank", "shop"}
    assert model.encoders_["bank"].columns.category_names == ("job",)
    assert model.predict(frame, absent=["bank"]).shape == (len(y),)
    assert [*model.feature_names_in_] == [*frame.columns]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.drop(columns="usage"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"bank": [0], "shop": [0, 1]}, "one party for each column, got bank and shop for 0"),
        ({"bank": [0], "shop": [9]}, "columns of shop among 4 feature"),
        ({"bank": "rest", "shop": "rest"}, "'rest' for one party"),
        ({"bank": "all", "shop": [0]}, "got bank: 'all'"),
        ({"bank": ["age"], "shop": [0]}, "columns of bank: no column 'age'"),
        ({"bank": [0, 1, 2, 3], "shop": "rest"}, "columns of shop, a passive party, got none of 4 feature"),
    ],
)
def test_columns_that_cannot_be_divided(one: Any, columns: Any, message: str) -> None:
    with pytest.raises(CutlayerError, match=message):
        VerticalClassifier(**{**FAST, "columns": columns}).fit(*one)


def test_slices_and_negative_numbers() -> None:
    table = pd.DataFrame(np.zeros((2, 5)), columns=list("abcde"))
    found = column_numbers(table, {"x": slice(0, 2), "y": [-1], "z": "rest", "w": []})
    assert found == {"x": [0, 1], "y": [4], "z": [2, 3], "w": []}


def test_an_active_party_without_a_table_is_an_error() -> None:
    """It would be trained as a party without features, and the owner of the labels as a passive one."""
    x, y = tables()
    offices = {"census": x["bank"], "employer": x["shop"]}
    with pytest.raises(CutlayerError, match="a table of bank, the active party, got tables of census, employer"):
        VerticalClassifier("bank").fit(offices, y)
    with pytest.raises(CutlayerError, match="'bank': None for a party that has labels alone"):
        VerticalClassifier("bank", **{**FAST, "columns": {"census": [0]}}).fit(x["shop"], y)
    with pytest.raises(CutlayerError, match="the name of the active party"):
        VerticalClassifier().fit(offices, y)
    model = classifier(epochs=1).fit({"bank": None, **offices}, y)
    assert {*model.encoders_} == {"census", "employer"}


def test_a_clone_has_the_parameters_and_no_fit(divided: VerticalClassifier) -> None:
    copy = clone(divided)
    assert copy.get_params().keys() == divided.get_params().keys()
    assert hasattr(divided, "classes_")
    assert not hasattr(copy, "classes_")
