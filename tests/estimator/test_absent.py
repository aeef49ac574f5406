"""Answers without some parties: who contributed, what fine-tuning changes, and who cannot be absent."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score, roc_auc_score

from cutlayer import CutlayerError
from tests.estimator.tables import classifier, regressor, tables

PAIR, Y = tables()
X = {"bank": PAIR["bank"], "shop": PAIR["shop"][:, :1], "mill": PAIR["shop"][:, 1:]}
LONG = {"epochs": 4, "lr": 0.15, "validation": 0.0}


@pytest.fixture(scope="module")
def fitted():
    return classifier(**LONG).fit(X, Y)


def test_nobody_absent_is_the_same_to_the_last_bit(fitted):
    np.testing.assert_array_equal(fitted.predict_proba(X, absent=()), fitted.predict_proba(X))


def test_an_absent_partys_table_is_not_needed_and_not_read(fitted):
    rest = {name: table for name, table in X.items() if name != "shop"}
    found = fitted.predict_proba(rest, absent=["shop"])
    np.testing.assert_array_equal(fitted.predict_proba({**X, "shop": "no table"}, absent=("shop",)), found)
    assert np.abs(found - fitted.predict_proba(X)).max() > 0.01
    np.testing.assert_array_equal(fitted.predict(rest, absent={"shop"}), fitted.classes_[found.argmax(axis=1)])


def test_evaluate_says_who_contributed_and_how_good_it_was(fitted):
    whole, left = fitted.evaluate(X, Y), fitted.evaluate({"bank": X["bank"]}, Y, absent=["mill", "shop"])
    assert (whole.contributed, whole.absent, whole.rows) == (("bank", "shop", "mill"), (), len(Y))
    assert (left.contributed, left.absent) == (("bank",), ("shop", "mill"))
    proba = fitted.predict_proba({"bank": X["bank"]}, absent=["shop", "mill"])
    assert left.metrics["auc"] == pytest.approx(roc_auc_score(Y, proba[:, 1]), abs=1e-6)
    assert left.metrics["accuracy"] == pytest.approx((proba.argmax(axis=1) == Y).mean())
    assert whole.metrics["auc"] > left.metrics["auc"]


def test_labels_of_text_are_found_among_the_classes():
    words = np.array(["no", "yes"])[Y]
    model = classifier().fit(X, words)
    assert model.evaluate(X, words).metrics["accuracy"] == model.score(X, words)
    with pytest.raises(CutlayerError, match="expected labels among no, yes, got maybe; only these were trained on"):
        model.evaluate(X, np.where(Y == 1, "maybe", words))


def test_a_regressor_answers_too():
    values = PAIR["bank"]["age"].to_numpy() + PAIR["shop"][:, 0]
    model = regressor(**LONG).fit(X, values)
    found = model.evaluate(X, values, absent=["shop"])
    assert found.metrics["r2"] == pytest.approx(r2_score(values, model.predict(X, absent=["shop"])), abs=1e-4)
    assert found.metrics["r2"] < model.evaluate(X, values).metrics["r2"]
    with pytest.raises(CutlayerError, match="expected numbers in y"):
        model.evaluate(X, np.array(["a"] * len(Y)))


def test_fine_tuning_serves_just_the_absence_it_is_for(fitted):
    model, rest = copy.deepcopy(fitted), {"bank": X["bank"], "mill": X["mill"]}
    before = {names: fitted.predict_proba(X, absent=names) for names in [(), ("mill",), ("shop",), ("mill", "shop")]}
    assert model.finetune_top(rest, Y, ["shop"], epochs=8) is model
    for names, found in before.items():
        now = model.predict_proba(X, absent=names)
        assert np.array_equal(now, found) == (names != ("shop",))
    assert (
        model.evaluate(rest, Y, ["shop"]).metrics["log_loss"] < fitted.evaluate(rest, Y, ["shop"]).metrics["log_loss"]
    )
    again = copy.deepcopy(fitted).finetune_top(rest, Y, ("shop",), epochs=8)
    np.testing.assert_array_equal(again.predict_proba(rest, ["shop"]), model.predict_proba(rest, ["shop"]))


def test_multi_head_and_party_dropout_in_an_estimator():
    from cutlayer.protections.party_dropout import PartyDropoutConfig

    settings = {"top": {"kind": "multi_head"}, "protections": [PartyDropoutConfig(rate={"shop": 0.3})], **LONG}
    model = classifier(**settings).fit(X, Y)
    assert model.report_.departures.heads == 4
    assert model.report_.protections[0].metrics.keys() == {"steps", "dropped.shop"}
    assert model.evaluate(X, Y, ["shop", "mill"]).metrics["auc"] > 0.6


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        (["shp"], "absent: no passive party is called 'shp'; did you mean 'shop'"),
        (["bank"], "expected absent passive parties, got bank; it holds the top model, which answers"),
        ("shop", "expected absent as several names, got the text 'shop'"),
        (["shop"], "expected a table of bank, mill, got none of mill; name who is absent"),
    ],
)
def test_who_cannot_be_absent(fitted, absent, message):
    given = {"bank": X["bank"], "shop": X["shop"]}
    calls = (
        lambda: fitted.predict(given, absent),
        lambda: fitted.predict_proba(given, absent=absent),
        lambda: fitted.evaluate(given, Y, absent),
        lambda: fitted.finetune_top(given, Y, absent),
    )
    for call in calls:
        with pytest.raises(CutlayerError, match=message):
            call()


def test_somebody_with_features_must_stay():
    model = classifier().fit({"bank": None, "shop": X["shop"], "mill": X["mill"]}, Y)
    assert model.predict({"mill": X["mill"]}, absent=["shop"]).shape == (len(Y),)
    message = "got all of shop, mill absent, and bank has none; keep one of them, or train again with features of bank"
    with pytest.raises(CutlayerError, match=message):
        model.predict({}, absent=["shop", "mill"])


def test_other_bad_input(fitted):
    with pytest.raises(CutlayerError, match="expected as many labels in y as rows, got 9, 240"):
        fitted.evaluate(X, Y[:9])
    with pytest.raises(CutlayerError, match="expected epochs of 1 or more, got 0"):
        fitted.finetune_top(X, Y, ["shop"], epochs=0)
    for call in ("evaluate", "finetune_top"):
        with pytest.raises(NotFittedError):
            getattr(classifier(), call)(X, pd.Series(Y), ["shop"])
