"""`VerticalClassifier`: scikit-learn's habits, and what comes beside them."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.metrics import roc_auc_score

from cutlayer import LabelDPConfig, MaxNormConfig, Report, VerticalClassifier, VerticalRegressor, demo
from cutlayer.config.load import load_closed_job
from cutlayer.data.align import intersect
from cutlayer.data.arrivals import ArrivalWarning
from cutlayer.data.party_data import PartyTable
from cutlayer.data.split import split_rows
from cutlayer.errors import ConfigError
from cutlayer.estimator.job import LABEL, job_of
from cutlayer.estimator.tables import labels_of, read_tables, with_columns
from tests.estimator.tables import ROWS, SMALL, classifier, tables


@pytest.fixture(scope="module")
def data():
    return tables()


@pytest.fixture(scope="module")
def fitted(data):
    """Trained long enough to know something."""
    return classifier(epochs=6, lr=0.1, validation=0.0).fit(*data)


def test_it_learns_what_both_parties_know_together(fitted, data):
    X, y = data
    assert fitted.predict(X).shape == (ROWS,)
    assert set(fitted.predict(X)) == {0, 1}
    proba = fitted.predict_proba(X)
    assert proba.shape == (ROWS, 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[proba.argmax(axis=1)])
    assert fitted.score(X, y) == np.mean(fitted.predict(X) == y) > 0.75
    assert is_classifier(fitted)


@pytest.mark.parametrize("validation", [0.0, 0.1])
def test_the_restored_models_give_the_figure_of_the_report(fitted, data, validation):
    """AUC of `predict_proba` on the rows that the run held out, worked out here again, is the report's to the digit."""
    X, y = data
    model = classifier(epochs=5, lr=0.1, validation=validation).fit(X, y) if validation else fitted
    run = model.report_.run
    assert (run.selected, run.selected_epoch < 5) == (("best", True) if validation else ("last", False))
    positions = intersect({name: PartyTable(name, table).digests for name, table in X.items()})["bank"]
    test = positions[split_rows(ROWS, model.job_.train.split, model.job_.train.seed).test]
    row = next(row for row in model.report_.utility.rows if row.name == "this run")
    assert len(test) == model.report_.data.test == 24
    asked = {"bank": X["bank"].iloc[test], "shop": X["shop"][test]}
    assert roc_auc_score(y[test], model.predict_proba(asked)[:, 1]) == pytest.approx(row.metrics["auc"], abs=1e-12)


def test_it_does_not_depend_on_the_order_or_number_of_rows_asked_for(fitted, data):
    X, _ = data
    whole = fitted.predict_proba(X)
    order = np.random.default_rng(1).permutation(ROWS)
    shuffled = {"bank": X["bank"].iloc[order], "shop": X["shop"][order]}
    np.testing.assert_allclose(fitted.predict_proba(shuffled), whole[order], rtol=1e-5)
    one = {"shop": X["shop"][:1], "bank": X["bank"][:1]}
    np.testing.assert_allclose(fitted.predict_proba(one), whole[:1], rtol=1e-5)


def test_parties_are_not_mixed_up(fitted, data):
    """Each party's columns matter, and swapping the rows of one party alone changes the answer."""
    X, _ = data
    whole = fitted.predict_proba(X)
    for name, table in X.items():
        turned = {**X, name: table[::-1]}
        assert np.abs(fitted.predict_proba(turned) - whole).max() > 0.05, name


def test_rows_with_what_training_has_not_seen(fitted, data):
    X, _ = data
    fresh = {"bank": X["bank"].assign(job="pilot"), "shop": X["shop"]}
    with pytest.warns(ArrivalWarning, match="column 'job': .* values were not seen in training"):
        unseen = fitted.predict_proba(fresh)
    assert np.isfinite(unseen).all()
    with pytest.warns(ArrivalWarning):
        np.testing.assert_array_equal(unseen, fitted.predict_proba({**fresh, "bank": X["bank"].assign(job="actor")}))
    missing = {"bank": X["bank"].assign(age=np.nan, job=None), "shop": X["shop"]}
    with pytest.warns(ArrivalWarning, match="no value in"):
        assert np.isfinite(fitted.predict_proba(missing)).all()


