"""A fitted estimator in a folder: the same predictions, and one count of its releases."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import numpy as np
import pytest

from cutlayer import CutlayerError, VerticalClassifier, VerticalRegressor
from cutlayer.errors import BudgetExceeded, CheckpointError
from cutlayer.protections.dp_embedding import DPEmbeddingConfig
from cutlayer.serving.predict import PredictionRequest, predict
from tests.estimator.tables import SMALL, classifier, regressor, tables

X, Y = tables()
KEY = SMALL["key"]
NOISY = DPEmbeddingConfig(clip=1.0, noise_multiplier=1.0)


def test_a_saved_model_predicts_when_the_estimator_is_gone(tmp_path: Path) -> None:
    model = classifier().fit(X, np.array([7, -3])[Y])
    wanted, scratch = model.predict_proba(X), model.folder_.path
    model.save(tmp_path / "model")
    del model
    gc.collect()
    assert not scratch.exists()
    loaded = VerticalClassifier.load(tmp_path / "model", key=KEY)
    np.testing.assert_array_equal(loaded.predict_proba(X), wanted)
    assert loaded.classes_.tolist() == [-3, 7]
    assert loaded.predict(X).dtype == int
    assert loaded.report_.task.kind == "binary"
    assert (loaded.epochs, loaded.batch_size, loaded.lr, loaded.seed) == (2, 64, 0.05, 3)
    assert not [*(tmp_path / "model").glob("**/*.npy")]
    assert not (tmp_path / "model" / "transcript").exists()
    out = tmp_path / "s.parquet"
    assert predict(loaded.job_, loaded.folder_, out, PredictionRequest({**X}, key=KEY)).rows == len(Y)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([False, True], ("false", "true")),
        ([0.0, 1.5], ("0", "1.5")),
        (["10", "9"], ("10", "9")),
    ],
)
def test_labels_come_back_as_they_went_in(tmp_path: Path, labels: list[object], names: tuple[str, str]) -> None:
    given = np.array(labels)[Y]
    model = classifier(epochs=1, run_dir=tmp_path).fit(X, given)
    np.testing.assert_array_equal(model.classes_, np.unique(given))
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    assert model.report_.task.classes == names
    loaded = VerticalClassifier.load(tmp_path / "run", key=KEY)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.predict(X).dtype == model.predict(X).dtype == model.classes_.dtype == given.dtype


def test_a_loaded_model_divides_one_table_as_before(tmp_path: Path) -> None:
    frame = X["bank"].assign(a=X["shop"][:, 0], b=X["shop"][:, 1])
    columns = {"bank": ["age", "job"], "shop": slice(2, None)}
    model = classifier(active=None, columns=columns).fit(frame, Y)
    model.save(tmp_path / "model")
    loaded = VerticalClassifier.load(tmp_path / "model", key=KEY)
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert loaded.columns == columns
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))
    assert loaded.fit(frame, Y).score(frame, Y) > 0.5


@pytest.mark.parametrize(("key", "run_dir"), [(KEY, True), (KEY, False), (None, True)])
def test_copies_share_one_count_of_predictions(tmp_path: Path, key: bytes | None, run_dir: bool) -> None:
    """Two counts would allow twice the planned releases; with a supplied key the log is in the run folder itself."""
    where = tmp_path / "own" if run_dir else None
    model = classifier(protections=[NOISY], predictions=3, key=key, run_dir=where, epochs=1).fit(X, Y)
    model.predict(X)
    model.save(tmp_path / "saved")
    loaded = VerticalClassifier.load(tmp_path / "saved", key=key)
    loaded.predict(X)
    again = shutil.copytree(tmp_path / "saved", tmp_path / "copied")
    VerticalClassifier.load(again, key=key).predict(X)
    for other in (model, loaded, VerticalClassifier.load(again, key=key)):
        with pytest.raises(BudgetExceeded, match="prediction 4 was asked for"):
            other.predict(X)
    if run_dir:
        shutil.rmtree(tmp_path / "own")
        with pytest.raises(CheckpointError, match="release log"):
            VerticalClassifier.load(again, key=key).predict(X)


def test_protections_are_those_of_the_fit(tmp_path: Path) -> None:
    classifier(protections=[NOISY], predictions=2, run_dir=tmp_path).fit(X, Y)
    loaded = VerticalClassifier.load(tmp_path / "run", key=KEY)
    assert loaded.protections == {"shop": [NOISY]}
    assert (loaded.predictions, loaded.active) == (2, "bank")


def test_what_cannot_be_loaded_or_saved(tmp_path: Path) -> None:
    values = X["bank"]["age"].to_numpy()
    model = regressor(epochs=1, run_dir=tmp_path).fit(X, values)
    np.testing.assert_array_equal(VerticalRegressor.load(tmp_path / "run", key=KEY).predict(X), model.predict(X))
    with pytest.raises(CutlayerError, match="use VerticalRegressor"):
        VerticalClassifier.load(tmp_path / "run", key=KEY)
    with pytest.raises(CutlayerError, match="a run folder"):
        VerticalRegressor.load(tmp_path / "nowhere")
    with pytest.raises(CutlayerError, match="a new or empty folder"):
        model.save(tmp_path)
    model.finetune_top(X, values, ["shop"])
    with pytest.raises(CutlayerError, match="fine-tuned without shop"):
        model.save(tmp_path / "saved")
    (tmp_path / "run" / "checkpoint" / "shop" / "model.json").unlink()
    with pytest.raises(CutlayerError, match="shop's part of a finished run"):
        VerticalRegressor.load(tmp_path / "run")


def test_a_split_that_was_sent_is_saved_with_the_model(tmp_path: Path) -> None:
    """Its rows cannot be computed from the job, and a loaded model sets up its protections with them."""
    X, y = tables()
    since = X["bank"].assign(since=np.arange(len(y)))
    for index, (given, split) in enumerate(((since, {"split_by": "since"}), (X["bank"], {"stratify": True}))):
        model = classifier(**split).fit({**X, "bank": given}, y)
        model.save(tmp_path / str(index))
        loaded = VerticalClassifier.load(tmp_path / str(index), key=model.key)
        assert (loaded.predict({**X, "bank": given}) == model.predict({**X, "bank": given})).all()
        assert {key: loaded.get_params()[key] for key in split} == split
