"""Runs are logged alike in the three ways of training, and a log that fails ends no run."""

from __future__ import annotations

import json
import os
import re
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cutlayer.cli.app import _run
from cutlayer.cli.logged import logged
from cutlayer.config.load import load_job
from cutlayer.consent import allowed
from cutlayer.errors import ConfigError, RunFolderError
from cutlayer.jobs.options import Progress
from cutlayer_loggers import logged_run as module
from cutlayer_loggers.base import Background, Log
from cutlayer_loggers.mlflow_log import MlflowLog
from cutlayer_loggers.tensorboard_log import TensorBoardLog
from tests.cli.jobs import JOB, Place, audit_briefly, changed
from tests.parties.interruptions import history
from tests.parties.processes import fork, lay_out
from tests.parties.runs import ACTIVE, KEY, raw_job, tables

needs_tensorboard = pytest.mark.skipif(find_spec("tensorboardX") is None, reason="no tensorboardX (extra tensorboard)")
needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="no mlflow-skinny (extra mlflow)")
ONCE: Mapping[str, Any] = {"train": {"release": "once", "seed": 1}, "model": {"top": {"kind": "linear"}}}
CALLS = "cutlayer_loggers.tensorboard_log.TensorBoardLog"


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    audit_briefly(monkeypatch)
    return Place(tmp_path, capsys)


def events(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, str]]:
    """Scalars by tag, as (epoch, value), and texts by tag, of all event files of a folder."""
    from tensorboardX.proto.event_pb2 import Event

    scalars: dict[str, list[tuple[int, float]]] = {}
    texts: dict[str, str] = {}
    for path in sorted(folder.glob("events*")):
        content, start = path.read_bytes(), 0
        while start < len(content):
            (length,) = struct.unpack_from("<Q", content, start)
            event = Event.FromString(content[start + 12 : start + 12 + length])
            start += length + 16
            for value in event.summary.value:
                if value.HasField("tensor"):
                    texts[value.tag] = value.tensor.string_val[0].decode()
                else:
                    scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    return scalars, texts


def only(folder: Path) -> Path:
    [run] = folder.iterdir()
    return run


def check_curves(folder: Path, run: Path, epochs: int, part: str = "validation") -> None:
    """The event files of one run against its history and its report."""
    scalars, texts = events(only(folder))
    lines, report = history(run), json.loads((run / "report.json").read_text())
    assert len(lines) == epochs
    for tag, wanted in {
        "loss": [line["loss"] for line in lines],
        f"{part}/auc": [line["metrics"]["auc"] for line in lines],
        "worst_leak": [max(line["leak"].values()) for line in lines if line["leak"]],
    }.items():
        known = [value for value in wanted if value is not None]
        assert [value for _, value in scalars.get(tag, [])] == pytest.approx(known, abs=1e-6), tag
    assert [epoch for epoch, _ in scalars[f"{part}/auc"]] == list(range(1, epochs + 1))
    [row] = [row for row in report["utility"]["rows"] if row["name"] == "this run"]
    [(epoch, value)] = scalars["final/auc"]
    assert (epoch, value) == (epochs, pytest.approx(row["metrics"]["auc"], abs=1e-6))
    assert "| `train.seed` |" in texts["settings/text_summary"]
    assert texts["state/text_summary"] == "FINISHED"
    assert "<h1" in (only(folder) / "report.html").read_text()


@needs_tensorboard
def test_a_run_in_one_process(place: Place) -> None:
    """Its losses are those of the run without a log, to the last bit, and nothing of a row is logged."""
    (place.folder / "key").write_bytes(KEY)
    (place.folder / "key").chmod(0o600)
    for party in ("bank", "telco"):
        place.rows(party, lambda _, row: [f"id{row[0]}x", *row[1:]])
    protected = {"parties.bank.privacy": {"label_dp": {"eps": 2.0}}}
    place.change(protected)
    assert place.call("run", "job.yaml", "--quiet", "--key", "key", "--out", "plain").code == 0
    place.change(protected | {"compare": ["undefended"], "parties.bank.log": {"tensorboard": "curves"}})
    assert place.call("run", "job.yaml", "--quiet", "--key", "key").code == 0
    check_curves(place.folder / "curves", place.run_folder, 2)
    assert events(only(place.folder / "curves"))[0]["guarantee/epsilon/bank/labels"] == [(2, 2.0)]
    with_log, without = history(place.run_folder), history(place.folder / "plain")
    assert [line["loss"] for line in with_log] == [line["loss"] for line in without]
    check_rows_are_not_logged(place)


