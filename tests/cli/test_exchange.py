"""`cutlayer exchange` as a scheduler runs it: one command at every party, repeated until it says that it is done."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from safetensors.torch import load_file

from cutlayer.accounting import log_of_run
from cutlayer.serving import prediction_release
from cutlayer.serving.prediction_release import OpenPrediction
from tests.cli.jobs import Place, QuietPlace, as_yaml
from tests.parties.runs import raw_job
from tools.ports import free_port

TOP = {"kind": "auto", "candidates": ["linear"]}
GRADES = {"kind": "grade", "candidates": ["linear"], "folds": 2, "limits": {"other": 1.0}}
"""Draws are of a new secret in each test: at the default limit one of many would be refused."""
PRIVATE: Mapping[str, Any] = {
    "bank": {"table": "bank.csv", "id": "id", "label": "label", "audit": {"every": "never"}},
    "telco": {
        "table": "telco.csv",
        "id": "id",
        "fit": GRADES,
        "audit": {"attacks": []},
    },
}


def write_tables(folder: Path, stem: str, first: int, rows: int = 300) -> None:
    draw = np.random.default_rng(first)
    ids, hidden = np.arange(rows) + first, draw.normal(size=rows)
    label = (hidden + draw.normal(size=rows) * 0.3 > 0).astype(int)
    own = {"id": ids, "age": hidden * 0.3 + draw.normal(size=rows), "label": label}
    theirs = {"id": ids, "calls": hidden, "usage": draw.normal(size=rows)}
    csv.write_csv(pa.table(own), folder / f"bank{stem}.csv")
    csv.write_csv(pa.table(theirs).slice(rows // 5), folder / f"telco{stem}.csv")


def prepare(place: Place, bottom: Mapping[str, Any], **private: Mapping[str, Any]) -> None:
    """A job on all rows of the bank, and a private file for each party."""
    model = {"bottom": {"bank": {"kind": "auto"}, "telco": bottom}, "top": TOP}
    job = {"task": "binary", "rows": "all", "model": model, "train": {**raw_job()["train"], "release": "once"}}
    job["parties"] = {"bank": {"role": "active"}, "telco": {"role": "passive"}}
    place.write(job)
    for name, section in PRIVATE.items():
        (place.folder / f"{name}.yaml").write_text(as_yaml({**section, **private.get(name, {})}))
    write_tables(place.folder, "", 0)


def start(place: Place, name: str, *options: object, code: int | None = None, folder: str = "shared") -> dict[str, Any]:
    named = ("--as", name, "--local", f"{name}.yaml", "--folder", folder, "--plaintext", "--json")
    result = place.call("exchange", "job.yaml", *named, *options)
    assert result.code in ((0, 5) if code is None else (code,)), result
    answered: dict[str, Any] = result.document()
    assert code in (2, 6) or (answered["state"] == "waiting") is (result.code == 5)
    return answered


def until_done(place: Place, *options: object, out: tuple[object, ...] = ()) -> dict[str, dict[str, Any]]:
    """Both parties' commands in turn, until both are done; never more often than two files each way need."""
    for _ in range(3):
        said = {name: start(place, name, *options, *(out if name == "bank" else ())) for name in PRIVATE}
        if all(each["state"] == "done" for each in said.values()):
            return said
    raise AssertionError(said)


def prepare_graded(place: Place) -> None:
    prepare(
        place,
        {"kind": "grade", "least_rows": 0},
        bank={"privacy": {"label_dp": {"eps": 3.0}}},
        telco={"privacy": {"grade_dp": {"epsilon": 8.0}}},
    )


