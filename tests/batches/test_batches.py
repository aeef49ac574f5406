"""A release and a prediction by batches: the same bits however the rows are divided, and counted once."""

from __future__ import annotations

import importlib.util
import pickle
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv, parquet

import cutlayer_batches as batches
from cutlayer.accounting import RandomizedGrade
from cutlayer.accounting.run_store import LEDGER_FILE, RunStore
from cutlayer.channel.trail import read_lines, verify_trail
from cutlayer.config import BudgetConfig, Job, validated
from cutlayer.errors import (
    BudgetExceeded,
    ConfigError,
    CutlayerError,
    DataError,
    NotApproved,
    ProtocolError,
    RunFolderError,
)
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.protections.contract.chain import Chain
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import chain_of
from cutlayer_batches import parts as parts_of_a_run
from cutlayer_batches import released
from cutlayer_batches.released import MANIFEST
from tests.parties.processes import forkserver
from tests.parties.test_grades import raw
from tests.serving.world import own_table, write_tables

ACTIVE, TELCO, SHOP = "bank", "telco", "shop"
PATIENCE = 600
"""Seconds for two processes to start on a busy machine."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose telco releases grades, and whose shop, which lacks ten rows, its columns."""
    folder = tmp_path_factory.mktemp("batches")
    paths = write_tables(folder)
    made = raw(epsilon=1.0)
    made["rows"] = "all"
    made["parties"] = {
        ACTIVE: {**made["parties"][ACTIVE], "table": str(paths[ACTIVE]), "label": "default", "id": "id"},
        TELCO: {**made["parties"][TELCO], "table": str(paths[TELCO]), "id": "id"},
        SHOP: {"role": "passive", "table": str(paths[SHOP]), "id": "id", "fit": {"kind": "sketch"}},
    }
    made["model"]["bottom"][SHOP] = {"kind": "linear", "width": 4}
    execute(validated(Job, made, ""), folder / "run", Options(Keys(folder / "keys")), Progress())
    for name in paths:
        (folder / f"{name}.yaml").write_text(f"secret: {folder / 'keys' / name}.key\n")
    return folder / "run"


def local(run: Path, party: str) -> Path:
    return run.parent / f"{party}.yaml"


def table(run: Path, party: str) -> pa.Table:
    return parquet.read_table(own_table(run, party))


def parts(whole: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, whole.num_rows, size):
        yield pa.Table.from_batches([*whole.slice(start, size).combine_chunks().to_batches()]).to_batches()[0]


def in_parts(function: batches.BatchFunction, whole: pa.Table, size: int) -> pa.Table:
    return pa.Table.from_batches([*function.each(parts(whole, size))])


def _in_worker(asked: list[tuple[batches.BatchFunction, pa.Table]], answer: Any) -> None:
    answer.put([in_parts(function, given, 30) for function, given in asked])


@pytest.mark.parametrize("party", [TELCO, SHOP])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_release_has_the_same_bits_however_the_rows_are_divided(run: Path, party: str, size: int) -> None:
    function, whole = batches.releaser(run, party), table(run, party).slice(0, 8 * size)
    wanted = function(whole)
    assert wanted.schema.equals(function.schema)
    assert in_parts(function, whole, size).equals(wanted)
    order = np.random.default_rng(1).permutation(whole.num_rows)
    assert function(whole.take(order)).equals(wanted.take(order))


def test_an_engine_sends_paths_alone_to_its_workers(run: Path) -> None:
    function = batches.releaser(run, TELCO, local=local(run, TELCO))
    function(table(run, TELCO))
    sent = pickle.dumps(function)
    assert len(sent) < 1000
    secrets = [path.read_bytes() for path in run.parent.rglob("*.key")]
    assert secrets
    assert not any(secret in sent for secret in secrets)


@pytest.mark.slow
def test_two_processes_release_and_predict_what_one_does(run: Path) -> None:
    """Forked from one that has run nothing: what they are sent is pickled, as for a new interpreter."""
    whole = [(batches.releaser(run, TELCO), table(run, TELCO)), (batches.predictor(run, ACTIVE), joined(run))]
    answers = [forkserver.Queue() for _ in range(2)]
    for answer, rows in zip(answers, (slice(0, 77), slice(77, None)), strict=True):
        half = [(function, given.take(np.arange(160)[rows])) for function, given in whole]
        forkserver.Process(target=_in_worker, args=(half, answer), daemon=True).start()
    made = zip(*(answer.get(timeout=PATIENCE) for answer in answers), strict=True)
    for (function, given), halves in zip(whole, made, strict=True):
        assert pa.concat_tables(halves).equals(function(given))


