"""What can be wrong in a notebook: one sentence, of this package's own errors or scikit-learn's."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from cutlayer import CutlayerError, LabelDPConfig, MaxNormConfig, VerticalClassifier, VerticalRegressor
from cutlayer.estimator.tables import check_order
from cutlayer.protections.grade_dp import GradeDPConfig
from tests.estimator.tables import ROWS, classifier, tables

X, Y = tables()


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X, Y)


@pytest.mark.parametrize("call", ["predict", "predict_proba", "score", "audit"])
def test_before_fit(call):
    arguments = {"audit": (), "score": (X, Y)}.get(call, (X,))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(classifier(), call)(*arguments)


@pytest.mark.parametrize(
    ("tables", "labels", "message"),
    [
        (X["shop"], Y, "X as a mapping from party name to table, got ndarray"),
        ([X["bank"], X["shop"]], Y, "X as a mapping from party name to table, got list"),
        ({"bank": X["bank"]}, Y, "expected at least one party with role passive, got none"),
        (
            {"bank": X["bank"][:9], "shop": X["shop"]},
            Y,
            "expected as many rows everywhere, .* got bank 9, shop 240, y 240",
        ),
        (X, Y[:9], "expected as many rows everywhere, .* got bank 240, shop 240, y 9"),
        ({"bank": None, "shop": X["shop"]}, Y[:9], "expected as many rows everywhere, .* got shop 240, y 9"),
        ({**X, "bank": X["bank"].assign(label=1)}, Y, "a feature of the active party is called 'label'; rename it"),
        ({**X, "shop": X["shop"][None]}, Y, "expected as many rows everywhere, .* got bank 240, shop 1, y 240"),
        ({**X, "shop": np.zeros((ROWS, 1, 1, 1, 1))}, Y, "party shop: expected an array of one to four dimensions"),
        ({**X, "shop": None}, Y, "party shop: expected a file, a data frame or an array, got NoneType"),
        ({**X, "shop": X["shop"] * np.inf}, Y, "party shop: expected finite numbers in column 'x0', got infinity"),
        ({**X, "a/b": X["shop"]}, Y, "parties.'a/b': expected a party name"),
        (X, np.where(np.arange(ROWS) == 3, np.nan, Y), "expected a label in every row, got none in 1 rows"),
        (
            X,
            pd.Series(["yes", None] * (ROWS // 2), dtype=object),
            "expected labels of one kind in y, got NoneType, str",
        ),
        (X, [1, "a"] * 0, r"expected y as labels \(n,\), one per row, got shape \(0,\)"),
        (X, np.eye(ROWS), r"expected y as labels \(n,\), one per row, got shape \(240, 240\)"),
        (X, np.zeros(ROWS), "^y: expected labels of two classes or more, got only '0'"),
        (
            {**X, "bank": X["bank"].assign(age=[1.0, "old"] * (ROWS // 2))},
            Y,
            r"expected columns of one type each, got float, str in column 'age'; convert it: astype\(str\)",
        ),
        (
            {**X, "bank": X["bank"].set_axis(["age", "age"], axis=1)},
            Y,
            "party bank: expected every column name once, got 'age' more than once; rename them",
        ),
    ],
)
def test_tables_and_labels(tables, labels, message):
    with pytest.raises(CutlayerError, match=message):
        classifier(attacks="auto").fit(tables, labels)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "VerticalClassifier.epochs: expected 'auto' or greater than or equal to 1, got 0"),
        ({"batch_size": 4096}, "4096"),
        ({"lr": -1.0}, "VerticalClassifier.lr: expected greater than 0, got -1.0"),
        ({"patience": 0}, "VerticalClassifier.patience: expected greater than or equal to 1, got 0"),
        ({"test": 0.5, "validation": 0.5}, "expected test . validation below 1, got 1"),
        ({"bottom": {"kind": "mpl"}}, "bottom .bank..kind: unknown kind 'mpl'; did you mean 'mlp'"),
        ({"attacks": ["nrom"]}, "unknown attack 'nrom'; did you mean 'norm'"),
        ({"compare": ["undefend"]}, "VerticalClassifier.compare.0: expected .* did you mean 'undefended'"),
        ({"key": b"short"}, "expected key as 32 bytes, got 5 bytes; such as secrets.token_bytes"),
        ({"key": "x" * 32}, "expected key as 32 bytes, got str"),
        ({"protections": LabelDPConfig(eps=1.0)}, "expected protections in a list, got LabelDPConfig"),
        ({"protections": "label_dp"}, "expected protections in a list, got str"),
        ({"protections": ["label_dp"]}, r"expected a protection's settings \(.*LabelDPConfig.*\), got str"),
        ({"protections": {"bank": ["label_dp"]}}, r"expected a protection's settings \(.*\), got str"),
        ({"protections": {"bnk": [MaxNormConfig()]}}, "expected protections of bank, shop, got bnk"),
        ({"protections": {"shop": [MaxNormConfig()]}}, "expected protections.shop.max_norm in the part of the active"),
        ({"protections": [LabelDPConfig(eps=1.0), LabelDPConfig(eps=2.0)]}, "bank: label_dp once, got it twice"),
        ({"lr": 1e25}, "training diverged"),
        ({"class_weight": "train.seed"}, "VerticalClassifier.class_weight: expected 'balanced', got 'train.seed'"),
        ({"features": {"bank": {"categorical": "age"}}}, "VerticalClassifier.features.bank.categorical: expected a li"),
        ({"predictions": -1}, "VerticalClassifier.predictions: expected greater than or equal to 0, got -1"),
        ({"release": "twice"}, "VerticalClassifier.release: expected 'every_step' or 'once' .*, got 'twice'$"),
        ({"bottom_fit": {"shop": {"kind": "sketch"}}}, "expected no bottom_fit.shop but at a passive party"),
    ],
)
def test_settings(settings, message):
    with pytest.raises(CutlayerError, match=message):
        classifier(**settings).fit(X, Y)


def test_a_column_that_is_called_as_a_key_keeps_its_name() -> None:
    named = X["bank"].assign(**{"train.epochs": 1.0})
    with pytest.raises(CutlayerError, match=r"no column 'train\.epoch'; did you mean 'train\.epochs'\?"):
        classifier(split_by="train.epoch").fit({**X, "bank": named}, Y)


def test_an_unknown_argument_names_the_class_and_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"^VerticalRegressor: no argument 'epoch'; did you mean 'epochs'\?"):
        VerticalRegressor(epoch=3)
    assert inspect.signature(VerticalRegressor).parameters["epochs"].default == "auto"


def test_indexes_in_another_order_are_refused_and_other_indexes_are_not(fitted) -> None:
    bank, labels = X["bank"].sample(frac=1.0, random_state=1), pd.Series(Y)
    shop = pd.DataFrame(X["shop"], columns=["x0", "x1", "x2"])
    for given, target, name in (
        ({"bank": bank, "shop": shop}, Y, "shop"),
        ({"bank": bank, "shop": X["shop"]}, labels, "y"),
    ):
        with pytest.raises(CutlayerError, match=f"one order everywhere, .* got an index of {name} with the values"):
            classifier().fit(given, target)
    with pytest.raises(CutlayerError, match="expected rows in one order everywhere"):
        fitted.predict({"bank": bank, "shop": shop})
    with pytest.raises(CutlayerError, match="reindex y by the index of bank"):
        fitted.evaluate({"bank": bank, "shop": X["shop"]}, labels)
    moved = {"bank": X["bank"].set_axis(range(1000, 1000 + ROWS)), "shop": shop}
    np.testing.assert_array_equal(fitted.predict(moved), fitted.predict(X))
    assert fitted.evaluate(moved, labels).rows == ROWS


def test_rows_of_other_ids_are_refused() -> None:
    """Each organisation lacks another customer: the rows before the two are joined rightly, those between wrongly."""
    ids = [f"C{row:03}" for row in range(ROWS + 1)]
    shop = pd.DataFrame(X["shop"], columns=["x0", "x1", "x2"])
    bank, others = X["bank"].set_axis(ids[1:]), shop.set_axis(ids[:-1])
    with pytest.raises(CutlayerError, match="an index of shop with 239 of the values of that of bank in rows of their"):
        classifier().fit({"bank": bank, "shop": others}, Y)
    with pytest.raises(CutlayerError, match="leave out ids that one of them lacks, or reset_index"):
        classifier().fit({"bank": X["bank"], "shop": others}, pd.Series(Y, index=ids[1:]))
    for accepted in (ids[1:], range(ROWS), range(ROWS, 2 * ROWS)):
        check_order({"bank": bank, "shop": shop.set_axis(accepted), "y": Y})


def test_names_of_columns_where_a_transformer_left_none() -> None:
    one = classifier(active=None, columns={"bank": ["balance"], "shop": "rest"})
    with pytest.raises(CutlayerError, match=r"no column 'balance', since X is an array without names; use positions"):
        one.fit(np.zeros((ROWS, 3)), Y)


def test_a_run_dir_that_holds_a_run(tmp_path):
    classifier(run_dir=tmp_path).fit(X, Y)
    with pytest.raises(CutlayerError, match="holds a run already; choose another run_dir, or remove it"):
        classifier(run_dir=tmp_path).fit(X, Y)


def test_a_fit_that_fails_leaves_no_half_run_and_keeps_the_fit_before(tmp_path, fitted):
    with pytest.raises(CutlayerError):
        classifier(run_dir=tmp_path, batch_size=4096).fit(X, Y)
    assert not (tmp_path / "run").exists()
    before = fitted.predict_proba(X)
    fitted.set_params(epochs=0)
    with pytest.raises(CutlayerError):
        fitted.fit(X, Y)
    fitted.set_params(epochs=2)
    np.testing.assert_array_equal(fitted.predict_proba(X), before)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (X["shop"], "X as a mapping from party name to table, got ndarray"),
        ({"bank": X["bank"]}, "expected a table of bank, shop, got none of shop"),
        ({**X, "shpo": X["shop"]}, "no party of the model is called 'shpo'; did you mean 'shop'?"),
        ({"bank": X["bank"][:5], "shop": X["shop"]}, "expected as many rows everywhere, .* got bank 5, shop 240"),
        ({**X, "bank": X["bank"][["age"]]}, "party bank: no column 'job'; known: age"),
        ({**X, "shop": X["shop"][:, :2]}, "party shop: no column 'x2'; known: x0, x1"),
        (
            {**X, "bank": X["bank"].assign(age="old")},
            "party bank: expected numbers in column 'age', got 'old' in row 0",
        ),
        ({**X, "bank": X["bank"].assign(age=np.inf)}, "party bank: expected finite numbers in column 'age'"),
        ({"bank": X["bank"][:0], "shop": X["shop"][:0]}, "party bank: expected a table with rows, got no row"),
    ],
)
def test_rows_to_predict(fitted, tables, message):
    for call in (fitted.predict, fitted.predict_proba):
        with pytest.raises(CutlayerError, match=message):
            call(tables)


def test_an_unknown_attack_of_an_audit(fitted):
    with pytest.raises(CutlayerError, match="unknown attack 'nrom'; did you mean 'norm'"):
        fitted.audit(["nrom"])


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT])
def test_a_missing_label_is_named(missing):
    labels = np.asarray(Y).astype(object)
    labels[3] = missing
    with pytest.raises(ValueError, match="a label in every row of y, got none in 1 rows, the first is row 3"):
        VerticalClassifier(columns={"bank": [0], "shop": "rest"}, attacks=()).fit(X["shop"], labels)


def test_a_mistyped_active_party_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'bank'"):
        classifier(active="bnak").fit(X, Y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protections": {"shop": [GradeDPConfig(epsilon=8.0)]}}, r"write protections: \[LabelDPConfig\(eps=1\.0\)\]"),
        ({"bottom_fit": {"shop": {"kind": "grade", "limits": {"x0": 0.001}}}}, r"or raise bottom_fit\[party\]\.limits"),
        ({"bottom_fit": {"shop": {"kind": "grade", "least_z": 999.0}}}, r"or set bottom_fit\[party\]\.least_z: 0"),
    ],
)
def test_refusals_of_grades_are_in_arguments(change, message):
    graded = {
        "bottom": {"bank": {"kind": "auto"}, "shop": {"kind": "grade", "least_rows": 0, "label_epsilon": 9.0}},
        "bottom_fit": {"shop": {"kind": "grade", "least_z": 0}},
        "protections": {"bank": [LabelDPConfig(eps=8.0)], "shop": [GradeDPConfig(epsilon=8.0)]},
        "top": {"kind": "auto", "candidates": ["linear"]},
        "release": "once",
    }
    model = VerticalClassifier(active="bank", attacks=[], **{**graded, **change})
    with pytest.raises(CutlayerError, match=message):
        model.fit(X, Y)


@pytest.mark.parametrize("active", [{"bank": X["bank"]}, ["bank"], 3])
def test_the_active_party_is_a_name(active):
    with pytest.raises(CutlayerError, match="expected `active` as the name of the party that holds the labels, got"):
        VerticalClassifier(active).fit(X, Y)