@pytest.fixture
def graded(place: Place) -> Place:
    prepare_graded(place)
    return place


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that both parties have trained; not to be changed."""
    place = QuietPlace(tmp_path_factory.mktemp("exchanged"))
    prepare_graded(place)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place.folder)
        until_done(place)
    return place.folder


@pytest.fixture
def trained(place: Place, trained_once: Path) -> Place:
    shutil.copytree(trained_once, place.folder, dirs_exist_ok=True)
    return place


def test_a_gate_that_fails_stops_the_scheduler_until_somebody_sets_another_limit(graded: Place) -> None:
    place = graded
    private = {**PRIVATE["bank"], "privacy": {"label_dp": {"eps": 3.0}}}
    private["audit"] = {"fail_above": {"label_auc": 0.6}}
    (place.folder / "bank.yaml").write_text(as_yaml(private))
    first = start(place, "telco", code=5)
    assert (first["from"], first["next"], first["written"]) == ("bank", "bring, then repeat", [])
    for name in ("bank", "telco", "bank", "telco"):
        said = start(place, name)
    assert (said["state"], said["failed"], said["version"]) == ("done", False, "1")
    assert said["written"] == ["shared/train-1/telco~bank~1.cutlayer"]
    for _ in range(2):  # also where it is repeated
        said = start(place, "bank", code=1)
        assert (said["state"], said["next"], said["version"], said["written"]) == ("failed", "decide", "1", [])
    for name in PRIVATE:
        assert (place.folder / "runs" / f"job-{name}-1" / "report.html").exists()
    write_tables(place.folder, "-june", 1000)
    june = ("--round", "june", "--data", "bank-june.csv", "--out", "june.parquet")
    for version in ((), ("--version", "1")):
        assert start(place, "bank", *june, *version, code=1)["done"] == []
    mistyped = start(place, "bank", *june, "--version", "11", code=2)["error"]
    assert "--round with one of the versions 1, got --version 11; did you mean '1'?" in mistyped
    assert "a new version is trained without --round" in mistyped
    assert not [*(place.folder / "runs").glob("*train-11")]
    assert not [*(place.folder / "shared").glob("predict-*")]
    named = ("--as", "bank", "--local", "bank.yaml", "--folder", "shared", "--plaintext")
    result = place.call("exchange", "job.yaml", *named, *june)
    assert "a gate of job-bank-1 failed, or a guarantee that was tested: " in result.out
    run = place.folder / "runs" / "job-bank-1"
    assert "nothing is predicted; cutlayer audit runs/job-bank-1 --fail-above sets another limit" in result.out
    assert place.call("audit", run, "--fail-above", "0.6").code == 1
    assert start(place, "bank", *june, code=1)["done"] == []
    assert place.call("audit", run, "--fail-above", "1").code == 0
    start(place, "bank", *june, code=5)
    for _ in range(2):
        start(place, "telco", "--round", "june", "--data", "telco-june.csv")
        said = start(place, "bank", *june)
    assert (said["state"], said["rows"]) == ("done", 300)


def test_a_training_and_a_month_by_an_object_store(graded: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of fsspec in memory stands for a bucket: what is in it is all that crosses."""
    fsspec = pytest.importorskip("fsspec")
    place, address = graded, f"memory://bucket-{free_port()}/exchange"
    store = fsspec.filesystem("memory")
    monkeypatch.chdir(place.folder)

    def step(name: str, *options: object, code: int | None = None) -> dict[str, Any]:
        return start(place, name, *options, code=code, folder=address)

    waiting = step("telco", code=5)
    assert waiting["why"] == "bank has not put it there"
    with monkeypatch.context() as broken:
        broken.setattr(
            type(store), "put_file", lambda *_, **__: (_ for _ in ()).throw(OSError("no route to the store"))
        )
        assert step("bank", code=5)["why"] == "OSError: no route to the store"
    for name in ("bank", "telco", "bank", "telco", "bank"):
        said = step(name)
    assert (said["state"], said["version"]) == ("done", "1")
    write_tables(place.folder, "-june", 1000)
    june = {name: ("--round", "june", "--data", f"{name}-june.csv") for name in PRIVATE}
    june["bank"] += ("--out", "june.parquet")
    for name in ("bank", "telco", "bank", "telco", "bank"):
        said = step(name, *june[name])
    assert (said["rows"], said["contributed"]) == (300, ["bank", "telco"])
    rounds = {path.rpartition("/")[0].rpartition("/")[2] for path in store.find(address)}
    assert rounds == {"train-1", "predict-1~june"}
    assert not [*place.folder.glob("shared")]
    files = [path for path in store.find(address) if "/predict" in path]
    assert len(files) == 4, "two files each way"
    shutil.rmtree(place.folder / "runs" / "job-bank.rounds" / "predict-1~june")
    shutil.rmtree(place.folder / "runs" / "job-bank.files" / "predict-1~june")
    store.pipe_file(next(path for path in files if "bank~telco~0" in path), b"another")
    assert "expected no other file at" in step("bank", *june["bank"], "--overwrite", code=2)["error"]


