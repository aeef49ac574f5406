"""Predictions between organisations: those of one process, through the same protections, and to nobody who deviates."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.channel import Kind, Message, Port, link, rows_digest
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.channel.receiving import close_reason
from cutlayer.config import LimitsConfig
from cutlayer.data.arrivals import ArrivalWarning
from cutlayer.errors import AlignmentError, BudgetExceeded, CutlayerError, DataError, DriftExceeded, ProtocolError
from cutlayer.parties.drive.by_links import drive_over_links
from cutlayer.parties.drive.drive import drive_together
from cutlayer.serving import PredictionReleases
from cutlayer.serving.answers import PredictedRows
from cutlayer.serving.between import REQUEST_PART, PredictionSide, request_predictions, serve_requests
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from tests.channel.links import connect
from tests.serving.runs import KEY, NOISY, tables, trained

Trained = tuple[Any, RunFolder]
PASSIVES = ("telco", "shop")


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    changes = {"parties.telco.privacy": NOISY, "parties.telco.serving": 2, "alignment": "plain"}
    return trained(tmp_path_factory.mktemp("noisy"), changes)


@pytest.fixture
def noisy(once: Trained, tmp_path: Path) -> Trained:
    """A copy with a count of its own."""
    return once[0], RunFolder(Path(shutil.copytree(once[1].path, tmp_path / "noisy")))


def new_rows() -> dict[str, pa.Table]:
    """New rows of which telco lacks 40 and shop 10 others."""
    given = tables(300, seed=8)
    kept = [number for number in given["telco"]["id"].to_pylist() if number >= 40]
    telco = given["telco"].filter(pa.array([number in set(kept) for number in given["telco"]["id"].to_pylist()]))
    return {**given, "telco": telco, "shop": given["shop"].filter(pa.array(np.array(given["shop"]["id"]) < 290))}


def side(
    run: Trained, name: str, table: pa.Table, method: str = "plain", limits: LimitsConfig | None = None
) -> PredictionSide:
    opened = PredictionSide.open(*run, name, table, limits or LimitsConfig())
    return replace(opened, alignment=Alignment(method, Purpose.PREDICT, processes=1))


def serving(run: Trained, name: str) -> PredictionReleases:
    return PredictionReleases(*run, name, 4, KEY)


def together(
    run: Trained, given: Mapping[str, pa.Table], absent: Sequence[str] = (), method: str = "plain"
) -> tuple[PredictedRows, dict[str, Any]]:
    """All sides in this thread."""
    present = [name for name in PASSIVES if name not in absent]
    ends = {name: link("bank", name, "r") for name in present}
    bank = request_predictions(
        side(run, "bank", given["bank"], method), {name: here for name, (here, _) in ends.items()}, absent
    )
    parties = {"bank": bank}
    for name in present:
        parties[name] = serve_requests(side(run, name, given[name], method), serving(run, name), ends[name][1])
    done = drive_together(parties)
    return done["bank"], done


def offline(run: Trained, tmp_path: Path, given: Mapping[str, pa.Table], absent: Sequence[str] = ()) -> pa.Table:
    """The same prediction with all parties in one process, on a copy of the run."""
    copied = run[0], RunFolder(Path(shutil.copytree(run[1].path, tmp_path / "offline", dirs_exist_ok=True)))
    chosen = {name: table for name, table in given.items() if name not in absent}
    predict(*copied, tmp_path / "offline.parquet", PredictionRequest(chosen, absent, key=KEY))
    return parquet.read_table(tmp_path / "offline.parquet")


def test_predictions_equal_the_offline_ones(noisy: Trained, tmp_path: Path) -> None:
    """Without the noise of telco to the last bits; its noise differs, since the rows are in another order."""
    given = new_rows()
    wanted = offline(noisy, tmp_path, given, absent=["telco"])
    found, done = together(noisy, given, absent=["telco"])
    assert done["shop"] == 290
    found.write(tmp_path / "s.parquet", side(noisy, "bank", given["bank"]).model.task)
    scores = parquet.read_table(tmp_path / "s.parquet")
    assert scores.select(["id", "contributed"]).equals(wanted.select(["id", "contributed"]))
    found.write(tmp_path / "s.csv", side(noisy, "bank", given["bank"]).model.task)
    assert csv.read_csv(tmp_path / "s.csv")["probability"].equals(scores["probability"])
    np.testing.assert_allclose(scores["probability"].to_numpy(), wanted["probability"].to_numpy(), atol=1e-6)


@pytest.mark.parametrize("method", ["plain", "psi"])
def test_noisy_parties_release_through_their_protections_and_count(noisy: Trained, method: str) -> None:
    given = new_rows()
    first, done = together(noisy, given, method=method)
    second, _ = together(noisy, given, method=method)
    assert done["telco"] == 250
    assert {name for name, mask in first.present.items() if mask.all()} == {"bank", "telco", "shop"}
    assert first.ids.equals(second.ids)
    assert (first.logits - second.logits).abs().max() > 0.01
    assert serving(noisy, "telco").predictions_made == 2
    with pytest.raises(BudgetExceeded, match="telco: prediction 3 was asked for, but 2 were planned"):
        together(noisy, given, method=method)


def test_the_noise_is_that_of_an_offline_prediction_of_rows_in_one_order(noisy: Trained, tmp_path: Path) -> None:
    given = tables(300, seed=8)
    found, _ = together(noisy, given)
    order = _common_order(noisy, given)
    arranged = {name: table.sort_by("id").take(order) for name, table in given.items()}
    copied = noisy[0], RunFolder(Path(shutil.copytree(noisy[1].path, tmp_path / "copied")))
    shutil.rmtree(copied[1].path / "checkpoint" / "telco" / "releases")
    shutil.copytree(_releases_before(noisy, tmp_path), copied[1].path / "checkpoint" / "telco" / "releases")
    predict(*copied, tmp_path / "offline.parquet", PredictionRequest(arranged, key=KEY))
    wanted = parquet.read_table(tmp_path / "offline.parquet").sort_by("id")["probability"].to_numpy()
    order_of_ids = np.argsort(found.ids.to_numpy())
    np.testing.assert_allclose(torch.sigmoid(found.logits[:, 0]).numpy()[order_of_ids], wanted, atol=1e-6)


def _common_order(run: Trained, given: Mapping[str, pa.Table]) -> np.ndarray:
    """Ids in the order that the parties agree on: ascending digests."""
    digests = side(run, "bank", given["bank"].sort_by("id")).table.digests
    return np.lexsort(digests.T[::-1])


def _releases_before(run: Trained, tmp_path: Path) -> Path:
    """The release log as it was before the prediction: without its last lines."""
    source = run[1].path / "checkpoint" / "telco" / "releases"
    target = Path(shutil.copytree(source, tmp_path / "before"))
    (log,) = target.glob("*/*.jsonl")
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines() if '"serve"' not in line))
    return target


def test_each_party_says_what_is_hardly_the_same_in_its_own_rows(noisy: Trained) -> None:
    given = tables(300, seed=8)
    given["telco"] = given["telco"].set_column(2, "plan", pa.array(["PLUS"] * 300))
    opened = {name: side(noisy, name, given[name]) for name in ("bank", *PASSIVES)}
    links = {name: link("bank", name, "r") for name in PASSIVES}
    parties: dict[str, Any] = {
        "bank": request_predictions(opened["bank"], {name: ends[0] for name, ends in links.items()})
    }
    parties |= {name: serve_requests(opened[name], serving(noisy, name), links[name][1]) for name in PASSIVES}
    with pytest.warns(ArrivalWarning, match="telco.*: column 'plan': 300 of 300 values were not seen in training"):
        drive_together(parties)
    assert {name: len(opened[name].table.arrivals) for name in opened} == {"bank": 0, "telco": 1, "shop": 0}


def test_over_the_transport(noisy: Trained) -> None:
    given = new_rows()
    wanted, _ = together(noisy, given, absent=["telco"])
    with ServerLinks("127.0.0.1:0", "bank", ["shop"], "r", timeout=30) as links:
        rows: list[int] = []

        def follow() -> None:
            with connect(links.address, "shop", "bank", timeout=30) as link:
                shop = side(noisy, "shop", given["shop"])
                rows.append(drive_over_links(serve_requests(shop, serving(noisy, "shop"), link.port), link, 30))

        thread = threading.Thread(target=follow)
        thread.start()
        links.wait_for_peers()
        found = drive_over_links(
            request_predictions(side(noisy, "bank", given["bank"]), links.ports, ["telco"]), links, 30
        )
        thread.join(30)
    assert rows == [290]
    assert found.ids.equals(wanted.ids)
    torch.testing.assert_close(found.logits, wanted.logits, rtol=0, atol=1e-6)


def hostile(run: Trained, requests: Callable[[Port, int, Any], None], rounds: int) -> None:
    """A bank that aligns as it should, and then sends requests of its own to telco."""
    given = tables(100, seed=8)
    here, there = link("bank", "telco", "r")
    mine = side(run, "bank", given["bank"])

    def bank() -> Generator[Port, Message, None]:
        from cutlayer.parties.agreement.handshake import agree_active
        from cutlayer.parties.agreement.order import agree_order_active

        aligned = yield from agree_active(
            mine.job, mine.table, "bank", {"telco": here}, [], mine.limits, mine.alignment
        )
        yield from agree_order_active(mine.job, {"telco": here}, mine.table.digests[aligned.positions])
        here.send(Kind.OFFER, fields={"version": mine.model.record.training, "width": 0})
        yield here
        for number in range(rounds):
            requests(here, number, len(aligned.positions))
            yield here

    telco = serve_requests(side(run, "telco", given["telco"]), serving(run, "telco"), there)
    drive_together({"bank": bank(), "telco": telco})


def _asks(port: Port, rows: Sequence[int], step: int = 0, part: str = REQUEST_PART, batch: int | None = None) -> None:
    digest = rows_digest(torch.tensor(rows))
    port.send(Kind.REQUEST, step=step, rows=digest, fields={"part": part, "batch": step if batch is None else batch})


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        (lambda port, _n, _rows: _asks(port, [0, 0, 1]), "for other rows"),
        (lambda port, _n, _rows: _asks(port, [5]), "for other rows"),
        (lambda port, _n, rows: _asks(port, range(rows), step=1), "request of epoch -1, step 0"),
        (lambda port, _n, rows: _asks(port, range(rows), batch=7), "expected a request for batch 0"),
        (lambda port, _n, rows: _asks(port, range(rows), part="train"), "expected a request for batch 0"),
    ],
)
def test_an_active_party_gets_no_row_but_those_of_the_next_batch(noisy: Trained, requests: Any, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        hostile(noisy, requests, 1)
    assert serving(noisy, "telco").predictions_made == 0


@pytest.mark.parametrize(("positions", "message"), [([3] * 90, "every position once"), ([-1, 5], "positions in 0")])
def test_a_row_that_is_named_many_times_as_common_is_not_released(
    noisy: Trained, monkeypatch: pytest.MonkeyPatch, positions: list[int], message: str
) -> None:
    """Each place would have noise of its own, whose mean leaves the row, and the account one release."""
    given = tables(100, seed=8)

    def named(digests: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        (row,) = digests["telco"][[3]]
        bank = int(np.flatnonzero((digests["bank"] == row).all(1))[0])
        return {"bank": np.full(len(positions), bank), "telco": np.array(positions)}

    monkeypatch.setattr("cutlayer.alignment.common_rows.intersect", named)
    with pytest.raises(AlignmentError, match=message):
        together(noisy, given, absent=["shop"])
    assert serving(noisy, "telco").predictions_made == 0


def test_asking_for_a_batch_again_gets_nothing(noisy: Trained) -> None:
    """The mean of repeated releases would average their noise."""
    with pytest.raises(CutlayerError):
        hostile(noisy, lambda port, _n, rows: _asks(port, range(rows)), 2)
    assert serving(noisy, "telco").predictions_made == 1


def test_parts_of_different_trainings_are_refused_before_a_release(noisy: Trained, tmp_path: Path) -> None:
    given = new_rows()
    ends = link("bank", "telco", "r")
    bank, telco = side(noisy, "bank", given["bank"]), side(noisy, "telco", given["telco"])
    other = telco.model.record.model_copy(update={"training": "another"})
    telco = replace(telco, model=replace(telco.model, record=other))
    sides = {
        "bank": request_predictions(bank, {"telco": ends[0]}, ["shop"]),
        "telco": serve_requests(telco, serving(noisy, "telco"), ends[1]),
    }
    with pytest.raises(ProtocolError, match=r"a part of training .*, got one of"):
        drive_together(sides)
    assert serving(noisy, "telco").predictions_made == 0


def test_embeddings_beyond_the_limit_are_refused(noisy: Trained) -> None:
    given = new_rows()
    ends = link("bank", "shop", "r")
    bank = side(noisy, "bank", given["bank"], limits=LimitsConfig(embedding_norm=1e-6))
    shop = serve_requests(side(noisy, "shop", given["shop"]), serving(noisy, "shop"), ends[1])
    with pytest.raises(ProtocolError, match=r"limits\.embedding_norm"):
        drive_together({"bank": request_predictions(bank, {"shop": ends[0]}, ["telco"]), "shop": shop})


def test_a_prediction_leaves_gradients_as_they_were(noisy: Trained) -> None:
    """Sides take turns in one thread: a mode that one left on would stay on."""
    together(noisy, new_rows())
    assert torch.is_grad_enabled()


def test_a_drifted_party_releases_nothing_and_each_side_sees_its_own_columns_alone(noisy: Trained) -> None:
    given = new_rows()
    usage = given["telco"]["usage"].to_numpy() + 3.0
    given["telco"] = given["telco"].set_column(1, "usage", pa.array(usage))

    def sides(limit: float | None) -> dict[str, PredictionSide]:
        return {name: replace(side(noisy, name, given[name]), max_drift=limit) for name in given}

    def run(limits: Mapping[str, float]) -> dict[str, PredictionSide]:
        made = {name: sides(limits.get(name))[name] for name in given}
        ends = {name: link("bank", name, "r") for name in PASSIVES}
        parties = {"bank": request_predictions(made["bank"], {name: here for name, (here, _) in ends.items()})}
        parties |= {name: serve_requests(made[name], serving(noisy, name), ends[name][1]) for name in PASSIVES}
        drive_together(parties)
        return made

    with pytest.raises(DriftExceeded, match=r"at most 0.25 .*of usage at telco; nothing was released"):
        run({"telco": 0.25})
    assert serving(noisy, "telco").predictions_made == 0
    done = run({"bank": 0.25, "shop": 0.25})
    seen = {name: {row.of: row for row in each.drift.rows()} for name, each in done.items()}
    assert seen["telco"].keys() == {"usage", "plan"}
    assert seen["bank"].keys() == {"balance", "score probability"}
    assert seen["telco"]["usage"].psi > 1 > 0.1 > seen["bank"]["balance"].psi
    assert seen["bank"]["score probability"].rows == 250


def test_a_peer_does_not_learn_that_columns_drifted() -> None:
    assert close_reason(DriftExceeded("usage drifted")) == close_reason(DataError("a bad table")) == "DataError"