@cache
def joined(run: Path) -> pa.Table:
    """The label owner's rows beside the releases, null where a partner lacks the row."""
    own = batches.identifier(run, ACTIVE)(table(run, ACTIVE))
    for party in (TELCO, SHOP):
        released = batches.releaser(run, party)(table(run, party))
        own = own.join(released, "release_id", "id", join_type="left outer")
    return own


def test_predictions_are_those_of_predict(run: Path, tmp_path: Path) -> None:
    scores = batches.predictor(run, ACTIVE)(joined(run))
    from cutlayer_serve.trained_party import TrainedParty

    given = {name: table(run, name) for name in (ACTIVE, TELCO, SHOP)}
    predict(TrainedParty.open(run, ACTIVE).job, RunFolder(run), tmp_path / "scores.csv", PredictionRequest(given))
    wanted = {line["id"]: line for line in csv.read_csv(tmp_path / "scores.csv").to_pylist()}
    assert scores.column_names == ["id", "probability", "contributed"]
    for line in scores.to_pylist():
        other = wanted[line["id"]]
        assert line["contributed"] == other["contributed"]
        assert line["probability"] == pytest.approx(other["probability"], rel=1e-6)
    assert {line["contributed"] for line in scores.to_pylist()} == {"bank telco shop", "bank telco"}


def test_batches_without_rows_have_the_columns(run: Path) -> None:
    for function in (batches.releaser(run, TELCO), batches.releaser(run, SHOP), batches.predictor(run, ACTIVE)):
        made = function(pa.RecordBatch.from_pydict({}))
        assert made.num_rows == 0
        assert made.schema.equals(function.schema)


def begin(run: Path, out: Path, **options: Any) -> Any:
    given = {"local": local(run, TELCO), "rows": "all", "plaintext": True, **options}
    return batches.release(run, TELCO, out, **given)


def write(opened: batches.OpenRelease, rows: Iterable[pa.RecordBatch]) -> None:
    for number, part in enumerate(opened.function.each(rows)):
        parquet.write_table(pa.Table.from_batches([part]), opened.out / f"{number}.parquet")


def written(run: Path, out: Path, **options: Any) -> batches.CommittedRelease:
    with begin(run, out, **options) as opened:
        write(opened, parts(table(run, TELCO), 50))
    assert opened.committed is not None
    return opened.committed


def trail(run: Path) -> Path:
    return run.parent / "keys" / "telco.key.trail"


def test_a_release_is_on_the_trail_once_whatever_number_of_files(run: Path, tmp_path: Path) -> None:
    before = verify_trail(trail(run)).lines if trail(run).exists() else 0
    done = written(run, tmp_path / "out")
    assert (done.rows, done.files) == (160, 4)
    assert verify_trail(trail(run)).lines == before + 2  # the start of a process, and the release
    *_, last = [*read_lines(sorted(trail(run).glob("0*.jsonl"))[-1])]
    assert (last.entry["to"], last.entry["rows"], last.entry["digest"]) == (ACTIVE, 160, done.digest)
    assert last.entry["bytes"] == sum(path.stat().st_size for path in (tmp_path / "out").glob("*.parquet"))
    assert batches.check_release(tmp_path / "out", run, ACTIVE, local=local(run, ACTIVE), plaintext=True) == done
    with pytest.raises(RunFolderError, match="no files"), begin(run, tmp_path / "out"):
        pass
    assert written(run, tmp_path / "again").digest == done.digest  # the draws are permanent


