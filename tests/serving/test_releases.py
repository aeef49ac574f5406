"""A served release is protected, counted once for each id, and limited; nothing that a caller does releases more."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest
import torch

from cutlayer.accounting import log_of_run
from cutlayer.config import TableConfig
from cutlayer.data.arrivals import ArrivalWarning
from cutlayer.data.ids import row_digests
from cutlayer.errors import CheckpointError, ConfigError, RunFolderError
from cutlayer.storage.durable import locked
from cutlayer_serve.features import FeatureStore
from cutlayer_serve.released_rows import ReleasedRows
from cutlayer_serve.releases import OnlineReleases
from cutlayer_serve.status import Status
from cutlayer_serve.trained_party import TrainedParty
from tests.serving.world import own_table, train, world


def digests(*ids: object) -> np.ndarray:
    """Digests of ids, which may repeat."""
    return np.concatenate([row_digests(pa.array([str(each)])) for each in ids])


def releases(run: Path, max_ids: int | None = None, table: Path | None = None, passes: int = 1) -> OnlineReleases:
    trained = TrainedParty.open(run, "telco")
    assert trained.model.encoder is not None
    given = TableConfig(path=table or own_table(run, "telco"))
    features = FeatureStore.read(trained.job, "telco", given, trained.model.encoder)
    return OnlineReleases(trained, features, max_ids, passes=passes)


def changed_table(run: Path, path: Path, *ids: int) -> Path:
    """The telco's table with another value of `calls` in the rows of some ids, or of all."""
    table = pa.parquet.read_table(own_table(run, "telco"))
    keys, calls = table.column("id").to_pylist(), table.column("calls").to_pylist()
    moved = [value + (not ids or key in ids) for key, value in zip(keys, calls, strict=True)]
    pa.parquet.write_table(table.set_column(1, "calls", pa.array(moved)), path)
    return path


def batches_served(run: Path) -> list[tuple[int, int]]:
    """Pass and batch of every release for predictions in the log."""
    entries = [json.loads(line)["entry"] for line in log_of_run(run / "checkpoint" / "telco").read_text().splitlines()]
    return [(entry["epoch"], entry["batch"]) for entry in entries if entry.get("reason") == "serve"]


def test_an_id_that_is_asked_for_again_gets_the_same_noise(noisy: Path) -> None:
    with releases(noisy) as served:
        first = served.release(digests(3, 4, 5)).embedding
        again = served.release(digests(5, 3)).embedding
        twice = served.release(digests(4, 4, 4)).embedding
        other = served.release(digests(6)).embedding
        assert torch.equal(again, first[[2, 0]])
        assert torch.equal(twice, first[[1, 1, 1]])
    # Averaging over requests, other batches, or a restart learns nothing.
    with releases(noisy) as served:
        restarted = served.release(digests(3, 6, 4)).embedding
        assert torch.equal(restarted, torch.cat([first[:1], other, first[1:2]]))
    assert batches_served(noisy) == [(0, 0), (0, 1)]


def test_releases_have_the_noise_of_the_plan(noisy: Path) -> None:
    with releases(noisy) as served:
        rows = np.arange(150)
        sent = served.release(digests(*rows)).embedding
        with torch.no_grad():
            bare = served._embed(torch.from_numpy(served.features.index.find(digests(*rows))))
        clipped = bare * (1 / bare.norm(dim=1, keepdim=True)).clamp(max=1.0)
        sigma = 2.0 * 2 * 1.0
        assert 0.8 < float((sent - clipped).std()) / sigma < 1.2


def test_no_answer_shows_whose_columns_have_changed(noisy: Path, tmp_path: Path) -> None:
    """The row that changed is answered as the others: new numbers, or a refusal, for it alone would single it out."""
    with releases(noisy) as served:
        first = served.release(digests(3, 4, 5)).embedding
    with releases(noisy, table=changed_table(noisy, tmp_path / "changed.parquet", 4)) as served:
        found = served.release(digests(3, 4, 5, 9))
        assert found.status.tolist() == [Status.PRESENT] * 4
        assert torch.equal(found.embedding[:3], first)
    assert batches_served(noisy) == [(0, 0), (0, 1)]


