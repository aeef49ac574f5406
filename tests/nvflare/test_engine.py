"""Executor and controller with NVFlare's own classes, and real parties; only its server and its wires are missing."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from cutlayer import cli
from cutlayer.config import Job, validated
from cutlayer.config.load import dump_job, load_closed_job
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer_nvflare import process
from cutlayer_nvflare.export import CHECK, START, TRAIN, export_job
from cutlayer_nvflare.route import Route
from tests.cli.jobs import JOB, changed, write_tables

if TYPE_CHECKING:
    from tests.nvflare.workspaces import Engine, Site

pytestmark = pytest.mark.skipif(find_spec("nvflare") is None, reason="needs the extra nvflare")
SITES = {"bank": "site-1", "telco": "site-2"}
UNAUDITED = {"parties.bank.audit": {"every": "never"}, "parties.telco.audit": {"every": "never"}}
PRIVATE: Mapping[str, Mapping[str, Any]] = {
    "bank": {"privacy": {"label_dp": {"eps": 3.0}}},
    "telco": {
        "fit": {"kind": "grade", "epsilon": 8.0, "least_z": 0, "limits": {"other": 1.0, "plan": 0.9}},
        "features": {"exclude": ["plan"], "numbers": {"scale": "none", "missing": "zero"}},
        "privacy": {"grade_dp": {"epsilon": 4.0}},
    },
}
GRADED = {
    **{f"parties.{name}.{key}": value for name, section in PRIVATE.items() for key, value in section.items()},
    "model.bottom": {"bank": {"kind": "auto"}, "telco": {"kind": "grade", "least_rows": 0}},
    "model.top": {"kind": "linear", "folds": 1},
    "train.release": "once",
}


@pytest.fixture(scope="module")
def nv() -> Any:
    """The module that imports NVFlare."""
    from tests.nvflare import workspaces

    return workspaces


class Forked:
    """Stands for `subprocess.Popen`: `cutlayer` in a process forked from one that has imported everything.

    A new interpreter takes four seconds to import what a party computes with.
    """

    def __init__(self, command: list[str], *, stdout: Any, **_: Any) -> None:
        from tests.parties.processes import forked

        document = Path(f"/proc/self/fd/{stdout.fileno()}").readlink()
        pipe = document.with_suffix(".pipe")
        os.mkfifo(pipe)
        self._process = forked(as_command, command[command.index("cutlayer") + 1 :], document, pipe)
        self.stderr = pipe.open()
        self.returncode = -1

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.returncode = self._process.wait()
        self.stderr.close()

    def terminate(self) -> None:
        self._process.signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()


def as_command(arguments: list[str], document: Path, pipe: Path) -> None:
    """The command line, which writes to a file and to a pipe."""
    for number, file in ((1, document), (2, pipe)):
        os.dup2(os.open(file, os.O_WRONLY), number)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)  # that of the process seeks, as no pipe does
    sys.argv = ["cutlayer", *arguments]
    cli.main()


@pytest.fixture
def sites(nv: Any, kits: Path, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Site, Site, Engine]:
    """Two sites that have agreed to a job; with the parameter `graded` to one with grades of a private fit."""
    write_tables(tmp_path)
    graded = getattr(request, "param", "") == "graded"
    job = validated(Job, changed(JOB, UNAUDITED | (GRADED if graded else {})), "")
    export_job(job, tmp_path / "job", SITES, route=Route.HUB)
    engine = nv.Engine()
    bank, telco = (nv.Site(kits, site, tmp_path, tmp_path / "job", engine) for site in SITES.values())
    for site, name, label in ((bank, "bank", {"label": "default"}), (telco, "telco", {})):
        section = {"table": f"{tmp_path}/{name}.csv", "id": "id", "audit": {"every": "never"}, **label}
        site.own.joinpath("party.yaml").write_text(json.dumps(section | (PRIVATE[name] if graded else {})))
    return bank, telco, engine


@pytest.mark.slow
@pytest.mark.parametrize("sites", ["steps", "graded"], indirect=True)
def test_a_job_over_the_hub_equals_one_process_to_the_last_bit(
    nv: Any,
    sites: tuple[Site, Site, Engine],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cutlayer.cli.app import _run

    monkeypatch.setattr(process, "subprocess", SimpleNamespace(Popen=Forked, DEVNULL=DEVNULL, PIPE=PIPE))
    bank, telco, engine = sites
    graded = request.node.callspec.params["sites"] == "graded"
    checked = [site.task(CHECK) for site in (bank, telco)]
    assert [answer["party"] for answer in checked] == ["bank", "telco"]
    started = bank.task(START)
    assert started.get("address", "").startswith("127.0.0.1:"), started
    answers: dict[str, Any] = {}
    waiting = threading.Thread(target=lambda: answers.update(bank=bank.task(TRAIN)))
    waiting.start()
    answers["telco"] = telco.task(TRAIN, fingerprint=checked[0]["fingerprint"])
    waiting.join(60)
    assert {name: answer["error"] for name, answer in answers.items()} == {"bank": "", "telco": ""}
    assert answers["telco"]["route"] == "hub"
    crossed = b"".join(engine.crossed)
    assert len(crossed) > (2_000 if graded else 20_000)
    assert b"embedding" not in crossed
    key = ["--key", str(bank.own / "noise.key")]
    whole = validated(Job, changed(JOB, UNAUDITED | (GRADED if graded else {})), "")
    (tmp_path / "whole.yaml").write_text(dump_job(whole))
    assert _run(["run", str(tmp_path / "whole.yaml"), "--out", str(tmp_path / "whole"), "--json", *key]) == 0
    folders = RunFolder(bank.own / "runs" / nv.RUN), RunFolder(tmp_path / "whole")
    if graded:
        sent = [
            load_file(folder / "checkpoint" / "telco" / "released.safetensors")["released"]
            for folder in (telco.own / "runs" / nv.RUN, tmp_path / "whole")
        ]
        assert torch.equal(*sent)
        for folder in (telco.own / "runs" / nv.RUN, tmp_path / "whole"):  # the limit of a column that is no feature
            carried = json.loads((folder / "checkpoint" / "telco" / "carried.json").read_text())
            assert carried["no_features"] == ["plan"]
            assert "plan" in {each["column"] for each in carried["attributes"]}
        metrics = [folder.summary.utility.row(RunKind.THIS_RUN).metrics for folder in folders]
        assert metrics[0] == metrics[1]
        return
    losses = [[line["loss"] for line in folder.history()] for folder in folders]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2


def test_a_site_that_did_not_agree_says_so_and_starts_nothing(nv: Any, sites: tuple[Site, Site, Engine]) -> None:
    bank, telco, _ = sites
    changed_job = load_closed_job(telco.own / "job.yaml")
    longer = changed_job.model_copy(update={"train": changed_job.train.model_copy(update={"epochs": 1})})
    (telco.own / "job.yaml").write_text(dump_job(longer))
    noted: list[str] = []
    telco.executor.logger = SimpleNamespace(info=noted.append, warning=lambda *_, **__: None)
    error = telco.task(CHECK)["error"]
    assert error == "other job than the one site-2 agreed to, which differs in train.epochs; see the site's log"
    assert noted == ["compared with the submitted job: train.epochs: 1 here, 2 there"]
    assert telco.task(TRAIN) == {"error": "the job was not checked"}
    assert bank.task("another") == nv.ReturnCode.TASK_UNKNOWN
    (bank.own / "party.yaml").unlink()
    assert "party.yaml in the site's folder local, got none" in bank.task(CHECK)["error"]


def test_a_passive_site_is_not_started_first(sites: tuple[Site, Site, Engine]) -> None:
    """Its tunnel would lead where the server and the active party say."""
    _, telco, _ = sites
    assert "error" not in telco.task(CHECK)
    assert telco.task(START) == {"error": "only the active party is started before the others"}


def test_a_site_is_started_once_and_opens_one_way(sites: tuple[Site, Site, Engine]) -> None:
    """A hub that asks again and again would else have the site listen at as many ports."""
    _, telco, _ = sites
    telco.task(CHECK)
    telco.executor._process = SimpleNamespace(stop=lambda: None)
    assert "one start of the party in a job, got another" in telco.task(TRAIN, fingerprint="x")["error"]
    assert telco.executor._tunnel is None


@pytest.mark.parametrize("sent", ["[]", "{", "5", None, 7])
def test_a_task_in_another_form_is_an_answer(nv: Any, sites: tuple[Site, Site, Engine], sent: Any) -> None:
    _, telco, _ = sites
    task = nv.Shareable()
    task[nv.PAYLOAD] = sent
    answer = telco.executor.execute(CHECK, task, telco.context, telco.abort)
    assert "a task as this version's controller sends it" in answer[nv.PAYLOAD]


def test_messages_of_strangers_are_refused(nv: Any, sites: tuple[Site, Site, Engine]) -> None:
    bank, _, engine = sites
    request = nv.Shareable()
    request["connection"], request["number"], request["content"] = "0" * 16, 0, b"x"
    assert engine.carry("site-2", "site-1", "t", request)["taken"] is False  # nothing was checked yet
    bank.task(CHECK)
    bank.executor._opened_tunnel().lead_to("127.0.0.1", 1)
    assert engine.carry("server", "site-1", "t", request)["taken"] is False
    bank.executor._end(nv.EventType.END_RUN, bank.context)


def test_nvflare_accepts_the_job_folder(tmp_path: Path) -> None:
    from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
    from nvflare.private.fed.server.job_meta_validator import JobMetaValidator

    export_job(validated(Job, JOB, ""), tmp_path / "job", SITES)
    packed = zip_directory_to_bytes(str(tmp_path), "job")
    valid, error, _ = JobMetaValidator().validate("job", packed)
    assert (valid, error) == (True, "")


def test_the_reason_of_a_failure_names_its_cause_first(nv: Any) -> None:
    lost = {"site-1": {"error": "lost telco: no answer"}, "site-2": {"error": "it ended with exit code 2"}}
    result = "site-2: it ended with exit code 2; site-1: lost telco: no answer"
    assert nv.failure_reason(lost, ["site-1", "site-2"]) == result
    assert nv.failure_reason({"site-1": {"error": ""}}, ["site-1", "site-2"]) == "site-2 did not answer"
    assert nv.failure_reason({"site-1": {"error": ""}}, ["site-1"]) == ""


@pytest.mark.parametrize(
    ("may_leave", "telco", "reason"),
    [
        ((), {"error": "lost bank: gone"}, "site-2: lost bank: gone"),
        (("site-2",), {"error": "lost bank: gone"}, ""),
        (("site-2",), None, ""),
        ((), None, "site-2 did not answer"),
    ],
)
def test_a_party_that_may_leave_does_not_end_the_job(
    nv: Any, monkeypatch: pytest.MonkeyPatch, may_leave: tuple[str, ...], telco: Any, reason: str
) -> None:
    def ask(self: Any, name: str, sites: list[str], *_: Any) -> dict[str, Any]:
        good = {site: {"error": "", "fingerprint": "f"} for site in sites}
        if name == TRAIN:
            good.pop("site-2")
            good |= {"site-2": telco} if telco else {}
        return good

    monkeypatch.setattr(nv.CutlayerController, "_ask", ask)
    controller = nv.CutlayerController("site-1", ["site-2"], may_leave)
    assert controller._flow(nv.Signal(), nv.FLContext()) == reason


@pytest.mark.parametrize("sent", ["[" * 100_000, "[]", "5", None])
def test_a_site_that_answers_anything_fails_the_task_alone(nv: Any, sent: Any) -> None:
    controller = nv.CutlayerController("site-1", ["site-2"])
    result = nv.Shareable()
    result[nv.PAYLOAD] = sent
    answers: dict[str, Any] = {}
    task = SimpleNamespace(client=SimpleNamespace(name="site-2"), result=result)
    controller._answered(answers, task, nv.FLContext())
    assert answers == {"site-2": {"error": "it answered something else"}}


def test_a_sites_error_steers_no_terminal_and_forges_no_line_of_a_log(nv: Any) -> None:
    answers: dict[str, Any] = {}
    for sent in ("\x1b[2Jdone\n2026-11-30 cutlayer: good\u202e", ["\x1b"], {"a": "\n" * 9}, "\n", "x" * 10**6):
        result = nv.Shareable()
        result[nv.PAYLOAD] = json.dumps({"error": sent})
        task = SimpleNamespace(client=SimpleNamespace(name="site-2"), result=result)
        nv.CutlayerController("site-1", ["site-2"])._answered(answers, task, nv.FLContext())
        error = answers["site-2"]["error"]
        assert 0 < len(error) <= 600
        assert error.isprintable()


def test_an_active_site_without_a_fingerprint_does_not_end_the_controller(
    nv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def ask(self: Any, name: str, sites: list[str], request: Any, *_: Any) -> dict[str, Any]:
        asked.append(request)
        return {site: {"error": "", "fingerprint": 5} if site == "site-2" else {"error": ""} for site in sites}

    monkeypatch.setattr(nv.CutlayerController, "_ask", ask)
    assert nv.CutlayerController("site-1", ["site-2"])._flow(nv.Signal(), nv.FLContext()) == ""
    assert asked[-1] == {"fingerprint": ""}
