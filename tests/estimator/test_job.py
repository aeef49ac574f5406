"""What a job file can state and an estimator can too: features, optimiser, weights, budget, release without labels."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pytest

import cutlayer
from cutlayer import BudgetConfig, CutlayerError, LabelDPConfig, LabelFreeConfig, Report, VerticalClassifier
from cutlayer.config.load import load_closed_job
from cutlayer.protections import REGISTRY
from cutlayer.report.html import render_html
from tests.estimator.tables import ROWS, classifier, tables

X, Y = tables()
LABEL_FREE: dict[str, Any] = {
    "protections": [LabelFreeConfig()],
    "release": "once",
    "bottom": {"bank": {"kind": "mlp", "hidden": [8]}, "shop": {"kind": "linear", "width": 8}},
    "bottom_fit": {"shop": {"kind": "sketch"}},
    "features": {"shop": {"numbers": {"quantiles": 8}}},
    "optimizer": {"kind": "adamw", "weight_decay": 0.01},
    "class_weight": "balanced",
}


@pytest.fixture(scope="module")
def fitted() -> Any:
    return classifier(**LABEL_FREE).fit(X, Y, sample_weight=np.linspace(1.0, 2.0, ROWS))


def test_the_job_states_what_was_given(fitted: Any) -> None:
    job = load_closed_job(fitted.folder_.path / "job.yaml")
    shop, bank = job.parties["shop"], job.parties["bank"]
    assert (shop.fit, shop.features.numbers.quantiles) == ({"kind": "sketch"}, 8)
    assert (bank.privacy, bank.weight) == ({"label_free": {}}, "weight")
    assert (job.train.release, job.train.class_weight) == ("once", "balanced")
    assert job.train.optimizer.model_dump() == {"kind": "adamw", "lr": 0.05, "weight_decay": 0.01, "momentum": 0.0}
    assert [total.epsilon for total in fitted.report_.ledger.totals if total.protects == "labels"] == [0.0]
    assert fitted.predict(X).shape == (ROWS,)


def test_a_loaded_model_has_the_parameters_of_the_fit(fitted: Any) -> None:
    loaded = VerticalClassifier.load(fitted.folder_.path, key=fitted.key)
    for name in ("features", "optimizer", "class_weight", "release", "bottom_fit"):
        assert getattr(loaded, name) == LABEL_FREE[name], name
    assert loaded.protections == {"bank": [LabelFreeConfig()]}


def test_weights_count_in_the_loss() -> None:
    """Rows without weight train nothing: their labels are turned round, and the model is that of the rest."""
    wrong = np.arange(ROWS) % 3 > 0
    settings = {"epochs": 6, "lr": 0.1, "validation": 0.0}
    model = classifier(**settings).fit(X, np.where(wrong, 1 - Y, Y), sample_weight=np.where(wrong, 0.0, 1.0))
    assert (model.predict(X) == Y).mean() > 0.75


def test_a_class_without_weight_trains_nothing() -> None:
    model = classifier(epochs=6, lr=0.1, validation=0.0, class_weight={0: 0.0}).fit(X, Y)
    assert (model.predict(X) == 1).mean() > 0.95
    assert model.job_.train.class_weight is None


def test_a_budget_is_of_one_party() -> None:
    given = {"bank": [LabelDPConfig(eps=1.0), BudgetConfig(epsilon=0.5)]}
    with pytest.raises(CutlayerError, match="budget"):
        classifier(protections=given).fit(X, Y)
    with pytest.raises(CutlayerError, match="a budget by party, got one in a plain list; such as"):
        classifier(protections=[LabelDPConfig(eps=1.0), BudgetConfig(epsilon=2.0)]).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "weights", "message"),
    [
        ({"features": {"shopp": {}}}, None, "features: no party is called 'shopp'; did you mean 'shop'"),
        ({"features": ["c0"]}, None, r"features as a mapping by party \(bank, shop\), got list"),
        ({"bottom_fit": {"shop": {"kind": "sketch"}}}, None, "fit"),
        ({"optimizer": {"knd": "sgd"}}, None, "unknown key; did you mean 'kind'"),
        ({"class_weight": "even"}, None, "balanced"),
        ({"class_weight": {"yes": 2.0}}, None, "class_weight of 0, 1, got 'yes'; keys are labels of y"),
        ({}, [1.0, 2.0], r"sample_weight as numbers \(240,\), one per row, got shape \(2,\)"),
        ({}, ["many"] * ROWS, "sample_weight as numbers"),
        ({}, [-1.0] * ROWS, "weights of 0 or more"),
        ({}, [0.0] * ROWS, "a sample_weight above zero in some row, got zero in all"),
    ],
)
def test_what_a_user_gets_wrong(settings: dict[str, Any], weights: Any, message: str) -> None:
    with pytest.raises(CutlayerError, match=message):
        classifier(**settings).fit(X, Y, sample_weight=weights)


def test_a_notebook_shows_the_report_as_its_page(fitted: Any) -> None:
    assert isinstance(fitted.report_, Report)
    framed = re.search(r'^<iframe srcdoc="([^"]*)" sandbox="allow-scripts"', fitted.report_._repr_html_())
    assert framed
    assert html.unescape(framed[1]) == render_html(fitted.report_)


def test_every_protection_has_its_settings_in_the_package() -> None:
    assert {protection.config.__name__ for protection in REGISTRY.values()} <= set(cutlayer.__all__)
    for name in cutlayer.__all__:
        assert getattr(cutlayer, name) is not None