def test_the_ledger_states_that_changed_rows_are_not_counted(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unseen() -> list[int]:
        lines = RunStore(run.parent / "keys" / LEDGER_FILE).lines()
        events = [entry.event for line in lines for entry in line.ledger.entries]
        return [event.unseen for event in events if isinstance(event, RandomizedGrade)]

    (before,) = unseen()
    written(run, tmp_path / "november")
    assert unseen() == [before + 1]

    def limited(*given: Any) -> Chain:
        chain = chain_of(*given)
        chain.budget = BudgetConfig(epsilon=3.0)
        return chain

    monkeypatch.setattr(parts_of_a_run, "chain_of", limited)
    with pytest.raises(BudgetExceeded, match="expected releases that are counted"), begin(run, tmp_path / "december"):
        pass
    assert unseen() == [before + 1]


def test_what_a_partner_signs_is_checked_too(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An own program can sign an id twice; the label owner's join would have two rows of one of its own."""
    with monkeypatch.context() as patched:
        patched.setattr(released, "_check_ids", lambda *_: None)
        with begin(run, tmp_path / "out") as opened:
            write(opened, [*parts(table(run, TELCO), 80), *parts(table(run, TELCO), 160)])
    with pytest.raises(DataError, match="every id once"):
        batches.check_release(tmp_path / "out", run, ACTIVE, local=local(run, ACTIVE), plaintext=True)


def test_the_file_that_is_checked_is_the_one_of_its_name(run: Path, tmp_path: Path) -> None:
    """The engine reads names as patterns: `p[1].parquet` would stand for an empty `p1.parquet`."""

    def write_patterns(out: Path, rows: pa.Table) -> None:
        parquet.write_table(pa.concat_tables([rows] * 2), out / "p[1].parquet")
        parquet.write_table(rows.slice(0, 0), out / "p1.parquet")

    made = batches.releaser(run, TELCO)(table(run, TELCO).slice(0, 1))
    with pytest.raises(DataError, match="every id once"), begin(run, tmp_path / "out") as opened:
        write_patterns(opened.out, made)


def test_a_release_that_fails_is_neither_counted_nor_can_it_be_sent(run: Path, tmp_path: Path) -> None:
    before = verify_trail(trail(run)).lines if trail(run).exists() else 0
    whole = table(run, TELCO)
    with pytest.raises(DataError, match="Parquet files"), begin(run, tmp_path / "nothing"):
        pass
    twice = [*parts(whole, 80), *parts(whole, 160)]  # no batch has an id twice, and the release has
    with pytest.raises(DataError, match="every id once"), begin(run, tmp_path / "twice") as opened:
        write(opened, twice)
    with pytest.raises(DataError, match="columns id, grade of telco"), begin(run, tmp_path / "raw") as opened:
        parquet.write_table(whole, opened.out / "raw.parquet")
    with pytest.raises(DataError, match="Parquet files alone"), begin(run, tmp_path / "link") as opened:
        (opened.out / "x.parquet").symlink_to(own_table(run, TELCO))
    with pytest.raises(CutlayerError, match="'id' of the id"), begin(run, tmp_path / "stopped") as opened:
        write(opened, [*parts(whole, 160), *parts(whole.drop_columns("id"), 160)])
    assert (verify_trail(trail(run)).lines if trail(run).exists() else 0) == before
    assert not [*tmp_path.rglob(MANIFEST)]
    with pytest.raises(RunFolderError, match="cannot be read"):
        batches.check_release(tmp_path / "stopped", run, ACTIVE, local=local(run, ACTIVE), plaintext=True)


def test_a_stated_number_of_rows_takes_no_time(tmp_path: Path) -> None:
    """A footer may state any number, and the partner signs the same."""
    parquet.write_table(pa.table({"id": ["a", "b", "a"]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="every id once"):
        released._check_ids([tmp_path / "x.parquet"], 2**60)


def test_a_damaged_file_that_a_partner_signs_is_an_error(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(released, "_check_ids", lambda *_: None)
        with begin(run, tmp_path / "out") as opened:
            write(opened, parts(table(run, TELCO), 160))
            (path,) = opened.out.glob("*.parquet")
            content = bytearray(path.read_bytes())
            content[4:40] = bytes(36)  # pages, not the columns that are stated at the end
            path.write_bytes(content)
    with pytest.raises(DataError, match="that can be read"):
        batches.check_release(tmp_path / "out", run, ACTIVE, local=local(run, ACTIVE), plaintext=True)


def test_a_join_of_data_frames_makes_floats_of_grades(run: Path) -> None:
    rows = joined(run)
    at = rows.column_names.index("grade of telco")
    floats = pc.cast(rows.column(at), pa.float64())
    without = pc.if_else(pa.array(np.arange(160) == 5), float("nan"), floats)
    nulls = pc.if_else(pa.array(np.arange(160) == 5), None, rows.column(at))
    function = batches.predictor(run, ACTIVE)
    one, other = (function(rows.set_column(at, "grade of telco", column)) for column in (without, nulls))
    assert one.equals(other)
    assert one.column("contributed")[5].as_py() == "bank shop"


def test_nothing_begins_without_the_approvals_that_the_party_requires_now(run: Path, tmp_path: Path) -> None:
    """The private file of today counts, not that of the training."""
    stricter = tmp_path / "telco.yaml"
    stricter.write_text(f"{local(run, TELCO).read_text()}approvals: required\n")
    with pytest.raises(NotApproved), begin(run, tmp_path / "out", local=stricter):
        pass
    assert not (tmp_path / "out").exists()


def test_an_id_that_is_not_agreed_stays(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the ids are compared in parts: those of all of very many rows took more memory than was allowed."""
    monkeypatch.setattr(released, "_ROWS_AT_A_TIME", 60)
    ids = table(run, TELCO).column("id")
    csv.write_csv(pa.table({"row": np.arange(160), "id": ids}), tmp_path / "all.csv")
    assert written(run, tmp_path / "out", rows=tmp_path / "all.csv").rows == 160
    csv.write_csv(pa.table({"row": np.arange(159), "id": ids.slice(1)}), tmp_path / "common.csv")
    with pytest.raises(DataError, match=f"id '{ids[0]}'"):
        written(run, tmp_path / "other", rows=tmp_path / "common.csv")
    whole = table(run, TELCO)
    with (
        pytest.raises(DataError, match=f"every id once in a release, got '{ids[150]}' in two rows"),
        begin(run, tmp_path / "twice") as opened,
    ):
        write(opened, [*parts(whole, 80), *parts(whole.slice(150, 1), 1)])


@pytest.fixture(scope="module")
def committed(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in four files; not to be changed."""
    out = tmp_path_factory.mktemp("committed") / "out"
    written(run, out)
    return out


@pytest.mark.parametrize("change", ["bytes", "added", "removed", "swapped", "party"])
def test_a_folder_that_was_changed_on_the_way_is_refused(
    run: Path, committed: Path, tmp_path: Path, change: str
) -> None:
    out = shutil.copytree(committed, tmp_path / "out")
    if change == "bytes":
        (out / "0.parquet").write_bytes((out / "0.parquet").read_bytes()[:-1] + b"2")
    elif change == "added":
        shutil.copy(out / "0.parquet", out / "9.parquet")
    elif change == "removed":
        (out / "3.parquet").unlink()
    elif change == "swapped":
        (out / "0.parquet").rename(out / "x")
        (out / "1.parquet").rename(out / "0.parquet")
        (out / "x").rename(out / "1.parquet")
    reader = SHOP if change == "party" else ACTIVE
    with pytest.raises(ProtocolError):
        batches.check_release(out, run, reader, local=local(run, reader), plaintext=True)


@pytest.mark.parametrize("value", [-1, 16, 1.5, float("inf"), "a", None])
def test_columns_of_a_release_are_hostile(run: Path, value: Any) -> None:
    rows = joined(run).slice(0, 4)
    at = rows.column_names.index("grade of telco")
    if value is None:
        some = rows.set_column(
            rows.column_names.index("release 1 of shop"), "release 1 of shop", pa.array([None] * 4, pa.float32())
        )
        rows = some
    else:
        rows = rows.set_column(at, "grade of telco", pa.array([value] * 4))
    with pytest.raises(DataError, match="release"):
        batches.predictor(run, ACTIVE)(rows)


def test_what_depends_on_more_than_the_row_is_refused(run: Path, tmp_path: Path, noisy: Path) -> None:
    with pytest.raises(ConfigError, match="dp_embedding, which draws noise for each prediction"):
        batches.releaser(noisy, TELCO)
    with pytest.raises(ConfigError, match="which has the labels"):
        batches.releaser(run, ACTIVE)
    with pytest.raises(ConfigError, match="the label owner bank"):
        batches.predictor(run, TELCO)
    with pytest.raises(ConfigError, match="one of the parties"):
        batches.releaser(run, "nobody")
    with pytest.raises(DataError, match="'id' of the id"):
        batches.releaser(run, TELCO)(table(run, TELCO).drop_columns("id"))
    with pytest.raises(CutlayerError, match="calls"):
        batches.releaser(run, TELCO)(table(run, TELCO).drop_columns("calls"))


def test_a_folder_that_another_training_replaced_is_not_used(run: Path, noisy: Path, tmp_path: Path) -> None:
    """A worker lives longer than a training: the function is of one, and says which."""
    copy = shutil.copytree(run, tmp_path / "run")
    function = batches.releaser(copy, TELCO)
    shutil.rmtree(copy)
    shutil.copytree(noisy, copy)
    other = batches.Releaser(function.run, function.party, function.training + "0")
    with pytest.raises(RunFolderError, match="make the function again"):
        other(table(run, TELCO))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray: pip install cutlayer[ray]")
def test_ray_releases_what_one_process_does(run: Path, tmp_path: Path) -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with begin(run, tmp_path / "out") as opened:
            rows = ray.data.read_parquet(str(own_table(run, TELCO)), override_num_blocks=4)
            rows.map_batches(opened.function, batch_format="pyarrow", batch_size=17).write_parquet(str(opened.out))
        wanted = batches.releaser(run, TELCO)(table(run, TELCO)).sort_by("id")
        assert parquet.read_table(opened.out).sort_by("id").equals(wanted)
    finally:
        ray.shutdown()