def check_rows_are_not_logged(place: Place) -> None:
    """No id of the tables, and no prediction of a test row to the last digit."""
    import pyarrow.parquet as pq

    scores = pq.read_table(place.run_folder / "predictions.parquet").to_pydict()
    written = b"".join(path.read_bytes() for path in only(place.folder / "curves").iterdir())
    assert not re.search(rb"id\d+x", written)
    exact = [str(value) for values in scores.values() for value in values if isinstance(value, float)]
    assert exact
    assert not [value for value in exact if value.encode() in written]


@needs_tensorboard
def test_a_release_once_is_fitted_in_one_epoch(place: Place) -> None:
    place.write({**changed(JOB, {"parties.bank.log": {"tensorboard": "curves"}}), **ONCE})
    assert place.call("run", "job.yaml", "--quiet").code == 0
    check_curves(place.folder / "curves", place.run_folder, 1, "cross-validation")
    assert events(only(place.folder / "curves"))[0]["guarantee/epsilon/bank/labels"] == [(1, 0.0)]


@needs_tensorboard
def test_parties_between_processes(tmp_path: Path) -> None:
    raw = raw_job()
    raw["parties"][ACTIVE]["log"] = {"tensorboard": "curves"}
    sites = lay_out(tmp_path, raw, tables())
    processes = {name: fork(site) for name, site in sites.items()}
    assert {process.wait() for process in processes.values()} == {0}
    check_curves(sites[ACTIVE].folder / "curves", sites[ACTIVE].run, 2)
    assert [path.name for path in tmp_path.glob("*/curves")] == ["curves"]