@pytest.mark.parametrize(
    "name",
    ["telco~bank~0 (1).cutlayer", "telco_bank_0.cutlayer", "telco~bank~0.cutlayer.txt", "../telco~bank~0.cutlayer"],
)
def test_a_file_that_was_renamed_on_the_way_is_named(graded: Place, name: str) -> None:
    start(graded, "bank", code=5)
    start(graded, "telco", code=5)
    folder = graded.folder / "shared" / "train-1"
    (folder / "telco~bank~0.cutlayer").rename(folder / name)
    named = ("--as", "bank", "--local", "bank.yaml", "--folder", "shared", "--plaintext")
    said = graded.call("exchange", "job.yaml", *named)
    wanted = (
        f"{(folder / name).resolve().relative_to(graded.folder)} looks like it: if so, move it to shared/train-1/tel"
    )
    assert (said.code, wanted in said.out) == (5, True), said
    (folder / "telco~bank~9.cutlayer").write_text("another number is no such file")
    (folder / name).unlink()
    assert "looks like it" not in graded.call("exchange", "job.yaml", *named).out


@pytest.mark.parametrize(
    ("folder", "fault"),
    [
        ("https://host/exchange", "a web server takes no file"),
        ("ftp://host/exchange", "--folder: expected a path, or an address that begins with s3://"),
        ("s3://user:word@bucket/exchange", "without a password"),
        ("s3://bucket/exchange", "expected signed files in a store, got --plaintext"),
    ],
)
def test_an_address_that_is_no_folder_of_a_store_is_refused(graded: Place, folder: str, fault: str) -> None:
    assert fault in start(graded, "telco", code=2, folder=folder)["error"]


def test_a_year_of_one_command(trained: Place) -> None:
    """Trained by drawn labels on all rows; a month; a month without the partner; a second version; all repeated."""
    place = trained
    assert start(place, "bank", code=0)["done"] == []
    write_tables(place.folder, "-june", 1000)
    (place.folder / "telco-lost.csv").write_text((place.folder / "telco-june.csv").read_text().replace("usage", "use"))
    june = ("--round", "june", "--data")
    start(place, "bank", *june, "bank-june.csv", "--out", "june.parquet", code=5)
    before = {*(place.folder / "shared").rglob("*")}
    assert "no column 'usage'" in start(place, "telco", *june, "telco-lost.csv", code=2)["error"]
    assert {*(place.folder / "shared").rglob("*")} == before, "nothing leaves by a table that is refused"
    for _ in range(2):
        start(place, "telco", *june, "telco-june.csv")
        said = start(place, "bank", *june, "bank-june.csv", "--out", "june.parquet")
    assert (said["rows"], said["contributed"]) == (300, ["bank", "telco"])
    sent = sorted(path.name for path in (place.folder / "shared" / "predict-1~june").iterdir())
    assert len(sent) == 4, "two files each way"
    beside = json.loads((place.folder / "june.parquet.json").read_text())
    assert beside == said["model"]
    assert (beside["run"], beside["round"], beside["contributed"]) == (
        "job-bank-1",
        "june",
        {"bank": 300, "telco": 240},
    )
    scores = (place.folder / "june.parquet").read_bytes()
    again = start(place, "bank", *june, "gone.csv", "--out", "june.parquet", code=0)  # nothing is read or written
    assert (again["done"], again["rows"]) == ([], 300)
    assert (place.folder / "june.parquet").read_bytes() == scores

    write_tables(place.folder, "-july", 2000)
    july = ("--round", "july", "--data", "bank-july.csv", "--out", "july.parquet")
    start(place, "bank", *july, code=5)
    alone = start(place, "bank", *july, "--absent", "telco", code=0)
    assert (alone["rows"], alone["contributed"]) == (300, ["bank"])
    start(place, "telco", "--round", "july", "--data", "telco-july.csv", code=5)  # its answer is not read any more
    assert start(place, "bank", *july, code=0)["done"] == []

    until_done(place, "--version", "2")
    assert (place.folder / "runs" / "job-telco.latest").read_text() == "job-telco-2\n"
    write_tables(place.folder, "-august", 3000)
    august = {
        name: start(place, name, "--round", "august", "--data", f"{name}-august.csv", *out)
        for name, out in (("bank", ("--out", "august.parquet")), ("telco", ()))
    }
    assert {each["waiting_for"].split("/")[1] for each in august.values()} == {"predict-2~august"}
    runs = place.call("ledger", ".cutlayer", "--json").document()["runs"]
    assert [(run["party"], run["runs_on_these_rows"]) for run in runs] == [("bank", 2), ("telco", 2)] * 2


