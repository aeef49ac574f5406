"""What an estimator trains by default: the job that `init` writes; the undefended setting is one argument away."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

from cutlayer import CutlayerError, LabelDPConfig, VerticalClassifier, VerticalRegressor
from cutlayer.accounting import ReleaseLog, log_of_run
from cutlayer.cli.init import init
from cutlayer.config import Job
from cutlayer.config.load import load_job
from cutlayer.estimator.job import WEIGHT, job_of
from cutlayer.estimator.tables import read_tables
from tests.estimator.tables import classifier, tables

NAMES = ("bank", "shop")


def in_memory() -> dict[str, pa.Table]:
    """The tables of a bank and a shop; the shop's lacks a number and has a column of text."""
    X, _ = tables()
    shop = pd.DataFrame(X["shop"], columns=["x", "y", "z"])
    shop["town"] = np.arange(len(shop)) % 7
    shop["town"] = "town " + shop["town"].astype(str)
    shop.loc[3, "x"] = None
    return {"bank": pa.table(X["bank"]), "shop": pa.Table.from_pandas(shop, preserve_index=False)}


def described(**settings: Any) -> Job:
    """The job of an estimator with these arguments."""
    return job_of(VerticalClassifier("bank", **settings), in_memory(), NAMES, "binary")[0]


@pytest.mark.parametrize(
    ("copies", "word", "protect"), [(1, "auto", "labels"), (20, "auto", "both"), (20, "proof", "proof")]
)
def test_the_default_is_what_init_writes(copies: int, word: str, protect: str, tmp_path: Path) -> None:
    """And a proof, where rows suffice for grades."""
    y = np.tile(tables()[1], copies)
    found = {name: pa.concat_tables([table] * copies) for name, table in in_memory().items()}
    frames = {"bank": found["bank"].append_column("label", pa.array(y)), "shop": found["shop"]}
    for name, table in frames.items():
        table.to_pandas().rename_axis("id").reset_index().to_csv(tmp_path / f"{name}.csv", index=False)
    with redirect_stdout(StringIO()) as printed:
        init(tmp_path, owner="bank.csv", label="label", protect=word, yes=True)
    written = load_job(tmp_path / "job.yaml")
    default, filled = job_of(
        VerticalClassifier("bank", protect=word), found, NAMES, "binary", counts=np.bincount(y).tolist()
    )
    assert filled.protect == protect
    assert f"protected: {filled.reason}" in printed.getvalue()
    assert default.model == written.model
    assert default.train.release == written.train.release == "once"
    for name in NAMES:
        assert default.parties[name].privacy.keys() == written.parties[name].privacy.keys()
        assert default.parties[name].fit == written.parties[name].fit
        assert default.parties[name].features.numbers == written.parties[name].features.numbers
    assert default.parties["shop"].audit == written.parties["shop"].audit
    graded = {"kind": "grade"} | ({"epsilon": 2.0} if word == "proof" else {})
    shop = {"kind": "sketch", "map": "permutation"} if protect == "labels" else graded
    assert default.parties["shop"].fit == shop


@pytest.mark.parametrize("protect", ["labels", "columns", "both", "proof", "nothing"])
def test_one_word_is_the_word_of_init(protect: str, tmp_path: Path) -> None:
    """Few rows: `both` and `proof` protect columns by noise, as there."""
    X, y = tables()
    given = {"bank": pa.table(X["bank"]), "shop": pa.table({"x": X["shop"][:, 0]})}
    for name, table in given.items():
        frame = table.append_column("label", pa.array(y)) if name == "bank" else table
        frame.to_pandas().rename_axis("id").reset_index().to_csv(tmp_path / f"{name}.csv", index=False)
    with redirect_stdout(StringIO()):
        init(tmp_path, owner="bank.csv", label="label", protect=protect, yes=True)
    written = load_job(tmp_path / "job.yaml")
    model = VerticalClassifier("bank", protect=protect)
    made, filled = job_of(model, given, NAMES, "binary", counts=np.bincount(y).tolist())
    assert filled.protect == ("both" if protect == "proof" else protect)
    assert made.train.release == written.train.release
    assert made.model == written.model
    for name in NAMES:
        assert made.parties[name].privacy == {key: each or {} for key, each in written.parties[name].privacy.items()}
        assert made.parties[name].fit == written.parties[name].fit


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protect": "lables"}, "both, proof, nothing, got 'lables'; did you mean 'labels'?"),
        ({"protect": "grades"}, "protect as one of auto, labels, columns, both, proof, nothing, got 'grades'"),
        ({"protect": "both", "release": "once"}, "expected protect or release"),
        ({"protect": "nothing", "protections": []}, "expected protect or protections"),
        ({"test": "a fifth"}, "VerticalClassifier.test: "),
        ({"test": float("nan")}, "VerticalClassifier.test: "),
    ],
)
def test_what_cannot_be_a_choice_is_refused(settings: dict[str, Any], message: str) -> None:
    model = VerticalClassifier("bank", **settings)
    with pytest.raises(CutlayerError, match=message):
        model.fit({"bank": np.zeros((9, 1)), "shop": np.arange(9.0)[:, None]}, np.arange(9) % 2)