@needs_tensorboard
def test_a_resumed_run_continues_its_folder(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.change({"parties.bank.log": {"tensorboard": "curves"}})
    monkeypatch.setattr(module, "epoch_values", _interrupting(module.epoch_values))
    assert place.call("run", "job.yaml", "--quiet").code == 130
    assert events(only(place.folder / "curves"))[1]["state/text_summary"] == "KILLED"
    monkeypatch.undo()
    assert place.call("run", place.file, "--quiet", "--resume").code == 0
    scalars, texts = events(only(place.folder / "curves"))
    assert texts["state/text_summary"] == "FINISHED"
    assert {epoch for epoch, _ in scalars["loss"]} == {1, 2}
    assert [epoch for epoch, _ in scalars["final/auc"]] == [2]


def _interrupting(values: Callable[[Any], dict[str, float]]) -> Callable[[Any], dict[str, float]]:
    def interrupt(record: Any) -> dict[str, float]:
        if record.epoch == 1:
            raise KeyboardInterrupt
        return values(record)

    return interrupt


@needs_tensorboard
def test_a_resume_within_a_second_keeps_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorboardX.event_file_writer.time.time", lambda: 1_700_000_000.0)
    name = None
    for epoch in (1, 2):
        log = TensorBoardLog(tmp_path)
        name = log.begin("job", "run", {}, name)
        log.write({"loss": 0.5}, epoch)
        log.end("KILLED")
    assert events(tmp_path / str(name))[0]["loss"] == [(1, 0.5), (2, 0.5)]


@needs_tensorboard
@pytest.mark.parametrize("name", ["../elsewhere", "{}/elsewhere", ".", "link"])
def test_a_resume_writes_into_no_folder_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "curves").mkdir()
    (tmp_path / "curves" / "link").symlink_to(tmp_path)
    with pytest.raises(RunFolderError, match="expected a folder in"):
        TensorBoardLog(tmp_path / "curves").begin("job", "run", {}, name.format(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["curves"]


@needs_tensorboard
@pytest.mark.parametrize("method", ["begin", "write", "attach", "end"])
def test_a_log_that_fails_ends_no_run(place: Place, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def gone(*_: object) -> None:
        raise ConnectionError("the server is gone\nand more")

    monkeypatch.setattr(f"{CALLS}.{method}", gone)
    place.change({"parties.bank.log": {"tensorboard": "curves"}, "parties.bank.audit": {"every": "never"}})
    result = place.call("run", "job.yaml", "--quiet")
    assert result.code == 0
    assert result.err.count("warning parties.bank.log.tensorboard: nothing more is logged, the run goes on") == 1
    assert "(the server is gone); its folder holds all results" in result.err
    assert (place.run_folder / "report.html").exists()


@needs_tensorboard
def test_results_that_cannot_be_made_for_the_log_end_no_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_html", full)
    place.change({"parties.bank.log": {"tensorboard": "curves"}, "parties.bank.audit": {"every": "never"}})
    result = place.call("run", "job.yaml", "--quiet")
    assert result.code == 0
    assert "nothing more is logged, the run goes on ([Errno 28] No space left" in result.err


def test_a_log_that_does_not_answer_ends_no_run() -> None:
    waiting = threading.Event()
    background = Background("parties.bank.log.mlflow")
    background.call(waiting.wait)
    started = time.monotonic()
    with pytest.warns(UserWarning, match=r"the run goes on \(no answer for 0.05 s\)"):
        background.close(0.05)
    assert time.monotonic() - started < 30
    waiting.set()


def test_calls_are_made_in_their_order() -> None:
    made: list[int] = []
    background = Background("log")
    for number in range(50):
        background.call(lambda number=number: made.append(number))
    background.close(30)
    assert made == list(range(50))


def test_without_the_package_the_job_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.config.extras.find_spec", lambda name: None)
    place.change({"parties.bank.log": {"tensorboard": "curves"}})
    place.refused(
        "expected the extra `tensorboard` for parties.bank.log.tensorboard, got no cutlayer_loggers, "
        "tensorboardX; pip install 'cutlayer[tensorboard]', or in a checkout pip install "
        "'./plugins/loggers[tensorboard]'"
    )


@pytest.mark.parametrize("mlflow", ["mlruns", "databricks", "sqlite:///runs.db"])
def test_a_folder_and_a_file_are_relative_to_the_job(place: Place, mlflow: str) -> None:
    place.change({"parties.bank.log": {"mlflow": mlflow}})
    with allowed(hosts=["databricks"]):
        log = load_job(place.file).parties["bank"].log
    assert log is not None
    inside = {"mlruns": f"{place.folder}/mlruns", "sqlite:///runs.db": f"sqlite:///{place.folder}/runs.db"}
    assert log.mlflow == inside.get(mlflow, mlflow)


@needs_mlflow
@pytest.mark.parametrize("folder", ["mlruns", "file:./mlruns"])
def test_a_store_that_mlflow_refuses_is_refused_before_the_run(
    place: Place, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    place.change({"parties.bank.log": {"mlflow": folder}})
    place.refused("parties.bank.log.mlflow as a server, or sqlite:/// with a file, got a folder, which MLflow refuses")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert place.call("check", "job.yaml").code == 0


def test_an_empty_address_is_refused(place: Place) -> None:
    place.change({"parties.bank.log": {"mlflow": ""}})
    place.refused("parties.bank.log.mlflow: expected an address such as https://mlflow.example:5000")


def test_a_passive_party_has_nothing_to_log(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.config.extras.find_spec", lambda name: name)
    place.change({"parties.telco.log": {"tensorboard": "curves"}})
    place.refused("expected no parties.telco.log at a passive party, which has neither curves nor a report, got one")


def test_a_run_without_a_log_is_followed_by_nothing(tmp_path: Path) -> None:
    from cutlayer.config import Job, validated

    progress = Progress()
    with logged(validated(Job, JOB, ""), "bank", tmp_path, progress) as watched:
        assert watched is progress


def test_every_log_has_all_calls() -> None:
    """A log that lacks one would fail in the thread only."""
    assert {"begin", "write", "attach", "end"} == Log.__abstractmethods__
    with pytest.raises(ConfigError, match="in it, got neither"):
        _validated_log({})


def _validated_log(raw: Mapping[str, Any]) -> object:
    from cutlayer.config import validated
    from cutlayer.config.log import LogConfig

    return validated(LogConfig, raw, "log")


@needs_mlflow
def test_mlflow_has_the_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In MLflow's own store of files, read back by its client."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    place.change({"name": "credit", "parties.bank.log": {"mlflow": "mlruns"}})
    assert place.call("run", "job.yaml", "--quiet").code == 0
    from mlflow import MlflowClient

    client = MlflowClient(str(place.folder / "mlruns"))
    experiment = client.get_experiment_by_name("credit")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "job")
    assert run.data.params["train.seed"] == "1"
    losses = [metric.value for metric in client.get_metric_history(run.info.run_id, "loss")]
    assert losses == [line["loss"] for line in history(place.run_folder)]
    report = json.loads((place.run_folder / "report.json").read_text())
    assert run.data.metrics["final/auc"] == report["utility"]["rows"][0]["metrics"]["auc"]
    assert [each.path for each in client.list_artifacts(run.info.run_id)] == ["report.html"]
    assert json.loads((place.run_folder / "log-mlflow.json").read_text()) == {"run": run.info.run_id}


@pytest.mark.parametrize(
    ("uri", "artefacts", "fits"),
    [
        ("/job/runs", "file:///job/runs/1/2/artifacts", True),
        ("sqlite:////job/m.db", "/job/m.db.artefacts/2/artifacts", True),
        ("/job/runs", "/job/runs/../../etc", False),
        ("/job/runs", "/job/runs/%2e%2e/%2e%2e/etc", False),
        ("/job/runs", "http://other.example/x", False),
        ("/job/runs", "s3://bucket/x", False),
        ("/job/runs", "mlflow-artifacts:/x", False),
        ("https://m.example", "mlflow-artifacts:/1/2/artifacts", True),
        ("https://m.example", "mlflow-artifacts://m.example/1", True),
        ("https://m.example", "s3://bucket/x", True),
        ("https://m.example", "mlflow-artifacts://other.example/1", False),
        ("https://m.example", "https://other.example/x", False),
        ("https://m.example", "file:///home/me", False),
        ("https://m.example", "/home/me", False),
    ],
)
def test_artefacts_stay_at_the_tracking_uri(uri: str, artefacts: str, fits: bool) -> None:
    log = MlflowLog(uri)
    with nullcontext() if fits else pytest.raises(ConfigError, match="expected artefacts at"):
        log._check_artefacts(artefacts)


@needs_mlflow
def test_a_store_that_came_with_a_job_sends_the_report_nowhere(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    elsewhere = place.folder / "elsewhere"
    MlflowClient(str(place.folder / "mlruns")).create_experiment("credit", str(elsewhere))
    place.change({"name": "credit", "parties.bank.log": {"mlflow": "mlruns"}})
    result = place.call("run", "job.yaml", "--quiet")
    assert result.code == 0
    assert "nothing more is logged, the run goes on (expected artefacts at" in result.err
    assert not elsewhere.exists()


@needs_mlflow
def test_mlflow_whose_server_is_gone_ends_no_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    place.change(
        {"parties.bank.log": {"mlflow": "http://127.0.0.1:9"}, "parties.bank.audit": {"every": "never"}}
    )  # discard: nothing listens
    result = place.call("run", "job.yaml", "--quiet", "--allow-host", "127.0.0.1")
    assert result.code == 0
    assert "warning parties.bank.log.mlflow: nothing more is logged, the run goes on" in result.err
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert _run(["report", str(place.run_folder), "--json"]) == 0
