"""A row that was forgotten has no score and no release by any way, also in a service that was loaded before."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import cutlayer_batches as batches
from cutlayer.accounting import log_of_run
from cutlayer.config import IdConfig, TableConfig
from cutlayer.config.load import load_closed_job
from cutlayer.data.forgotten import FORGOTTEN_REASON, ROW_FORGOTTEN_REASON, ForgottenRows
from cutlayer.data.ids import digests_by_rule
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import DataError, RunFolderError
from cutlayer.jobs.forget import JobDeletion
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.forgetting import ForgottenRuns
from cutlayer.training.held_out_predictions import reported_ids
from cutlayer.training.keys import Keys, forgotten_rows, note_secret
from cutlayer_serve.features import FeatureStore
from cutlayer_serve.process import active_service
from cutlayer_serve.releases import OnlineReleases
from cutlayer_serve.status import Status
from cutlayer_serve.trained_party import TrainedParty
from tests.serving.world import ACTIVE, PASSIVES, own_table, private, world

TELCO = "telco"
GONE = (7, 20)


@pytest.fixture
def kept(run: Path, plain: Path) -> Path:
    """A run beside its secrets, which other tests do not use."""
    shutil.copytree(plain.parent / "keys", run.parent / "keys")
    for name in (ACTIVE, *PASSIVES):
        (run.parent / f"{name}.yaml").write_text(f"secret: {run.parent / 'keys' / name}.key\n")
    return run


def forget(run: Path, party: str, *ids: object) -> None:
    forgotten = forgotten_rows(run, party)
    assert forgotten is not None
    forgotten.add(digests_by_rule(pa.array(ids)).items())


def table(run: Path, party: str) -> pa.Table:
    return parquet.read_table(own_table(run, party))


def predicted(run: Path, out: Path, **given: Any) -> tuple[set[int], Any]:
    done = predict(
        load_closed_job(run / "job.yaml"), RunFolder.open(run), out, PredictionRequest(**given, overwrite=True)
    )
    return {*csv.read_csv(out)["id"].to_pylist()}, done


@pytest.mark.parametrize("moved", [False, True], ids=["in place", "restored elsewhere"])
def test_predict_leaves_forgotten_rows_out(kept: Path, tmp_path: Path, moved: bool) -> None:
    tables = {name: table(kept, name) for name in (ACTIVE, *PASSIVES)}
    everybody, _ = predicted(kept, tmp_path / "scores.csv", tables=tables)
    tested = reported_ids(RunFolder(kept)).to_pylist()
    if moved:  # the secrets are found from the root then
        place = kept.parent / "keys"
        names = f"gone/bank.key\n{place}/bank.key\n", f"gone/telco.key\n{place}/telco.key\n"
        kept = Path(shutil.copytree(kept, tmp_path / "far" / "away" / "run"))
        for name, text in zip((ACTIVE, TELCO), names, strict=True):
            (kept / "checkpoint" / name / "secret.path").write_text(text)
    forget(kept, ACTIVE, tested[0])
    forget(kept, TELCO, *GONE)
    left, done = predicted(kept, tmp_path / "scores.csv", tables=tables)
    assert everybody - left == {tested[0], *GONE}
    assert done.forgotten == {ACTIVE: 1, TELCO: 2}
    some, done = predicted(kept, tmp_path / "scores.csv", tables=tables, partial=True)
    assert (some.intersection(GONE), done.contributed[TELCO]) == ({*GONE}, len(some) - 2), "they are rows of the bank"
    again, done = predicted(kept, tmp_path / "scores.csv")  # the test rows, which the run folder has
    assert (again, done.forgotten) == ({*tested} - {tested[0], *GONE}, {ACTIVE: len({tested[0], *GONE} & {*tested})})


def test_batches_leave_forgotten_rows_out_and_a_release_of_one_is_refused(kept: Path, tmp_path: Path) -> None:
    def release(out: Path, write: Callable[[Any], pa.Table]) -> Any:
        with batches.release(kept, TELCO, out, local=kept.parent / "telco.yaml", rows="all", plaintext=True) as opened:
            parquet.write_table(write(opened.function), out / "part.parquet")
        return opened.committed

    whole = table(kept, TELCO)
    early = batches.releaser(kept, TELCO)(whole)
    forget(kept, TELCO, *GONE)
    with pytest.warns(UserWarning, match=f"2 rows {FORGOTTEN_REASON} are left out"):
        done = release(tmp_path / "good", lambda function: function(whole))
    assert (done.rows, whole.num_rows) == (158, 160)
    for written in (early, early.set_column(0, early.schema.field(0), pa.array([f" {each}" for each in range(160)]))):
        with pytest.raises(DataError, match=f"no rows {FORGOTTEN_REASON}, got 2"):
            release(tmp_path / f"bad {written['id'][0]}", lambda _, given=written: given)
    own = batches.identifier(kept, ACTIVE)(table(kept, ACTIVE))
    for name in PASSIVES:
        released = early if name == TELCO else batches.releaser(kept, name)(table(kept, name))
        own = own.join(released, "release_id", "id", join_type="left outer")
    forget(kept, ACTIVE, 30)
    with pytest.warns(UserWarning, match=f"1 rows {FORGOTTEN_REASON}"):
        scores = batches.predictor(kept, ACTIVE)(own)
    assert {*range(160)} - {*scores["id"].to_pylist()} == {30}


def test_a_service_that_was_loaded_before_has_no_answer(kept: Path) -> None:
    async def check() -> None:
        forgotten = {name: forgotten_rows(kept, name) for name in (ACTIVE, TELCO)}
        async with world(kept) as served:
            served.active.versions._forgotten = forgotten[ACTIVE]
            model = served.active.versions.read(kept)
            served.active.versions.current.model = model
            assert (await served.predict([7]))["predictions"][0]["probability"] is not None
            forget(kept, ACTIVE, 7)
            asked: list[dict[str, Any]] = [{"ids": [each]} for each in (7, "7", " 7", "7\u00a0")]
            asked += [{"ids": ["7"], "columns": {"income": [0.1], "colour": ["red"]}}, {"ids": [3, 7]}]
            for request in asked:
                answer = await served.predict(**request)
                row = answer["predictions"][-1]
                assert (row["probability"], row["reason"]) == (None, ROW_FORGOTTEN_REASON), request
                assert answer["subsets"][row["subset"]]["contributed"] == []
            assert answer["predictions"][0]["probability"] is not None
            assert (await served.predict([7], answer="columns"))["predictions"]["probability"] == [None]
            (kept.parent / "keys" / "bank.key.forgotten").write_bytes(bytes(48))
            assert "or which rows were forgotten cannot be read" in (await served.predict([3], status=503))["error"]

    asyncio.run(check())


def test_a_partner_that_was_loaded_before_releases_nothing(kept: Path) -> None:
    trained, forgotten = TrainedParty.open(kept, TELCO), forgotten_rows(kept, TELCO)
    assert trained.model.encoder is not None
    job, digests = trained.job, dict(digests_by_rule(pa.array([7, 8])))["strip"]
    features = FeatureStore.read(job, TELCO, TableConfig(path=own_table(kept, TELCO)), trained.model.encoder, forgotten)
    with OnlineReleases(trained, features) as releases:
        assert releases.release(digests).status.tolist() == [Status.PRESENT, Status.PRESENT]
        forget(kept, TELCO, 7)
        answer = releases.release(digests)
    # Towards another organisation it is a row that there never was.
    assert (answer.status.tolist(), bool(answer.embedding[0].any())) == ([Status.UNKNOWN, Status.PRESENT], False)


@pytest.mark.parametrize("how", ["deleted", "a copy of a forgotten run"])
def test_a_service_of_a_run_that_was_forgotten_refuses(kept: Path, how: str) -> None:
    """Whatever is asked for: its model has learned from the rows."""
    job, secret = load_closed_job(kept / "job.yaml"), kept.parent / "keys" / f"{TELCO}.key"

    async def check() -> None:
        async with world(kept) as served:
            assert (await served.predict([3]))["predictions"][0]["probability"] is not None
            end()
            assert "the run was forgotten" in (await served.predict([3], status=503))["error"]

    def end() -> None:
        if how == "deleted":
            shutil.rmtree(kept / "checkpoint")
        else:
            for name in (ACTIVE, TELCO):
                ForgottenRuns(secret.with_name(f"{name}.key")).add(job.digest())

    trained = TrainedParty.open(kept, TELCO)
    assert trained.model.encoder is not None
    digests = dict(digests_by_rule(pa.array([7, 8])))["strip"]
    features = FeatureStore.read(job, TELCO, TableConfig(path=own_table(kept, TELCO)), trained.model.encoder)
    copied = Path(shutil.copytree(kept, kept.parent / "copy"))
    asyncio.run(check())
    with OnlineReleases(trained, features) as releases, pytest.raises(RunFolderError, match="forgotten"):
        releases.release(digests)
    for place in (kept, copied):
        if how == "deleted" and place == copied:  # nobody has said that it was
            assert TrainedParty.open(place, TELCO).party == TELCO
            continue
        with pytest.raises(RunFolderError, match="forgotten"):
            TrainedParty.open(place, TELCO)


def test_a_run_after_the_forgetting_is_served(kept: Path) -> None:
    job = load_closed_job(kept / "job.yaml")
    forgotten = ForgottenRuns(kept.parent / "keys" / f"{TELCO}.key")
    forgotten.add(job.digest())
    place = kept / "checkpoint" / TELCO / "secret.path"
    place.rename(place.with_name("before"))
    note_secret(kept, TELCO, kept.parent / "keys" / f"{TELCO}.key", job.digest())
    assert TrainedParty.open(kept, TELCO).party == TELCO
    forgotten.path.write_text("{}")
    with pytest.raises(RunFolderError, match="expected the forgotten runs in"):
        TrainedParty.open(kept, TELCO)


def test_the_process_reads_the_list_of_its_own_secret(kept: Path) -> None:
    forget(kept, ACTIVE, 7)

    async def gone() -> list[bool]:
        async with active_service((kept,), ACTIVE, private(table=str(own_table(kept, ACTIVE)))) as active:
            return list(active.versions.current.model.gone(dict(digests_by_rule(pa.array([7, 8])))["strip"]))

    assert asyncio.run(gone()) == [True, False]


@pytest.mark.parametrize(
    ("forgotten", "ids", "normalise", "left"),
    [
        (["01"], ["01", "1", "2"], "strip", ["1", "2"]),  # two ids, by the rule of the job
        (["01"], ["1", "2"], "integer", ["2"]),  # another job, by whose rule they are one
        (["\u00c5sa", " Bo "], ["A\u030asa", "Bo", "C"], "strip", ["C"]),
        (["BO"], ["bo", "c"], "lower", ["c"]),
        ([7], [7.0, 8.0], "strip", [8.0]),
        (["0049 89 123456", "x"], ["+49 (89) 123-456", "+49 89 1234567"], "e164", ["+49 89 1234567"]),
    ],
)
def test_another_spelling_of_an_id_is_forgotten_too(
    tmp_path: Path, forgotten: list[Any], ids: list[Any], normalise: Any, left: list[Any]
) -> None:
    (tmp_path / "bank.key").write_bytes(bytes(32))
    known = ForgottenRows(tmp_path / "bank.key")
    listed = PartyTable("bank", pa.table({"id": forgotten, "x": [0] * len(forgotten)}), "id")
    known.add(listed.digests_by_rule(np.arange(listed.rows)))
    rule = IdConfig(column="id", normalise=normalise)
    opened = PartyTable("bank", pa.table({"id": ids, "x": [0] * len(ids)}), rule, forgotten=known)
    assert opened.ids(np.arange(opened.rows)).to_pylist() == left
    numbered = PartyTable("bank", pa.table({"id": ids, "x": [0] * len(ids)}), "@row", forgotten=known)
    assert numbered.rows == len(ids), "a number of a row is no id: other rows would belong together"
    (tmp_path / "bank.key").write_bytes(bytes([1] * 32))
    with pytest.raises(RunFolderError, match="restore the file"):
        PartyTable(
            "bank", pa.table({"id": ids, "x": [0] * len(ids)}), rule, forgotten=ForgottenRows(tmp_path / "bank.key")
        )


def test_a_row_of_several_keys_is_forgotten_by_each(tmp_path: Path) -> None:
    (tmp_path / "bank.key").write_bytes(bytes(32))
    keys, known = IdConfig(column=(("mail",), ("phone",))), ForgottenRows(tmp_path / "bank.key")
    columns: dict[str, list[Any]] = {"mail": ["a@x", None, "c@x"], "phone": ["1", "2", "3"], "x": [1, 2, 3]}
    listed = PartyTable("bank", pa.table(columns), keys)
    known.add(listed.digests_by_rule(np.array([0])))
    later = PartyTable("bank", pa.table({**columns, "mail": [None, "b@x", "c@x"]}), keys, forgotten=known)
    assert later.rows == 2


def test_what_was_served_and_counted_is_deleted(noisy: Path) -> None:
    served = log_of_run(noisy / "checkpoint" / TELCO).with_suffix(".served")
    served.write_bytes(b"rows")
    deleting = JobDeletion(load_closed_job(noisy / "job.yaml"), (TELCO,), noisy, None, Keys(noisy.parent / "keys"))
    mark = deleting.forget("all of telco", {})
    assert (served.exists(), noisy.exists(), mark.deleted) == (False, False, ("run", "served rows"))


@pytest.mark.parametrize("size", [31, 33, 2**20])
def test_a_run_folder_of_somebody_else_names_no_file_that_is_no_secret(tmp_path: Path, size: int) -> None:
    """Neither it nor the list beside it is opened: a pipe there would have its reader wait for ever."""
    place = tmp_path / "run" / "checkpoint" / TELCO
    place.mkdir(parents=True)
    (tmp_path / "private").write_bytes(bytes(size))
    (place / "secret.path").write_text(f"../private\n{tmp_path / 'private'}\n")
    assert forgotten_rows(tmp_path / "run", TELCO) is None
    (tmp_path / "private").write_bytes(bytes(32))
    found = forgotten_rows(tmp_path / "run", TELCO)
    assert found is not None
    os.mkfifo(found.path)
    with pytest.raises(RunFolderError, match=r"the forgotten rows in .*, got no file; remove it"):
        found.contains(np.zeros((1, 16), np.uint8), "")
