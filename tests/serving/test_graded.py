"""A run whose partner released grades, in every way that a trained model is used: the same grade of the same row."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer import VerticalClassifier, VerticalRegressor
from cutlayer.accounting import RandomizedGrade, log_of_run
from cutlayer.accounting.run_store import LEDGER_FILE, RunStore
from cutlayer.channel import Kind
from cutlayer.cli.app import _run
from cutlayer.config import Job, TableConfig, validated
from cutlayer.config.reaches import named_path
from cutlayer.data.store import Store
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError, DataError
from cutlayer.jobs.approval import page_of
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.protections.grade_dp import GradeDPConfig
from cutlayer.protections.label_dp import LabelDPConfig
from cutlayer.serving import drift, party_drift
from cutlayer.serving.models import PartyModel, RowEmbedder, TrainedModels
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_sums import lines_of_party, summed_ledger
from cutlayer_export.model_card import model_card
from cutlayer_export.part import ARCHITECTURE, Architecture, export_part, load_part
from cutlayer_loggers.pyfunc import RegisteredModel
from cutlayer_loggers.registry import register
from tests.estimator.conftest import _fits_are_not_audited
from tests.parties.runs import ACTIVE, PASSIVES, run
from tests.parties.test_grades import FIT, kept, raw
from tests.serving.runs import counted_copy
from tests.serving.test_peer import impostor, looked_up
from tests.serving.world import own_table, probabilities, world, write_tables

__all__ = ["_fits_are_not_audited"]

TELCO = PASSIVES[0]
IDS = [3, 77, 12, 101]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with files, whose telco releases grades, and whose shop its columns."""
    folder = tmp_path_factory.mktemp("served")
    paths = write_tables(folder)
    made = raw(epsilon=1.0)
    made["parties"] = {
        ACTIVE: {**made["parties"][ACTIVE], "table": str(paths["bank"]), "label": "default", "id": "id"},
        TELCO: {**made["parties"][TELCO], "table": str(paths["telco"]), "id": "id"},
        "shop": {"role": "passive", "table": str(paths["shop"]), "id": "id", "fit": {"kind": "sketch"}},
    }
    made["model"]["bottom"]["shop"] = {"kind": "linear", "width": 4}
    execute(validated(Job, made, ""), folder / "run", Options(Keys(folder / "keys")), Progress())
    counted_copy(folder / "run", TELCO, folder.with_name("unused"))
    return folder / "run"


@pytest.fixture
def counted(served: Path, tmp_path: Path) -> Path:
    """A copy of the run before any prediction, with a count of its own."""
    return counted_copy(served.parent.with_name("unused") / "run", TELCO, tmp_path / "copy")


def job_of(served: Path) -> tuple[Job, RunFolder]:
    from cutlayer_serve.trained_party import TrainedParty

    return TrainedParty.open(served, ACTIVE).job, RunFolder(served)


def predicted(served: Path, ids: list[int], out: Path) -> dict[int, float]:
    job, folder = job_of(served)
    given = {name: pa.parquet.read_table(own_table(served, name)) for name in (ACTIVE, TELCO, "shop")}
    predict(job, folder, out, PredictionRequest(given))
    lines = (line.split(",") for line in out.read_text().splitlines()[1:])
    every = {int(row): float(score) for row, score, *_ in lines}
    return {row: every[row] for row in ids}


def test_an_exported_model_of_drawn_labels_says_that_it_predicts_alone(served: Path, tmp_path: Path) -> None:
    job, folder = job_of(served)
    cards = {}
    for name in (TELCO, "shop"):
        model = PartyModel.load(job, folder, name)
        exported = export_part(job, model, tmp_path / name)
        cards[name] = model_card(job, folder, model, Architecture.read(exported.folder / ARCHITECTURE), exported)
    assert "its grades rank rows by the label without anybody else" in cards[TELCO]
    assert "predicts nothing" not in cards[TELCO]
    assert "It predicts nothing without the top model" in cards["shop"]