def test_the_greater_label_is_the_positive_one_whatever_it_is_called(fitted, data):
    X, y = data
    turned = clone(fitted).fit(X, np.array(["b", "a"])[y])
    assert roc_auc_score(y, fitted.predict_proba(X)[:, 1]) > 0.8
    assert roc_auc_score(y, turned.predict_proba(X)[:, 1]) < 0.2


@pytest.mark.parametrize(
    "wrap",
    [
        list,
        pd.Series,
        lambda y: pd.Series(y, dtype="category"),
        lambda y: np.array(y, dtype=object),
        lambda y: np.array(y)[:, None],
    ],
)
def test_kinds_of_label_columns(data, wrap):
    words = np.array(["no", "yes"])[data[1]].tolist()
    assert with_columns(None, {LABEL: labels_of(wrap(words))})[LABEL].to_pylist() == words


def test_several_classes_in_the_order_of_their_values(data):
    X, y = data
    given = np.array([10, 9, 100])[(y + (X["shop"][:, 1] > 0)) % 3]
    model = classifier(epochs=5, lr=0.1, validation=0.0).fit(X, given)
    assert model.classes_.tolist() == [9, 10, 100]
    assert model.report_.task.kind == "multiclass"
    assert model.report_.task.classes == ("9", "10", "100")
    assert model.predict_proba(X).shape == (ROWS, 3)
    assert model.score(X, given) > 0.4


def test_tables_of_all_kinds(data):
    X, y = data
    frame = X["bank"]
    arrow = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    expected = classifier(epochs=1).fit(X, y).predict_proba(X)
    indexed = frame.set_index(pd.Index(range(ROWS, 0, -1), name="person"))
    model = classifier(epochs=1).fit({"bank": indexed, "shop": X["shop"]}, y)
    assert model.encoders_["bank"].names == ("age", "job"), "the index is no feature"
    for bank in (arrow, frame.to_dict("list"), indexed):
        assert read_tables({"bank": bank}, ["bank"])["bank"].to_pydict() == frame.to_dict("list")
        np.testing.assert_array_equal(model.predict_proba({"bank": bank, "shop": X["shop"]}), expected)


def test_an_active_party_without_features(data):
    X, y = data
    model = classifier(epochs=4, lr=0.1, validation=0.0).fit({"bank": None, "shop": X["shop"]}, y)
    assert model.encoders_.keys() == {"shop"}
    assert model.score({"shop": X["shop"]}, y) > 0.6
    assert [party.name for party in model.report_.parties] == ["bank", "shop"]
    assert model.report_.parties[0].width is None


def test_three_parties(data):
    X, y = data
    three = {"shop": X["shop"][:, :1], "bank": X["bank"], "mill": X["shop"][:, 1:]}
    model = classifier(epochs=4, lr=0.1, validation=0.0).fit(three, y)
    assert list(model.job_.parties) == ["bank", "shop", "mill"]
    assert model.score(three, y) > 0.6


def test_parameters_as_scikit_learn_wants_them():
    settings = {"protections": [LabelDPConfig(eps=1.0)], "run_dir": "x", "key": bytes(32), "compare": ["alone"]}
    model = classifier(**settings)
    names = set(inspect.signature(VerticalClassifier).parameters)
    assert model.get_params().keys() == names
    for name, value in {**SMALL, **settings}.items():
        assert getattr(model, name) is value, f"{name} is kept as it was given"
    again = clone(model)
    assert again is not model
    assert repr(again.get_params()) == repr(model.get_params())
    assert model.set_params(epochs=3, lr=0.5) is model
    assert (model.epochs, model.lr) == (3, 0.5)
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        model.set_params(epoch=3)
    assert inspect.signature(VerticalRegressor).parameters.keys() == names | {"task"}