def test_customers_with_several_rows(graded: Place) -> None:
    """One drawn label and one grade of each id cross, and each row of the bank is scored."""
    place = graded
    private = {**PRIVATE["bank"], "id": {"column": "id", "duplicates": "keep"}}
    (place.folder / "bank.yaml").write_text(as_yaml({**private, "privacy": {"label_dp": {"eps": 3.0}}}))
    write_tables(place.folder, "-june", 1000)
    for stem in ("", "-june"):
        rows = csv.read_csv(place.folder / f"bank{stem}.csv")
        csv.write_csv(pa.concat_tables([rows, rows.slice(0, 150)]), place.folder / f"bank{stem}.csv")
    until_done(place)
    kept = load_file(place.folder / "runs" / "job-telco-1" / "checkpoint" / "telco" / "drawn.safetensors")["labels"]
    assert 120 < len(kept) < 240
    june = ("--round", "june", "--data")
    for _ in range(3):
        start(place, "telco", *june, "telco-june.csv")
        said = start(place, "bank", *june, "bank-june.csv", "--out", "june.parquet")
    assert (said["state"], said["rows"]) == ("done", 450)
    scored = parquet.read_table(place.folder / "june.parquet")
    assert [int(own) for own in scored["id"].to_pylist()] == csv.read_csv(place.folder / "bank-june.csv")[
        "id"
    ].to_pylist()


def test_a_month_by_hand_finds_the_latest_version(trained: Place) -> None:
    place = trained
    named = ("--as", "telco", "--local", "telco.yaml", "--plaintext", "--json")
    result = place.call("release", "job.yaml", *named, "--run", "runs/job-telco", "--out", "new.release")
    assert result.document()["rows"] == 240
    (place.folder / "runs" / "job-telco.latest").write_text("../telco\n")
    result = place.call("release", "job.yaml", *named, "--run", "runs/job-telco", "--out", "other.release")
    assert (result.code, "the name of a version of job-telco" in result.document()["error"]) == (2, True)


def test_a_partner_sets_the_limits_of_a_month_in_its_own_file(trained: Place) -> None:
    place = trained
    write_tables(place.folder, "-june", 1000, rows=3000)
    own = {**PRIVATE["telco"], "privacy": {"grade_dp": {"epsilon": 8.0}}}
    named = ("--as", "telco", "--local", "telco.yaml", "--plaintext", "--json", "--data", "telco-june.csv")
    for limit, code in ((0.01, 2), (0.99, 0)):
        (place.folder / "telco.yaml").write_text(as_yaml({**own, "fit": {**GRADES, "limits": {"other": limit}}}))
        result = place.call("release", "job.yaml", *named, "--run", "runs/job-telco", "--out", f"{limit}.release")
        assert result.code == code, result
        if code:
            assert "predict without telco, raise fit.limits in its private file" in result.document()["error"]
    shown = place.call("trail", "show", ".cutlayer/telco.key.trail").out
    assert re.findall("fit.limits: (.*)", shown)[-1] == "other 0.99"