def test_a_table_that_is_hardly_that_of_the_training_is_said_when_it_is_read(plain: Path, tmp_path: Path) -> None:
    table = pa.parquet.read_table(own_table(plain, "telco"))
    empty = pa.nulls(table.num_rows, pa.float64())
    pa.parquet.write_table(table.set_column(table.column_names.index("calls"), "calls", empty), tmp_path / "t.parquet")
    trained = TrainedParty.open(plain, "telco")
    assert trained.model.encoder is not None
    with pytest.warns(ArrivalWarning, match=f"'calls': no value in {table.num_rows} rows, and values in training"):
        FeatureStore.read(trained.job, "telco", TableConfig(path=tmp_path / "t.parquet"), trained.model.encoder)


def test_another_pass_releases_every_row_again_and_the_plan_ends_them(tmp_path: Path) -> None:
    noise = {"privacy": {"dp_embedding": {"clip": 1.0, "noise_multiplier": 2.0}}, "serving": 2}
    run = train(tmp_path / "twice", parties={"telco": noise})
    with releases(run) as served:
        first = served.release(digests(3, 4)).embedding
    table = changed_table(run, tmp_path / "changed.parquet", 4)
    for _ in range(2):  # a restart begins no further pass
        with releases(run, table=table, passes=2) as served:
            second = served.release(digests(3, 4)).embedding
            assert not (second == first).any()  # of both rows, the one that has not changed too
    with releases(run, table=table) as served:  # an earlier number does not go back
        assert torch.equal(served.release(digests(3, 4)).embedding, second)
    assert batches_served(run) == [(0, 0), (1, 0)]
    with pytest.raises(ConfigError, match=r"serve\.passes up to 2"):
        releases(run, passes=3)


def test_another_spelling_of_an_id_is_no_other_row(noisy: Path) -> None:
    async def check() -> None:
        async with world(noisy) as served:
            plain = await served.predict([3])
            for spelling in ("3", " 3", "3\t", "\u00a03"):
                same = await served.predict([spelling])
                assert same["predictions"][0]["probability"] == plain["predictions"][0]["probability"]
            assert (await served.predict([3, " 3"], status=422))["error"]

    asyncio.run(check())
    assert batches_served(noisy) == [(0, 0)]


def test_what_cannot_be_counted_is_not_served(tmp_path: Path) -> None:
    noise = {"privacy": {"dp_embedding": {"clip": 1.0, "noise_multiplier": 2.0}}}
    run = train(tmp_path, parties={"telco": noise})
    with pytest.raises(ConfigError, match="serving: 1"):
        releases(run)


def test_the_cap_ends_service_with_the_reason(noisy: Path) -> None:
    """All planned passes are in use by predictions made offline: 403, and nothing is released."""
    log = log_of_run(noisy / "checkpoint" / "telco")
    with releases(noisy) as served:
        served.release(digests(3))
    log.with_suffix(".served").unlink()  # whoever removes the stored rows gets no second release of any

    async def check() -> None:
        async with world(noisy) as served:
            problem = await served.predict([3, 4], status=403)
            assert "telco" in problem["error"]
            assert "limit" in problem["error"]

    asyncio.run(check())
    assert batches_served(noisy) == [(0, 0)]