@pytest.fixture(scope="module")
def graded() -> tuple[Any, dict[str, Any], np.ndarray]:
    """A default fit of rows enough for grades, its tables and labels."""
    draw = np.random.default_rng(0)
    X = {"bank": draw.normal(size=(2600, 1)), "shop": draw.normal(size=(2600, 3))}
    y = (X["bank"][:, 0] + X["shop"] @ [1, 1, 0] + draw.normal(size=2600) > 0).astype(int)
    settings: dict[str, Any] = {"top": {"kind": "linear"}, "attacks": (), "key": bytes([1] * 32)}
    return VerticalClassifier("bank", **settings).fit(X, y), X, y


def test_where_rows_suffice_a_default_fit_protects_both_sides(graded: Any) -> None:
    model, X, y = graded
    assert model.protect_ == "both"
    assert model.protect_reason_.startswith("labels, which are drawn, and columns")
    assert {total.protects: total.epsilon for total in model.report_.ledger.totals} == {"labels": 2.0, "features": 8.0}
    assert model.score(X, y) > 0.75
    weighted = clone(model).set_params(class_weight="balanced")
    _, filled = job_of(weighted, read_tables(X, NAMES), NAMES, "binary", [WEIGHT], np.bincount(y).tolist())
    assert filled.protect == "labels"
    assert "weights are for labels that are not drawn" in filled.reason


def test_a_default_fit_repeats_with_a_key(graded: Any) -> None:
    model, X, y = graded
    np.testing.assert_array_equal(clone(model).fit(X, y).predict_proba(X), model.predict_proba(X))


def test_rows_of_another_table_are_drawn_anew_and_counted(graded: Any) -> None:
    """Rows of an estimator have no ids: one that comes again in another table is drawn again."""
    model, X, _ = graded
    log = log_of_run(model.folder_.path / "checkpoint" / "shop")

    def most() -> int:
        found = ReleaseLog(log)
        for entry, _ in found._lines():
            found._read_entry(entry)
        return found.draws.most

    before = most()
    few = {name: table[:2000] for name, table in X.items()}
    first = model.predict_proba(few)
    assert most() == before + 1
    np.testing.assert_array_equal(model.predict_proba(few), first)
    assert most() == before + 1
    moved = model.predict_proba({name: table[1:2000] for name, table in X.items()})
    assert most() == before + 2
    # A draw changes one grade in a hundred, and the models of the folds, which follow from ids, one in some six.
    assert 0 < (moved != first[1:]).any(axis=1).mean() < 0.5


def test_the_undefended_setting_is_one_argument_away() -> None:
    job = described(release="every_step")
    assert job.train.release == "every_step"
    assert not any(party.privacy or party.fit for party in job.parties.values())
    assert job == described(release="every_step", protections=[])


def test_what_is_stated_stays() -> None:
    job = described(protections=[LabelDPConfig(eps=1.0)], top={"kind": "linear"}, features={"shop": {"exclude": ["x"]}})
    assert job.parties["bank"].privacy == {"label_dp": {"eps": 1.0}}
    assert job.model.top == {"kind": "linear"}
    assert job.parties["shop"].features.numbers.scale == "standard"
    assert described(bottom_fit={"shop": {"kind": "sketch"}}).parties["shop"].fit == {"kind": "sketch"}
    assert not described(protections=()).parties["bank"].privacy
    mixed = described(release={"shop": "every_step"})
    assert not any(party.privacy for party in mixed.parties.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"bottom": {"kind": "mlp"}},
        {"epochs": 3},
        {"batch_size": 64},
        {"lr": 0.1},
        {"optimizer": {"kind": "adamw"}},
        {"patience": 2},
    ],
)
def test_settings_of_steps_need_a_word_on_release(settings: dict[str, Any]) -> None:
    with pytest.raises(
        CutlayerError, match=f"expected release with {next(iter(settings))}: 'every_step' trains by steps"
    ):
        described(**settings)
    assert described(**settings, release="every_step")


@pytest.mark.parametrize("kind", [VerticalClassifier, VerticalRegressor])
def test_a_default_fit_shows_no_partner_a_label(kind: type[VerticalClassifier]) -> None:
    X, y = tables()
    is_classifier = kind is VerticalClassifier
    labels = y if is_classifier else y + 0.5
    model = kind("bank", top={"kind": "linear"}, attacks=(), test=0.3).fit(X, labels)
    assert [total.epsilon for total in model.report_.ledger.totals if total.protects == "labels"] == [0.0]
    assert model.score(X, labels) > (0.8 if is_classifier else 0.3)
    assert model.predict(X).shape == y.shape


def test_steps_are_refused_protections_of_gradients_by_default() -> None:
    """A protection that could not act is named, not ignored."""
    from cutlayer import MaxNormConfig

    X, y = tables()
    with pytest.raises(CutlayerError, match="max_norm: nothing to protect, parties that release once get no gradient"):
        VerticalClassifier("bank", protections=[MaxNormConfig()]).fit(X, y)
    assert classifier().release == "every_step"
