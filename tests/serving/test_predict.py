"""Predictions to a file: those of the models in one process, whatever the size, order and gaps of the tables."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from cutlayer.accounting import GaussianRelease, NoFormalGuarantee, ReleasePlan, log_of_run
from cutlayer.config import TableConfig
from cutlayer.errors import (
    AlignmentError,
    BudgetExceeded,
    ConfigError,
    CutlayerError,
    DataError,
    ProtocolError,
    RunFolderError,
)
from cutlayer.estimator.prediction import embed, encode
from cutlayer.results.scores import scores_of
from cutlayer.serving import PredictionReleases, new_rows, prediction_releases
from cutlayer.serving.models import TrainedModels
from cutlayer.serving.predict import PredictionRequest, PredictionResult, predict
from cutlayer.training.folder import RunFolder
from tests.serving.runs import KEY, NOISY, fixed, tables, trained, written

Trained = tuple[Any, RunFolder]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run without protections; not to be changed."""
    return trained(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def noisy_once(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run whose telco releases noisy embeddings, two predictions of them."""
    changes = {"parties.telco.privacy": NOISY, "parties.telco.serving": 2}
    return trained(tmp_path_factory.mktemp("noisy"), changes)


@pytest.fixture
def noisy(noisy_once: Trained, tmp_path: Path) -> Trained:
    """A copy with a count of its own: with a supplied key the release log is in the run folder."""
    job, folder = noisy_once
    return job, RunFolder(Path(shutil.copytree(folder.path, tmp_path / "noisy")))


def asked(run: Trained, out: Path, given: Mapping[str, pa.Table] | None = None, **more: Any) -> PredictionResult:
    return predict(*run, out, PredictionRequest(given or {}, key=KEY, **more))


def expected(run: Trained, given: Mapping[str, pa.Table], absent: Collection[str] = (), **parties: Any) -> np.ndarray:
    """Scores in one process, of tables that are sorted by id here."""
    models = TrainedModels.load(*run)
    ordered = {name: table.sort_by("id") for name, table in given.items()}
    made = embed(models, encode(models, ordered, absent), parties)
    return scores_of(models.task, models.answer(made, models.absent_parties(absent)))[:, 0]


def read(path: Path) -> pa.Table:
    return parquet.read_table(path)


def values(path: Path, column: str = "probability") -> np.ndarray:
    return read(path).column(column).to_numpy()


def test_a_run_leaves_its_test_predictions_and_predict_repeats_them(plain: Trained, tmp_path: Path) -> None:
    _, folder = plain
    left = read(folder.path / "predictions.parquet")
    assert left.column_names == ["id", "probability", "contributed"]
    assert set(left.column("contributed").to_pylist()[0]) == {"bank", "telco", "shop"}
    done = asked(plain, tmp_path / "scores.parquet")
    again = read(tmp_path / "scores.parquet")
    assert done.rows == len(left) == folder.summary.data.test
    assert again.column("id").equals(left.column("id"))
    np.testing.assert_allclose(values(tmp_path / "scores.parquet"), left.column("probability").to_numpy(), atol=1e-6)


def test_new_rows_in_any_order_are_predicted_as_in_one_process(plain: Trained, tmp_path: Path) -> None:
    given = tables(500, seed=8, first=10_000)
    done = asked(plain, tmp_path / "s.parquet", given)
    assert (done.rows, done.contributed) == (500, {"bank": 500, "telco": 500, "shop": 500})
    scores = read(tmp_path / "s.parquet").sort_by("id")
    np.testing.assert_allclose(scores.column("probability").to_numpy(), expected(plain, given), atol=1e-6)
    assert read(tmp_path / "s.parquet").column("id").equals(given["bank"].column("id"))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_predicted_as_tables_in_memory(plain: Trained, tmp_path: Path, ending: str) -> None:
    given = tables(300, seed=8)
    files = {name: TableConfig(path=path) for name, path in written(tmp_path / "new", given, ending).items()}
    asked(plain, tmp_path / "s.parquet", files)
    np.testing.assert_allclose(values(tmp_path / "s.parquet"), expected(plain, given), atol=1e-6)


def test_small_windows_change_nothing(plain: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tables(700, seed=8)
    given["telco"] = given["telco"].slice(0, 450)
    asked(plain, tmp_path / "whole.parquet", given, partial=True)
    monkeypatch.setattr(new_rows, "NEW_TABLE_MEMORY", 0)
    asked(plain, tmp_path / "s.parquet", given, partial=True)
    whole, pieces = read(tmp_path / "whole.parquet"), read(tmp_path / "s.parquet")
    assert whole.select(["id", "contributed"]).equals(pieces.select(["id", "contributed"]))
    np.testing.assert_allclose(values(tmp_path / "s.parquet"), values(tmp_path / "whole.parquet"), atol=1e-6)


def test_releases_pass_the_protections_with_the_noise_of_a_prediction_in_one_process(
    noisy: Trained, tmp_path: Path
) -> None:
    """With the same key and number: one prediction, in the same batches, whatever the order of the tables."""
    given = tables(6000, seed=8)
    copied = noisy[0], RunFolder(Path(shutil.copytree(noisy[1].path, tmp_path / "copied")))
    parties = prediction_releases(*copied, {"telco": 4}, KEY)
    wanted = expected(copied, given, **parties)
    done = asked(noisy, tmp_path / "s.parquet", given)
    assert done.predictions == {"telco": (1, 2)}
    np.testing.assert_allclose(values(tmp_path / "s.parquet"), wanted, atol=1e-6)
    assert np.abs(wanted - expected(noisy, given)).max() > 0.01


def test_predictions_are_counted_until_none_is_left(noisy: Trained, tmp_path: Path) -> None:
    given = tables(100, seed=8)
    asked(noisy, tmp_path / "1.parquet", given)
    asked(noisy, tmp_path / "2.parquet")
    with pytest.raises(BudgetExceeded, match="telco: prediction 3 was asked for, but 2 were planned"):
        asked(noisy, tmp_path / "3.parquet", given)
    assert not (tmp_path / "3.parquet").exists()
    del given["telco"]
    assert asked(noisy, tmp_path / "4.parquet", given, absent=["telco"]).rows == 100
    assert PredictionReleases(*noisy, "telco", 4, KEY).predictions_made == 2


def test_predictions_of_a_run_on_all_rows_by_steps_are_counted(tmp_path: Path) -> None:
    """Whose checkpoints also name the batches, which the log of releases does not."""
    noisy = {"parties.telco.privacy": NOISY, "parties.telco.serving": 1}
    run = trained(tmp_path, {"rows": "all", **noisy, "train.epochs": 1})
    given = tables(60, seed=8)
    given["telco"] = given["telco"].slice(0, 40)
    assert asked(run, tmp_path / "s.parquet", given).predictions == {"telco": (1, 1)}
    with pytest.raises(BudgetExceeded, match="1 was planned"):
        asked(run, tmp_path / "t.parquet", given)


def test_another_key_is_refused_before_anything_is_released(noisy: Trained, tmp_path: Path) -> None:
    for key, error in ((bytes(32), "the keys the run was begun with"), (None, "name the --key of the run")):
        with pytest.raises(CutlayerError, match=error):
            predict(*noisy, tmp_path / "s.parquet", PredictionRequest(key=key))
    assert PredictionReleases(*noisy, "telco", 4, KEY).predictions_made == 0


def test_a_row_is_released_once_in_a_prediction(noisy: Trained) -> None:
    """Else a caller could average the noise of one count."""
    serving, zeros = PredictionReleases(*noisy, "telco", 4, KEY), torch.zeros(30, 4)
    with serving.prediction() as prediction:
        prediction.release(fixed(zeros), torch.arange(10))
        for rows in ([3], [9, 10], [12, 11], [15, 15]):
            with pytest.raises(ProtocolError, match="each once in a prediction"):
                prediction.release(fixed(zeros), torch.tensor(rows))
        prediction.release(fixed(zeros), torch.arange(10, 20))
    assert serving.predictions_made == 1
    log = log_of_run(noisy[1].path / "checkpoint" / "telco")
    assert '"end":true' in log.read_text().splitlines()[-1], "a later run takes it for one that has ended"

    def interrupted() -> None:
        with serving.prediction() as prediction:
            prediction.release(fixed(zeros), torch.arange(10))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert serving.predictions_made == 2
    assert '"end":true' in log.read_text().splitlines()[-1]


def test_predictions_count_where_any_of_several_protections_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, opened = ReleasePlan(training=1, serving=1), []
    events = [NoFormalGuarantee("a penalty"), GaussianRelease(2.0, plan), NoFormalGuarantee("another")]
    protections = [SimpleNamespace(event=lambda _, event=event: event) for event in events]
    monkeypatch.setattr("cutlayer.serving.prediction_release.plan_of", lambda *_: plan)
    monkeypatch.setattr(
        "cutlayer.serving.prediction_release.set_up_releases", lambda *_, counted: opened.append(counted)
    )
    for chosen, counted in ((protections, True), (protections[::-1], True), (protections[::2], False), ([], False)):
        chain = SimpleNamespace(protections=chosen)
        monkeypatch.setattr("cutlayer.serving.prediction_release.chain_of", lambda *_, chain=chain: chain)
        nothing: Any = None
        assert PredictionReleases(nothing, nothing, "telco", 4, KEY).counted == opened.pop() == counted


def test_absent_parties_are_named_and_need_no_table(plain: Trained, tmp_path: Path) -> None:
    given = tables(200, seed=8)
    done = asked(plain, tmp_path / "s.parquet", {"bank": given["bank"], "shop": given["shop"]}, absent=["telco"])
    assert (done.absent, done.contributed) == (("telco",), {"bank": 200, "telco": 0, "shop": 200})
    np.testing.assert_allclose(values(tmp_path / "s.parquet"), expected(plain, given, ["telco"]), atol=1e-6)
    assert read(tmp_path / "s.parquet").column("contributed").to_pylist()[0] == ["bank", "shop"]
    asked(plain, tmp_path / "t.parquet", absent=["telco", "shop"])
    assert read(tmp_path / "t.parquet").column("contributed").to_pylist()[0] == ["bank"]


def test_rows_that_a_party_does_not_have_are_left_out_or_predicted_without_it(plain: Trained, tmp_path: Path) -> None:
    given = tables(200, seed=8)
    lacking = {**given, "telco": given["telco"].slice(0, 150), "shop": given["shop"].slice(20)}
    done = asked(plain, tmp_path / "common.parquet", lacking)
    assert done.lacking == {"telco": 50, "shop": 20}
    common = set(lacking["telco"]["id"].to_pylist()) & set(lacking["shop"]["id"].to_pylist())
    assert set(read(tmp_path / "common.parquet").column("id").to_pylist()) == common
    done = asked(plain, tmp_path / "all.parquet", lacking, partial=True)
    assert (done.rows, done.contributed) == (200, {"bank": 200, "telco": 150, "shop": 180})
    rows = read(tmp_path / "all.parquet").to_pylist()
    for absent in ([], ["telco"], ["shop"], ["telco", "shop"]):
        wanted = expected(plain, given, absent)
        chosen = [row for row in rows if {"telco", "shop"} - {*row["contributed"]} == {*absent}]
        assert chosen
        np.testing.assert_allclose(
            [row["probability"] for row in chosen], [wanted[row["id"]] for row in chosen], atol=1e-6
        )


def test_unknown_categories_and_missing_values_are_encoded_as_in_training(plain: Trained, tmp_path: Path) -> None:
    given = tables(50, seed=8)
    plans = ["zzz", None, *given["telco"]["plan"].to_pylist()[2:]]
    usage = [None, *given["telco"]["usage"].to_pylist()[1:]]
    given["telco"] = pa.table({"plan": plans, "unused": usage, "usage": usage, "id": given["telco"]["id"]})
    asked(plain, tmp_path / "s.parquet", given)
    np.testing.assert_allclose(values(tmp_path / "s.parquet"), expected(plain, given), atol=1e-6)


def test_a_column_without_values_stands_in_for_one_that_is_lacking(plain: Trained, tmp_path: Path) -> None:
    """As the refusal of a table without the column advises."""
    given = tables(50, seed=8)
    for name in ("usage", "plan"):
        at = given["telco"].column_names.index(name)
        given["telco"] = given["telco"].set_column(at, name, pa.nulls(50))
    with pytest.warns(UserWarning, match="no value in 50 rows, and values in training"):
        asked(plain, tmp_path / "s.parquet", given)
    with pytest.warns(UserWarning, match="no value"):
        wanted = expected(plain, given)
    np.testing.assert_allclose(values(tmp_path / "s.parquet"), wanted, atol=1e-6)


BAD: Mapping[str, tuple[Any, str]] = {
    "a column is missing": (lambda t: t.rename_columns(["id", "usages", "plan"]), "no column 'usage'"),
    "the id column is missing": (lambda t: t.rename_columns(["ID", "usage", "plan"]), "no column 'id'"),
    "text for numbers": (
        lambda t: t.set_column(1, "usage", pa.array(["1", "x"] * (len(t) // 2))),
        "expected numbers in column 'usage', got 'x' in row",
    ),
    "an id twice, far apart": (lambda t: pa.concat_tables([t, t.slice(3, 1)]), "every id once, got .* in 2 rows"),
    "an id twice, nearby": (lambda t: pa.concat_tables([t.slice(0, 9), t]), "every id once, got .* in 18 rows"),
    "an id is missing": (lambda t: t.set_column(0, "id", pa.array([None, *range(1, len(t))])), "an id in every row"),
    "infinity": (lambda t: t.set_column(1, "usage", pa.array([float("inf")] * len(t))), "finite numbers"),
    "ids of another kind": (
        lambda t: t.set_column(0, "id", pa.array([f"c{i}" for i in range(len(t))])),
        "ids of one kind",
    ),
    "other ids": (lambda t: t.set_column(0, "id", pa.array(range(9000, 9000 + len(t)))), "rows that all parties have"),
    "no rows": (lambda t: t.slice(0, 0), "a table with rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_with_a_reason_and_release_nothing(
    name: str, noisy: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, message = BAD[name]
    given = tables(100, seed=8)
    given["telco"] = change(given["telco"])
    monkeypatch.setattr(new_rows, "NEW_TABLE_MEMORY", 0)
    (tmp_path / "out").mkdir()
    with pytest.raises((DataError, AlignmentError), match=message):
        asked(noisy, tmp_path / "out" / "s.parquet", given)
    assert not [*(tmp_path / "out").iterdir()]
    assert PredictionReleases(*noisy, "telco", 4, KEY).predictions_made == 0


def test_bad_requests_are_refused(plain: Trained, tmp_path: Path) -> None:
    given = tables(50)
    cases = (
        ({"given": {"bank": given["bank"]}}, DataError, "got none of telco, shop; give each with --data, or name"),
        ({"given": {**given, "teleco": given["telco"]}}, ConfigError, "did you mean 'telco'"),
        ({"given": given, "absent": ["telco"]}, ConfigError, "no table of telco, which is absent"),
        ({"absent": ["bank"]}, ConfigError, "it holds the top model"),
    )
    for arguments, error, message in cases:
        with pytest.raises(error, match=message):
            asked(plain, tmp_path / "s.parquet", **arguments)
    with pytest.raises(RunFolderError, match="another file than those that are read or belong to the run"):
        asked(plain, plain[1].path / "predictions.parquet", overwrite=True)
    for out in ("s.txt", "nowhere/s.parquet", "nowhere/s.csv"):
        with pytest.raises(ConfigError, match="for the predictions"):
            asked(plain, tmp_path / out)


def test_a_run_needs_neither_its_transcript_nor_its_columns_to_predict(plain: Trained, tmp_path: Path) -> None:
    job, folder = plain
    moved = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "moved")))
    shutil.rmtree(moved.path / "transcript", ignore_errors=True)
    for party in job.parties:
        for file in ("codes.npy", "numbers.npy", "store.json"):
            (moved.data(party) / file).unlink()
    given = tables(100, seed=8)
    asked((job, moved), tmp_path / "s.parquet", given)
    np.testing.assert_allclose(values(tmp_path / "s.parquet"), expected(plain, given), atol=1e-6)
    with pytest.raises(CutlayerError, match="telco"):
        asked((job, moved), tmp_path / "t.parquet", {"bank": given["bank"]})


def test_parts_of_two_trainings_are_refused(plain: Trained, noisy: Trained, tmp_path: Path) -> None:
    job, folder = plain
    mixed = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "mixed")))
    shutil.rmtree(mixed.path / "checkpoint" / "telco")
    with pytest.raises(CutlayerError, match="telco's part of a finished run"):
        TrainedModels.load(job, mixed)
    shutil.copytree(noisy[1].path / "checkpoint" / "telco", mixed.path / "checkpoint" / "telco")
    with pytest.warns(UserWarning, match="telco.*CL124"), pytest.raises(CutlayerError, match="parts of one training"):
        TrainedModels.load(job, mixed)


def test_many_classes_have_a_column_each_and_a_regression_has_values(tmp_path: Path) -> None:
    given = tables()
    graded = given["bank"].set_column(2, "default", pa.array([f"g{row % 3}" for row in range(len(given["bank"]))]))
    run = trained(tmp_path / "many", {"task": "multiclass", "train.epochs": 1}, bank=graded)
    asked(run, tmp_path / "many.parquet", given)
    shares = np.column_stack([values(tmp_path / "many.parquet", f"probability_g{code}") for code in range(3)])
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
    models = TrainedModels.load(*run)
    ordered = {name: table.sort_by("id") for name, table in given.items()}
    wanted = scores_of(models.task, models.answer(embed(models, encode(models, ordered, ()), {}), ()))
    np.testing.assert_allclose(shares, wanted, atol=1e-6)
    measured = given["bank"].set_column(2, "default", pa.array(50 + 10 * given["bank"]["balance"].to_numpy()))
    run = trained(tmp_path / "value", {"task": "regression"}, bank=measured)
    asked(run, tmp_path / "value.parquet")
    np.testing.assert_allclose(
        values(tmp_path / "value.parquet", "value"), values(run[1].path / "predictions.parquet", "value"), rtol=1e-6
    )
    assert values(tmp_path / "value.parquet", "value").mean() == pytest.approx(50, abs=15)


def test_row_numbers_are_ids_where_the_job_has_none(tmp_path: Path) -> None:
    given = {name: table.sort_by("id").drop_columns(["id"]) for name, table in tables().items()}
    changes = {f"parties.{name}.id": "@row" for name in given}
    run = trained(tmp_path / "rows", changes, **given)
    new = {name: table.sort_by("id") for name, table in tables(90, seed=8).items()}
    asked(run, tmp_path / "s.parquet", {name: table.drop_columns(["id"]) for name, table in new.items()})
    assert read(tmp_path / "s.parquet").column("id").to_pylist() == [*range(90)]
    np.testing.assert_allclose(values(tmp_path / "s.parquet"), expected(run, new), atol=1e-6)
    with pytest.raises(AlignmentError, match="tables of one length"):
        asked(run, tmp_path / "t.parquet", {**new, "shop": new["shop"].slice(1)})