def test_the_limit_of_ids_holds_over_restarts_and_known_ids_go_on(plain: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(plain, run)
    with releases(run, max_ids=3) as served:
        first = served.release(digests(1, 2, 1, 888, 3))
        assert first.status.tolist() == [Status.PRESENT, Status.PRESENT, Status.PRESENT, Status.UNKNOWN, Status.CAPPED]
    with releases(run, max_ids=3) as served:
        found = served.release(digests(3, 2, 999, 888))
        status, sent = found.status, found.embedding
        # Beyond the limit nobody learns whether the party has an id.
        assert status.tolist() == [Status.CAPPED, Status.PRESENT, Status.CAPPED, Status.UNKNOWN]
        assert not sent[0].any()
        torch.testing.assert_close(sent[1], first.embedding[1])


def test_a_second_process_cannot_release_at_the_same_time(noisy: Path) -> None:
    with releases(noisy), pytest.raises(RunFolderError, match="in use"), releases(noisy):
        pass
    offline = locked(log_of_run(noisy / "checkpoint" / "telco").with_suffix(".lock"), "a prediction")
    with offline, pytest.raises(RunFolderError, match="a prediction"), releases(noisy):
        pass


def test_a_kill_between_count_and_send_releases_nothing_twice(noisy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with releases(noisy) as served:
        served.release(digests(1))
        monkeypatch.setattr(ReleasedRows, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            served.release(digests(2))
        monkeypatch.undo()
    with releases(noisy) as served:
        status = served.release(digests(2)).status
        assert status.tolist() == [Status.PRESENT]
    assert batches_served(noisy) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("later", [1, 2], ids=["one batch too old", "two batches too old"])
def test_an_older_copy_of_the_stored_rows_is_noticed(noisy: Path, later: int) -> None:
    stored = log_of_run(noisy / "checkpoint" / "telco").with_suffix(".served")
    with releases(noisy) as served:
        served.release(digests(1))
        copy = stored.read_bytes()
        for row in range(2, 2 + later):
            served.release(digests(row))
    stored.write_bytes(copy)
    with releases(noisy) as served:
        status = served.release(digests(1, 2)).status
        assert status.tolist() == [Status.PRESENT, Status.CAPPED]


def test_a_copy_from_the_midst_of_a_release_leads_to_the_same_numbers(
    noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that was begun, and sent after the copy was made, is sent again with the same noise and no other."""
    stored = log_of_run(noisy / "checkpoint" / "telco").with_suffix(".served")
    add = ReleasedRows.add

    def copied(rows: ReleasedRows, *given: Any) -> None:
        (tmp_path / "copy").write_bytes(stored.read_bytes())
        add(rows, *given)

    with releases(noisy) as served:
        served.release(digests(1))
        monkeypatch.setattr(ReleasedRows, "add", copied)
        sent = served.release(digests(2, 3)).embedding
        monkeypatch.undo()
    (tmp_path / "copy").rename(stored)
    with releases(noisy) as served:
        found = served.release(digests(3, 2, 4))
        assert found.status.tolist() == [Status.PRESENT] * 3
        assert torch.equal(found.embedding[:2], sent[[1, 0]])
    assert batches_served(noisy) == [(0, 0), (0, 1), (0, 2)]


def test_a_batch_that_was_begun_and_whose_rows_have_changed_ends_the_pass(
    noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_table(noisy, tmp_path / "changed.parquet")
    with torch.no_grad():
        before, after = (
            each._embed(torch.from_numpy(each.features.index.find(digests(*range(9)))))
            for each in (releases(noisy), releases(noisy, table=tmp_path / "changed.parquet"))
        )
    # Where no unit is active a row is embedded alike, which is the same release: the weights are drawn for each run.
    row = next(number for number in range(2, 9) if not torch.equal(before[number], after[number]))
    with releases(noisy) as served:
        served.release(digests(1))
        monkeypatch.setattr(ReleasedRows, "add", lambda *_: None)
        served.release(digests(row))
        monkeypatch.undo()
    table = pa.parquet.read_table(tmp_path / "changed.parquet")
    pa.parquet.write_table(table.filter(pa.compute.field("id") != row), tmp_path / "gone.parquet")
    for name in ("changed", "gone"):
        with releases(noisy, table=tmp_path / f"{name}.parquet") as served:
            assert served.release(digests(9)).status.tolist() == [Status.CAPPED]
    assert batches_served(noisy) == [(0, 0), (0, 1)]


def test_a_batch_that_was_refused_and_begun_again_has_the_rows_of_the_second_time(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    rows = ReleasedRows(path, 3)
    first, second = [b"a" * 16, b"b" * 16], [b"c" * 16, b"d" * 16, b"e" * 16]
    rows.begin(first, 0, 0)
    rows.begin(second, 0, 0)
    assert dict(ReleasedRows(path, 3).begun) == {(0, 0): second}
    rows.add(second, 0, 0, torch.zeros(3, 3))
    again = ReleasedRows(path, 3)
    assert not rows.begun
    assert not again.begun
    assert (len(again), again.passes, again.batches(0)) == (3, (0,), 1)
    path.write_bytes(path.read_bytes()[:-5])  # the last row was not written
    assert dict(ReleasedRows(path, 3).begun) == {(0, 0): second}


def test_a_torn_record_is_dropped_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    rows = ReleasedRows(path, 3)
    sent = torch.arange(6.0).reshape(2, 3)
    rows.add([b"a" * 16, b"b" * 16], 0, 0, sent)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    again = ReleasedRows(path, 3)
    assert len(again) == 1
    assert torch.equal(again.embeddings(again.find(np.frombuffer(b"a" * 16, np.uint8).reshape(1, 16))), sent[:1])
    path.write_bytes(whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])
    with pytest.raises(CheckpointError, match="damaged"):
        ReleasedRows(path, 3)
    with pytest.raises(CheckpointError, match="width"):
        ReleasedRows(path, 4)