def test_a_limit_of_a_column_that_is_no_feature_holds_by_courier(graded: Place) -> None:
    """In the training and in a month: its rows cross no more often than they are within it."""
    place, own = graded, {**PRIVATE["telco"], "privacy": {"grade_dp": {"epsilon": 8.0}}}
    write_tables(place.folder, "", 0, rows=3000)
    write_tables(place.folder, "-june", 3000, rows=3000)
    for stem in ("", "-june"):
        telco = csv.read_csv(place.folder / f"telco{stem}.csv")
        ill = pa.array(telco["calls"].to_numpy() > 0)
        csv.write_csv(telco.append_column("health", ill), place.folder / f"telco{stem}.csv")

    def limited(health: float) -> None:
        fit = {**GRADES, "limits": {"health": health, "other": 1.0}}
        private = {**own, "fit": fit, "features": {"exclude": ["health"]}}
        (place.folder / "telco.yaml").write_text(as_yaml(private))

    limited(0.01)
    for name in ("bank", "telco", "bank"):
        start(place, name)
    before = {*(place.folder / "shared").rglob("telco~*")}
    refused = start(place, "telco", code=2)
    assert "grades that carry 0.01 of an attribute of health at most" in refused["error"]
    assert {*(place.folder / "shared").rglob("telco~*")} == before
    limited(0.99)
    shutil.rmtree(place.folder / "shared")
    shutil.rmtree(place.folder / "runs")
    until_done(place)
    (folder,) = (place.folder / "runs").glob("job-telco*/checkpoint/telco/carried.json")
    assert json.loads(folder.read_text())["no_features"] == ["health"]
    named = ("--as", "telco", "--local", "telco.yaml", "--plaintext", "--json", "--data", "telco-june.csv")
    for limit, code in ((0.01, 2), (0.99, 0)):
        limited(limit)
        result = place.call("release", "job.yaml", *named, "--run", "runs/job-telco", "--out", f"{limit}.release")
        assert result.code == code, result
        assert not code or "0.01 of an attribute of health at most" in result.document()["error"]


def test_a_month_that_drifted_is_not_released_and_stays_known_as_drifted(trained: Place) -> None:
    place = trained
    write_tables(place.folder, "-june", 1000)
    text = (place.folder / "telco-june.csv").read_text().splitlines()
    shifted = [
        text[0],
        *(f"{row.split(',')[0]},{float(row.split(',')[1]) + 9},{row.split(',')[2]}" for row in text[1:]),
    ]
    (place.folder / "telco-june.csv").write_text("\n".join(shifted) + "\n")
    june, out = ("--round", "june"), ("--data", "bank-june.csv", "--out", "june.parquet", "--max-drift", "0.5")
    theirs = (*june, "--data", "telco-june.csv")
    start(place, "bank", *june, *out, code=5)
    start(place, "telco", *theirs, code=5)
    start(place, "bank", *june, *out, code=5)
    before = {*(place.folder / "shared").rglob("*")}
    for _ in range(2):
        refused = start(place, "telco", *theirs, "--max-drift", "0.5", code=6)
        assert "of calls at telco" in refused["error"]
    assert {*(place.folder / "shared").rglob("*")} == before, "the release did not leave"
    assert start(place, "telco", *theirs, code=0)["drift"][0]["psi"] > 0.5
    for limit, code in (("0.5", 6), ("0.5", 6), ("99", 0)):  # also of a round that has ended
        assert start(place, "telco", *theirs, "--max-drift", limit, code=code)["state"] == "done"
    for _ in range(2):  # what the label owner sees of it: the grades, and its scores, which are written
        assert start(place, "bank", *june, *out, code=6)["rows"] == 300
    assert parquet.read_table(place.folder / "june.parquet").num_rows == 300