def test_a_clone_is_not_fitted_and_fits_to_the_same(fitted, data):
    X, y = data
    again = clone(fitted)
    assert not hasattr(again, "classes_")
    np.testing.assert_array_equal(again.fit(X, y).predict_proba(X), fitted.predict_proba(X))


def test_fit_again_forgets_the_first_fit_and_folders_go_with_their_estimator(data):
    """The first labels are categories."""
    X, y = data
    model = classifier().fit(X, pd.Series(np.array(["no", "yes"])[y], dtype="category"))
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(X)) <= {"no", "yes"}
    first = Path(model.folder_.path)
    assert first.exists()
    model.set_params(epochs=1).fit(X, y + (X["shop"][:, 1] > 0))
    assert model.classes_.tolist() == [0, 1, 2]
    assert len(model.report_.history) == 1
    second = Path(model.folder_.path)
    assert second != first
    del model
    gc.collect()
    assert not first.exists()
    assert not second.exists()


def test_a_copy_predicts_as_the_original(fitted, data):
    X, _ = data
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict_proba(X), fitted.predict_proba(X))


@pytest.fixture(scope="module")
def noisy(data):
    """Of drawn labels and limited gradients; not to be changed."""
    return classifier(protections=[LabelDPConfig(eps=2.0), MaxNormConfig()], epochs=1, key=bytes(32)).fit(*data)


def test_protections_go_to_the_side_each_is_for(noisy, data):
    X, model = data[0], noisy
    assert model.job_.parties["bank"].privacy == {"label_dp": {"eps": 2.0}, "max_norm": {}}
    assert model.job_.parties["shop"].privacy == {}
    assert {part.name: part.party for part in model.report_.protections} == {"label_dp": "bank", "max_norm": "bank"}
    flipped = next(part for part in model.report_.protections if part.name == "label_dp")
    assert (flipped.sent, flipped.unit) == (192, "rows")
    assert 0 < flipped.changed < 70
    mapped = classifier(protections={"bank": (LabelDPConfig(eps=2.0),)})
    job, _ = job_of(mapped, read_tables(X, [*X]), [*X], "binary")
    assert job.parties["bank"].privacy == {"label_dp": {"eps": 2.0}}


def test_the_same_key_gives_the_same_predictions_and_another_does_not(noisy, data):
    X, y = data
    again, other = (clone(noisy).set_params(key=key).fit(X, y).predict_proba(X) for key in (bytes(32), bytes([1]) * 32))
    np.testing.assert_array_equal(noisy.predict_proba(X), again)
    assert noisy.report_.run.reproducible_noise
    assert np.abs(again - other).max() > 0


def test_without_a_key_two_fits_start_from_different_weights(data):
    X, y = data
    first, second = (classifier(key=None, epochs=1).fit(X, y) for _ in range(2))
    assert not first.report_.run.reproducible_noise
    assert np.abs(first.predict_proba(X) - second.predict_proba(X)).max() > 0


@pytest.fixture(scope="module")
def attacked(data):
    """Attacked and compared; not to be changed."""
    return classifier(attacks=["norm"], compare=["alone", "centralised"]).fit(*data)


def test_audit_repeats_and_narrows_the_attacks(attacked):
    model = copy.deepcopy(attacked)
    before = {(leak.message, leak.attack): leak.leak for leak in model.report_.leaks}
    again = model.audit()
    assert isinstance(again, Report)
    assert again is model.report_
    assert {(leak.message, leak.attack): leak.leak for leak in again.leaks} == before
    assert {leak.attack for leak in model.audit(["norm"]).leaks} == {"norm"}


def test_attacks_and_comparisons_of_the_fit(attacked):
    assert {leak.attack for leak in attacked.report_.leaks} == {"norm"}
    names = {row.name for row in attacked.report_.utility.rows}
    assert names == {"this run", "bank alone", "all columns in one place", "chance"}


def test_patience_stops_early(data):
    X, y = data
    model = classifier(epochs=200, patience=1, lr=0.1).fit(X, y)
    assert model.report_.run.stopped_early
    assert len(model.report_.history) < 200