def test_a_served_row_has_the_grade_of_the_training_in_one_byte(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = predicted(served, IDS, tmp_path / "scores.csv")
    crossed: list[Any] = []
    from cutlayer_serve import passive as module

    encode = module.encode
    monkeypatch.setattr(module, "encode", lambda sent, limits: crossed.append(sent) or encode(sent, limits))

    async def check() -> None:
        async with world(served, (TELCO, "shop")) as up:
            for _ in range(2):  # asked again, the same draw
                answer = await up.predict(IDS)
                assert not answer["degraded"]
                np.testing.assert_allclose(probabilities(answer), [wanted[row] for row in IDS], atol=1e-6)

    asyncio.run(check())
    answers = [sent.tensors["embedding"] for sent in crossed if (sent.kind, sent.sender) == (Kind.LOOKED_UP, TELCO)]
    assert len(answers) == 2
    assert all((each.dtype, each.shape) == (torch.uint8, (len(IDS), 1)) for each in answers)


def test_releases_that_drift_show_at_the_party_that_receives_them(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "MIN_ROWS", 100)
    job, folder = job_of(served)
    given = {name: pa.parquet.read_table(own_table(served, name)) for name in (ACTIVE, TELCO, "shop")}
    numbers = [name for name in given[TELCO].column_names if pa.types.is_floating(given[TELCO][name].type)]
    moved = given[TELCO]
    for name in numbers:
        moved = moved.set_column(moved.column_names.index(name), name, pa.array(np.full(moved.num_rows, 4.0)))

    def measured(table: pa.Table, out: str) -> dict[str, Any]:
        done = predict(job, folder, tmp_path / out, PredictionRequest({**given, TELCO: table}))
        return {row.of: row for row in done.drift if row.party == ACTIVE}

    same, other = measured(given[TELCO], "same.csv"), measured(moved, "other.csv")
    assert {f"grade of {TELCO}", "release 0 of shop", "score probability"} <= same.keys()
    assert numbers
    assert not {*numbers} & same.keys()
    assert same[f"grade of {TELCO}"].psi < 0.1
    assert same["release 0 of shop"].psi < 0.1
    assert other[f"grade of {TELCO}"].psi > 2 * same[f"grade of {TELCO}"].psi


def test_a_served_grade_that_the_job_does_not_have_ends_the_stream(served: Path) -> None:
    async def check() -> None:
        async with world(served, ("shop",)) as up:
            lie = lambda asked: looked_up(asked, torch.full((len(IDS), 1), 16, dtype=torch.uint8), [0] * len(IDS))  # noqa: E731
            async with impostor(up, lie, width=16):
                await up.wait((TELCO, "shop"))
                answer = await up.predict(IDS)
                assert answer["degraded"]
                await up.wait(("shop",))

    asyncio.run(check())


def test_an_exported_part_gives_the_same_grades(served: Path, tmp_path: Path) -> None:
    job, folder = job_of(served)
    models = TrainedModels.load(job, folder)
    parts = {}
    for name in (ACTIVE, TELCO):
        exported = export_part(job, PartyModel.load(job, folder, name), tmp_path / name)
        parts[name] = load_part(exported.folder)
    table = pa.parquet.read_table(own_table(served, TELCO)).slice(0, 40)
    encoder = models.encoders[TELCO]
    store, rows = Store(encoder.transform(table, TELCO), encoder.columns), torch.arange(40)
    digests = np.random.default_rng(0).integers(256, size=(40, 16), dtype=np.uint8)
    with torch.no_grad():
        mine, other = (RowEmbedder(each, store, digests)(rows) for each in (models.bottoms[TELCO], parts[TELCO].bottom))
    assert torch.equal(mine, other)
    assert len(grades_of_columns(mine).unique()) > 1
    made = {name: torch.randn(9, width) for name, width in models.widths.items()}
    assert torch.equal(parts[ACTIVE].top(made), models.top(made))


def test_rows_by_several_keys_are_graded(tmp_path: Path) -> None:
    from tests.jobs.test_keys import GIVEN, matched
    from tests.jobs.test_keys import IDS as KEYS

    made = raw()
    made["rows"] = "all"
    for party in made["parties"].values():
        party["id"] = KEYS
    given = {name: GIVEN[name] for name in (ACTIVE, TELCO)}
    trained = run(validated(Job, made, ""), given, tmp_path)
    assert len(kept(tmp_path, "released")["released"]) == trained.active.held_rows[TELCO] == len(matched(TELCO))


def test_a_partner_that_has_left_is_predicted_without(served: Path, tmp_path: Path) -> None:
    """Its rows are then as those that it lacks; without it the model is that of the others."""
    job, folder = job_of(served)
    given = {name: pa.parquet.read_table(own_table(served, name)) for name in (ACTIVE, "shop")}
    done = predict(job, folder, tmp_path / "scores.csv", PredictionRequest(given, absent=(TELCO,)))
    assert done.rows == 150
    assert done.contributed[TELCO] == 0
    with_all = predicted(served, IDS, tmp_path / "all.csv")
    lines = (line.split(",") for line in (tmp_path / "scores.csv").read_text().splitlines()[1:])
    without = {int(row): float(score) for row, score, *_ in lines}
    assert any(abs(without[row] - with_all[row]) > 1e-4 for row in IDS)


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_the_estimator_trains_on_grades(kind: str) -> None:
    draw = np.random.default_rng(0)
    given = {"bank": draw.normal(size=(900, 2)), "telco": draw.normal(size=(900, 3))}
    score = given["bank"][:, 0] + 2 * given["telco"][:, 1]
    numbers = kind == "regressor"
    y = score if numbers else (score > 0).astype(int)
    made = (VerticalRegressor if numbers else VerticalClassifier)(
        active="bank",
        bottom={"bank": {"kind": "auto"}, "telco": {"kind": "grade", "least_rows": 0}},
        top={"kind": "linear", "folds": 1},
        bottom_fit={"telco": {**FIT, "limits": {"other": 1.0}}},  # the labels are all but a column
        release="once",
        stratify=False,
        protections={
            "bank": [LabelDPConfig(eps=4.0, **({"range": (-10.0, 10.0)} if numbers else {}))],
            "telco": [GradeDPConfig(epsilon=8.0)],
        },
        attacks=(),
        key=bytes(range(32)),
    )
    made.fit(given, y)
    alone = np.corrcoef(given["bank"][:, 0], score)[0, 1] ** 2
    assert made.score(given, y) > (alone + 0.2 if numbers else 0.75)
    assert {each.name for each in made.report_.protections} == {"label_dp", "grade_dp"}


@pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
def test_an_estimator_that_predicts_the_rows_of_its_fit_draws_them_once(tmp_path: Path) -> None:
    """Two fits are two draws of each row, with their predictions of the same table; those of another table are more."""
    draw = np.random.default_rng(0)
    given = {"bank": draw.normal(size=(600, 2)), "telco": draw.normal(size=(600, 3))}
    y = (given["bank"][:, 0] + given["telco"][:, :2].sum(axis=1) > 0).astype(int)

    def fitted(seed: int) -> VerticalClassifier:
        return VerticalClassifier(
            active="bank",
            bottom={"bank": {"kind": "auto"}, "telco": {"kind": "grade", "least_rows": 0}},
            top={"kind": "linear", "folds": 1},
            bottom_fit={"telco": {**FIT, "limits": {"other": 1.0}}},
            release="once",
            protections={"bank": [LabelDPConfig(eps=4.0)], "telco": [GradeDPConfig(epsilon=8.0)]},
            attacks=(),
            secrets=tmp_path / "keys",
            seed=seed,
        ).fit(given, y)

    def total() -> float | None:
        store = RunStore(tmp_path / "keys" / LEDGER_FILE)
        lines = lines_of_party("telco", store.lines())
        return summed_ledger(store.sharing(lines[-1], lines)).totals[0].epsilon

    for seed, cost in ((0, 8.0), (1, 16.0)):
        model = fitted(seed)
        first = model.predict_proba(given)
        assert total() == cost
        assert (model.predict_proba(given) == first).all()
        assert total() == cost
    turned = {name: table[::-1] for name, table in given.items()}
    assert not np.allclose(model.predict_proba(turned)[::-1], first)
    assert total() == 24.0


@pytest.mark.skipif(find_spec("mlflow") is None, reason="no mlflow-skinny (extra mlflow)")
@pytest.mark.filterwarnings("ignore")  # of MLflow and what it uses
def test_a_registered_model_predicts_from_columns_and_releases(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, folder = job_of(served)
    sent: dict[str, list[torch.Tensor]] = {TELCO: [], "shop": []}
    monkeypatch.setattr(
        party_drift.PartyDrift, "add_release", lambda _, of, made: sent[of].append(made) if of in sent else 0
    )
    given = {name: pa.parquet.read_table(own_table(served, name)) for name in (ACTIVE, TELCO, "shop")}
    out = tmp_path / "scores.parquet"
    predict(job, folder, out, PredictionRequest(given))
    released = {name: torch.cat(parts) for name, parts in sent.items()}
    scores = pa.parquet.read_table(out).to_pandas().set_index("id")
    alone = tmp_path / "alone.parquet"
    predict(job, folder, alone, PredictionRequest({name: given[name] for name in (ACTIVE, "shop")}, [TELCO]))
    without = pa.parquet.read_table(alone).to_pandas().set_index("id").loc[scores.index]
    frame = given[ACTIVE].to_pandas().set_index("id").loc[scores.index]
    frame[f"grade of {TELCO}"] = grades_of_columns(released[TELCO]).numpy()
    for number in range(released["shop"].shape[1]):
        frame[f"release {number} of shop"] = released["shop"][:, number].numpy()
    part = export_part(job, PartyModel.load(job, folder, ACTIVE), tmp_path / "part").folder
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert [register(uri, "credit", part, "job", "run") for _ in range(2)] == ["1", "2"]
    from mlflow import MlflowClient, artifacts, pyfunc

    client = MlflowClient(uri)
    kept = artifacts.download_artifacts(client.get_model_version_download_uri("credit", "2"), tracking_uri=uri)
    packages = [line.partition("==")[0] for line in (Path(kept) / "requirements.txt").read_text().splitlines()]
    assert {"cutlayer", "cutlayer-export", "cutlayer-loggers[mlflow]"} <= {*packages}
    assert not [path for path in Path(kept).rglob("*") if path.suffix in (".pkl", ".pickle", ".bin", ".pt")]
    loaded = pyfunc.load_model(kept)
    assert np.allclose(loaded.predict(frame)["probability"], scores["probability"], atol=1e-6)
    some = frame.astype({f"grade of {TELCO}": float})
    some.iloc[::2, some.columns.get_loc(f"grade of {TELCO}")] = np.nan
    answered = loaded.predict(some)["probability"].to_numpy()
    assert np.allclose(answered[1::2], scores["probability"].to_numpy()[1::2], atol=1e-6)
    assert np.allclose(answered[::2], without["probability"].to_numpy()[::2], atol=1e-6)
    model = RegisteredModel(load_part(part))
    with pytest.raises(DataError, match=f"whole numbers from 0 to 15 in grade of {TELCO}"):
        model.predict(frame.assign(**{f"grade of {TELCO}": 16}))
    with pytest.raises(DataError, match="all 4 numbers of a release of shop, or none"):
        model.predict(frame.assign(**{"release 0 of shop": np.nan}))
    with pytest.raises(DataError, match="none of income"):
        model.predict(frame.drop(columns="income"))
    assert len(model.predict(frame.iloc[:0])) == 0
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:1 refused the model: "):
        register("http://127.0.0.1:1", "credit", part, "job", "run")


def changed(table: pa.Table, rows: int) -> pa.Table:
    """A table whose first rows have other numbers."""
    for name in [name for name in table.column_names if pa.types.is_floating(table[name].type)]:
        values = table[name].to_numpy().copy()
        values[:rows] = -values[:rows] + 2.0
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def draws_counted(served: Path) -> tuple[int, int]:
    """Draws of a row, and rows drawn again, as the ledger of all runs of the telco states them."""
    (line,) = (each for each in RunStore(served.parent / "keys" / LEDGER_FILE).lines() if each.party == TELCO)
    (event,) = (entry.event for entry in line.ledger.entries if isinstance(entry.event, RandomizedGrade))
    return event.draws, event.again


def test_changed_rows_are_counted_in_the_ledger_and_refused_beyond_the_budget(
    counted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, folder = job_of(counted)
    given = {name: pa.parquet.read_table(own_table(counted, name)) for name in (ACTIVE, TELCO, "shop")}
    other = {**given, TELCO: changed(given[TELCO], 60)}
    party = job.parties[TELCO]
    bound = party.model_copy(update={"privacy": {**party.privacy, "budget": {"epsilon": 1.5}}})
    limited = job.model_copy(update={"parties": {**job.parties, TELCO: bound}})
    predict(limited, folder, tmp_path / "same.csv", PredictionRequest(given))
    assert draws_counted(counted) == (1, 0)
    with pytest.raises(BudgetExceeded, match=r"drawn 2 times, 2 in all; it was not sent"):
        predict(limited, folder, tmp_path / "refused.csv", PredictionRequest(other))
    assert draws_counted(counted) == (1, 0)
    for at, tables in enumerate((other, given, other)):  # that alternate: two draws
        predict(job, folder, tmp_path / f"{at}.csv", PredictionRequest(tables))
    most, again = draws_counted(counted)
    assert most == 2
    assert 0 < again <= 60
    total = next(
        total
        for line in RunStore(counted.parent / "keys" / LEDGER_FILE).lines()
        for total in line.ledger.totals
        if total.party == TELCO and total.epsilon is not None
    )
    assert total.epsilon == pytest.approx(2.0)
    assert f"up to 2 draws of a row, which add up, {again} rows drawn more than once" in str(
        [
            entry.statement
            for line in RunStore(counted.parent / "keys" / LEDGER_FILE).lines()
            for entry in line.ledger.entries
        ]
    )
    assert _run(["ledger", str(counted.parent / "keys")]) == 0
    assert f"    {again} rows were drawn more than once" in capsys.readouterr().out


def test_a_lost_count_is_refused_by_a_prediction(counted: Path, tmp_path: Path) -> None:
    log = log_of_run(counted / "checkpoint" / TELCO)
    kept = log.read_bytes()
    log.unlink()
    with pytest.raises(CheckpointError, match="expected the release log"):
        predicted(counted, IDS, tmp_path / "scores.csv")
    log.write_bytes(kept.splitlines(keepends=True)[0])  # an older copy
    with pytest.raises(CheckpointError, match="lines or more"):
        predicted(counted, IDS, tmp_path / "older.csv")


def test_a_service_keeps_the_limits_that_the_private_file_has(
    counted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not those of the training: its owner may have set others since, of a column that is no feature, too."""
    from cutlayer_serve import process, verb

    seen = list[Job]()
    monkeypatch.setattr(process, "serve_passive", lambda trained, *_: seen.append(trained.job))
    monkeypatch.setattr(verb, "run_service", lambda _: None)
    table, limits = job_of(counted)[0].parties[TELCO].table, {"telco_0": 0.05}
    assert table is not None
    part = {
        "table": str(table.path),
        "id": "id",
        "fit": {**FIT, "limits": limits},
        "privacy": {"grade_dp": {"epsilon": 1.0}},
    }
    (tmp_path / "telco.yaml").write_text(json.dumps(part))
    verb._serve([counted], TELCO, tmp_path / "telco.yaml", None, plaintext=True, as_json=True)
    assert seen[0].parties[TELCO].fit == {**FIT, "limits": limits}
    assert seen[0].parties[TELCO].limited_columns.include == ("telco_0",)


def test_an_approval_of_predictions_is_of_the_limits_that_they_have(counted: Path) -> None:
    """Those of the private file: who raises one after the approval has approved another page."""
    job = job_of(counted)[0]
    table = job.parties[TELCO].table
    assert table is not None
    job = job.with_parties({TELCO: {"table": TableConfig(path=named_path(table.path))}})
    before = page_of(job, TELCO, counted)
    raised = job.with_parties({TELCO: {"fit": {**FIT, "limits": {"telco_0": 0.9}}}})
    after = page_of(raised, TELCO, counted)
    assert list(after.changed_since(before)) == ["columns (+telco_0)", "readable", "settings"]
    assert after.settings["fit"]["limits"] == {"telco_0": 0.9}
    lower = job.with_parties({TELCO: {"fit": {**FIT, "epsilon": 1.0}}})  # of which a trained model has none
    assert page_of(lower, TELCO, counted) == before