def test_parties_that_connect_wait_for_each_other(graded: Place) -> None:
    """What they do together is in `tests/benchmarks/test_year.py`, in processes of their own."""
    place = graded
    assert "parties.bank.address, got none" in connect(place, "telco", 2)["error"]
    job = place.folder / "job.yaml"
    address = f"bank: {{address: '127.0.0.1:{free_port()}', role"
    job.write_text(job.read_text().replace("bank: {role", address))
    waiting = connect(place, "telco", 5)
    assert (waiting["from"], waiting["next"], waiting["written"]) == ("bank", "repeat", [])
    assert waiting["why"]
    waiting = connect(place, "bank", 5)
    assert (waiting["from"], waiting["why"], waiting["next"]) == ("telco", "it has not brought it", "repeat")
    assert not (place.folder / "runs" / "job-bank-1").exists()


def test_a_folder_that_is_not_there_is_named_while_its_file_is_waited_for(graded: Place) -> None:
    start(graded, "bank", code=5)
    named = ("--as", "telco", "--local", "telco.yaml", "--plaintext", "--folder")
    waiting = graded.call("exchange", "job.yaml", *named, "shard")
    assert (waiting.code, "there is no folder shard yet; did you mean 'shared'?" in waiting.out) == (5, True), waiting
    assert "there is no folder" not in graded.call("exchange", "job.yaml", *named, "shared").out


def connect(place: Place, name: str, code: int) -> dict[str, Any]:
    named = ("--as", name, "--local", f"{name}.yaml", "--plaintext", "--json", "--wait", "0")
    result = place.call("exchange", "job.yaml", *named)
    assert result.code == code, result
    answered: dict[str, Any] = result.document()
    return answered


def test_a_prediction_that_was_counted_and_not_written_counts_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = {"privacy": {"dp_embedding": {"clip": 1.0, "noise_multiplier": 2.0}}, "serving": 1, "fit": None}
    prepare(place, {"kind": "linear", "width": 4}, telco=noise)
    until_done(place)
    june = ("--round", "june")
    start(place, "bank", *june, "--out", "june.parquet", code=5)
    start(place, "telco", *june, code=5)
    start(place, "bank", *june, "--out", "june.parquet", code=5)
    release, kept = OpenPrediction.release, []

    def killed(prediction: OpenPrediction, *given: Any) -> Any:
        kept.append(release(prediction, *given))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(prediction_release.OpenPrediction, "release", killed)
        named = ("--as", "telco", "--local", "telco.yaml", "--folder", "shared", "--plaintext")
        assert place.call("exchange", "job.yaml", *named, *june).code == 130

    def watched(prediction: OpenPrediction, *given: Any) -> Any:
        kept.append(release(prediction, *given))
        return kept[-1]

    with monkeypatch.context() as patched:
        patched.setattr(prediction_release.OpenPrediction, "release", watched)
        start(place, "telco", *june, code=0)
    assert (kept[0] == kept[1]).all(), "the noise of the first start: a second draw would be a second release"
    log = log_of_run(place.folder / "runs" / "job-telco-1" / "checkpoint" / "telco").read_text()
    assert log.count('"reason":"serve"') == 1
    assert start(place, "bank", *june, "--out", "june.parquet", code=0)["rows"] == 300
    assert parquet.read_table(place.folder / "june.parquet").num_rows == 300
    start(place, "bank", "--round", "july", "--out", "july.parquet", code=5)
    start(place, "telco", "--round", "july", code=5)
    start(place, "bank", "--round", "july", "--out", "july.parquet", code=5)
    refused = start(place, "telco", "--round", "july", code=2)
    assert "prediction 2 was asked for, but 1 was planned" in refused["error"]


def test_options_that_do_not_fit(graded: Place) -> None:
    for options, error in {
        ("telco", "--round", "june", "--out", "x.csv"): "--out and --absent at bank alone",
        ("bank", "--round", "june"): "--out at bank, which has the predictions",
        ("bank", "--data", "bank.csv"): "--data, --out, --absent and --max-drift with --round",
        (
            "telco",
            "--round",
            "june",
            "--data",
            "tleco.csv",
        ): "--data tleco.csv: no such file; did you mean 'telco",
        ("bank", "--version", "../x"): "a name of up to 40 letters",
    }.items():
        assert error in start(graded, *options, code=2)["error"]
    assert not (graded.folder / "shared").exists()