def test_a_run_folder_is_kept_where_it_was_asked_for(data, tmp_path):
    X, y = data
    model = classifier(run_dir=tmp_path / "kept", epochs=1).fit(X, y)
    folder = tmp_path / "kept" / "run"
    assert model.folder_.path == folder
    assert load_closed_job(folder / "job.yaml").digest() == model.job_.digest()
    assert (folder / "history.jsonl").exists()
    del model
    gc.collect()
    assert folder.exists()


def test_fit_leaves_the_process_as_it_was(data):
    X, y = data
    torch.manual_seed(11)
    np.random.seed(11)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(threads + 1)
    numpy_state = np.random.get_state()[1].copy()
    before = {name: copy.deepcopy(table) for name, table in X.items()}
    try:
        classifier(threads=1, epochs=1).fit(X, y)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)
    pd.testing.assert_frame_equal(X["bank"], before["bank"])
    np.testing.assert_array_equal(X["shop"], before["shop"])


def test_ten_lines_make_what_the_demo_makes():
    """The demo's job on few rows: the same parties, columns and references, and a model better than chance."""
    person = pd.read_parquet(demo.FOLDER / "adult.parquet").head(3000)
    job = demo.demo_job()
    columns = {name: list(party.features.include) for name, party in job.parties.items()}
    model = VerticalClassifier(
        "bank",
        bottom=job.model.bottom,
        top=job.model.top,
        release="every_step",
        epochs=3,
        batch_size=256,
        lr=0.01,
        seed=7,
        key=bytes(32),
        compare=["centralised", "alone"],
        attacks=["norm"],
    ).fit({name: person[names] for name, names in columns.items()}, person["income"])
    rows = {row.name: row.metrics["auc"] for row in model.report_.utility.rows}
    assert rows.keys() == {"this run", "all columns in one place", "bank alone", "chance"}
    assert rows["this run"] > rows["bank alone"] > 0.55
    assert rows["this run"] > 0.8
    assert abs(rows["this run"] - rows["all columns in one place"]) < 0.03
    assert [party.name for party in model.report_.parties] == list(job.parties)
    assert [party.categorical for party in model.report_.parties] == [0, 6, 2]
    assert list(model.classes_) == sorted(person["income"].unique())


def test_a_threshold_by_rate_or_by_cost() -> None:
    X, y = tables()
    model = classifier(test=0.4).fit(X, y)
    scores, curve = model.predict_proba(X)[:, 1], model.report_.quality.curve
    strict, loose = model.choose_threshold(rate=0.1), model.choose_threshold(rate=0.6)
    assert strict > loose
    assert max(point.rate for point in curve if point.threshold >= strict) <= 0.1
    assert list(model.predict(X, threshold=loose)) == list(model.classes_[(scores >= loose).astype(int)])
    # Costs that make every miss, or every false alarm, unbearable.
    assert (scores >= model.choose_threshold(cost=(1, 1e9))).mean() > 0.9 > 0.1
    assert model.choose_threshold(cost=(1e9, 1)) == min(p.threshold for p in curve if p.false_positive_rate == 0)
    # By scikit-learn's ROC curve, the least cost of the thresholds there are.
    share = curve[-1].precision

    def cost(threshold: float) -> float:
        point = next(point for point in curve if point.threshold == threshold)
        return 3 * share * (1 - point.recall) + (1 - share) * point.false_positive_rate

    assert cost(model.choose_threshold(cost=(1, 3))) == pytest.approx(min(cost(point.threshold) for point in curve))


@pytest.mark.parametrize("wrong", [{}, {"rate": 0.1, "cost": (1, 1)}, {"rate": 0}, {"rate": 2}, {"cost": (0, 1)}])
def test_a_threshold_by_what_it_cannot_be_is_refused(fitted: VerticalClassifier, wrong: Any) -> None:
    assert 0 < fitted.choose_threshold(rate=0.5) < 1
    with pytest.raises(ConfigError, match="expected"):
        fitted.choose_threshold(**wrong)
