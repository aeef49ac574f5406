"""A job from somebody else: no verb imports or runs what it names without consent on this machine."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from cutlayer.attacks.completion.base import CompletionAttack, CompletionTraining
from cutlayer.errors import ConfigError
from cutlayer.estimator import VerticalClassifier
from tests.cli.jobs import JOB, Place, as_yaml, changed

SPY = """
from pathlib import Path
import torch
from torch import nn

Path(__file__).with_name("imported").touch()

class Bottom(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.width, self.layer = 3, nn.LazyLinear(3)
        self.layer(torch.zeros(1, inputs.numbers))

    def forward(self, codes, numbers):
        return self.layer(numbers)
"""
USER = {"kind": "python", "path": "cli_consent_spy:Bottom"}
ATTACKS = {"attacks": ["model_completion"]}
BRIEFLY = ("--attack", "norm")
"""An audit that is not of what the attacks find."""
REFUSED = "expected consent before"


def program(folder: Path) -> dict[str, object]:
    """A section that makes a file by a program, as soon as something imports and calls it."""
    script = f"import pathlib; pathlib.Path({str(folder / 'ran')!r}).touch()"
    return {"kind": "python", "path": "subprocess:Popen", "args": {"args": [sys.executable, "-c", script]}}


@pytest.fixture
def spy(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A job beside a user's module that leaves a mark when it is imported."""
    modules = place.folder / "modules"
    modules.mkdir()
    (modules / "cli_consent_spy.py").write_text(SPY)
    monkeypatch.syspath_prepend(modules)
    monkeypatch.delitem(sys.modules, "cli_consent_spy", raising=False)
    place.change({"model.bottom": USER, "parties.bank.audit": ATTACKS})
    short = CompletionTraining(min_steps=1, max_steps=2, unlabelled_steps=2)
    monkeypatch.setattr(CompletionAttack.__init__, "__defaults__", (None, short))
    return place


def imported(place: Place) -> bool:
    return "cli_consent_spy" in sys.modules or (place.folder / "modules" / "imported").exists()


@pytest.mark.parametrize("where", ["model.top", "model.bottom"])
@pytest.mark.parametrize("options", [(), ("--allow-model", "subprocess")], ids=["no consent", "consent"])
def test_a_job_that_names_a_program_runs_none(
    place: Place, monkeypatch: pytest.MonkeyPatch, where: str, options: tuple[str, ...]
) -> None:
    place.change({where: program(place.folder)})
    imports = []
    monkeypatch.setattr("cutlayer.plugins.importlib.import_module", imports.append)
    if options:
        monkeypatch.undo()
        monkeypatch.chdir(place.folder)
        place.refused("expected subprocess:Popen to be a subclass of nn.Module, got the class Popen", options=options)
    else:
        place.refused(REFUSED, f"{where}", "imports subprocess:Popen, got none", "--allow-model subprocess")
    assert not imports
    assert not (place.folder / "ran").exists()


@pytest.mark.parametrize("name", ["bank", "telco"])
def test_a_party_runs_no_program_of_the_shared_job(place: Place, name: str) -> None:
    shared = {
        "bank": {"role": "active", "address": "127.0.0.1:1"},
        "telco": {"role": "passive"},
    }
    where = "model.top" if name == "bank" else "model.bottom"
    place.write(changed(JOB, {"parties": shared, where: program(place.folder)}))
    private = {"table": f"{name}.csv", "id": "id"} | ({"label": "default"} if name == "bank" else {})
    (place.folder / "party.yaml").write_text(as_yaml(private))
    for resume in ((), ("--resume",)):
        result = place.call(
            "party", place.file, "--plaintext", "--as", name, "--local", "party.yaml", "--timeout", "1", *resume
        )
        assert (result.code, result.out) == (2, "")
        assert "imports subprocess:Popen, got none" in result.error
        assert "allow_models: [subprocess]" in result.error
    assert not (place.folder / "ran").exists()


def test_a_party_needs_consent_only_for_what_it_builds(place: Place) -> None:
    shared = {
        "bank": {"role": "active", "address": "127.0.0.1:1"},
        "telco": {"role": "passive"},
    }
    bottoms = {"bank": {"kind": "mlp"}, "telco": program(place.folder)}
    place.write(changed(JOB, {"parties": shared, "model.bottom": bottoms}))
    (place.folder / "party.yaml").write_text(as_yaml({"table": "bank.csv", "id": "id", "label": "default"}))
    result = place.call("party", place.file, "--plaintext", "--as", "bank", "--local", "party.yaml", "--timeout", "0.2")
    assert "imports" not in result.error
    assert not (place.folder / "ran").exists()


def test_no_verb_imports_without_consent(spy: Place) -> None:
    spy.refused(REFUSED, "imports cli_consent_spy:Bottom, got none")
    result = spy.call("sweep", spy.file, "--vary", "train.optimizer.lr=0.1,0.2")
    assert result.code == 2
    assert "imports cli_consent_spy:Bottom, got none" in result.error
    assert not imported(spy)


def test_consent_in_the_job_itself_counts_for_nothing(spy: Place) -> None:
    for path in ("allow_models", "parties.telco.allow_models"):
        spy.change({"model.bottom": USER, path: ["cli_consent_spy"]})
        result = spy.refused("allow_models")
        assert "parties" not in path or "no allow_models in a job, got one; use --allow-model" in result
    assert not imported(spy)


def test_check_shows_what_it_imports(spy: Place) -> None:
    allowed = ("--allow-model", "cli_consent_spy")
    assert spy.call("check", spy.file, "--json", *allowed).document()["imports"] == {
        "model.bottom (bank)": "cli_consent_spy:Bottom",
        "model.bottom (telco)": "cli_consent_spy:Bottom",
    }
    shown = " ".join(spy.call("check", spy.file, *allowed).out.split())
    assert "imports cli_consent_spy:Bottom for model.bottom (telco)" in shown


def test_a_foreign_run_folder_is_read_and_imports_nothing(spy: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = ("--allow-model", "cli_consent_spy")
    assert spy.call("run", spy.file, "--json", *allowed).code == 0
    assert imported(spy)
    (spy.folder / "modules" / "imported").unlink()
    monkeypatch.delitem(sys.modules, "cli_consent_spy")
    shutil.move(spy.run_folder, spy.folder / "foreign")
    assert spy.call("report", "foreign", "--json").code == 0
    result = spy.call("audit", "foreign")
    assert result.code == 2
    assert "imports cli_consent_spy:Bottom, got none" in result.error
    resumed = spy.call("run", spy.file, "--out", "foreign", "--resume")
    assert resumed.code == 2
    assert not imported(spy)
    assert spy.call("audit", "foreign", "--json", *allowed).code == 0
    assert imported(spy)


def test_a_class_named_in_python_is_consent_to_it_alone(spy: Place) -> None:
    rows = np.random.default_rng(0).normal(size=(300, 2))
    tables = {"bank": rows, "telco": rows}
    labels = (rows[:, 0] > 0).astype(int)
    sizes = {"release": "every_step", "epochs": 1, "batch_size": 64, "attacks": ["norm"]}
    with pytest.raises(ConfigError, match=r"subclass of nn\.Module, got the class Popen"):
        VerticalClassifier("bank", bottom=program(spy.folder), **sizes).fit(tables, labels)
    assert not (spy.folder / "ran").exists()
    assert not imported(spy)
    fitted = VerticalClassifier("bank", bottom=USER, **sizes).fit(tables, labels)
    assert imported(spy)
    assert len(fitted.predict(tables)) == 300


@pytest.mark.parametrize("name", ["../../elsewhere", "..", "/etc", "a/b", "a\\b", "", ".hidden", "x\n"])
def test_a_foreign_run_folder_leads_to_no_other(finished: Path, place: Place, name: str) -> None:
    path = finished / "audit.json"
    audit = json.loads(path.read_text())
    audit["runs"][name] = audit["runs"]["undefended"]
    path.write_text(json.dumps(audit))
    for verb in ("report", "audit") if name == ".." else ("report",):  # both read the file alike
        result = place.call(verb, finished)
        assert result.code == 2
        assert f"expected names of compared runs in {finished}, got {name!a}" in result.error


@pytest.mark.parametrize("verb", ["report", "audit", "predict", "export", "ledger", "trail"])
def test_a_foreign_run_folder_runs_no_query_and_sends_nothing(finished: Path, place: Place, verb: str) -> None:
    """The job of a folder that somebody sent names this user's database and a server."""
    database = place.folder / "customers.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table customers (id text)")
    foreign = place.folder / "foreign"
    shutil.copytree(finished, foreign)
    (place.folder / "q.sql").write_text("drop table customers")
    raw = YAML(typ="safe").load((foreign / "job.yaml").read_text())
    bank = raw["parties"]["bank"]
    bank["table"] = {"path": str(place.folder / "q.sql"), "url": f"sqlite:///{database}"}
    bank["secret"], bank["log"] = str(place.folder / "made.key"), {"mlflow": str(place.folder / "runs-of-mlflow")}
    (foreign / "job.yaml").write_text(as_yaml(raw))
    options = {"predict": ("--out", "s.csv"), "export": ("--as", "bank", "--out", "part"), "audit": BRIEFLY}
    code = place.call(verb, foreign, *options.get(verb, ())).code
    assert code in ((1,) if verb in {"report", "audit"} else (0, 2))  # these two say that job.yaml was changed
    with sqlite3.connect(database) as connection:
        assert connection.execute("select name from sqlite_master").fetchall() == [("customers",)]
    assert not (place.folder / "made.key").exists()
    assert not (place.folder / "runs-of-mlflow").exists()


def test_check_lists_what_is_outside_of_the_folder(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.move(place.folder / "bank.csv", elsewhere / "bank.csv")
    place.change({"parties.bank.table": str(elsewhere / "bank.csv")})
    place.refused("parties.bank.table.path: expected consent before it reads", f"--allow-path {elsewhere}/bank.csv")
    result = place.call("check", place.file, "--json", "--allow-path", elsewhere)
    assert result.document()["outside"] == [f"parties.bank.table.path reads {elsewhere}/bank.csv"]
    assert "parties.bank.table.path reads" in place.call("check", place.file, "--allow-path", elsewhere).out


@pytest.mark.parametrize("verb", ["report", "audit", "predict", "export", "trail show", "trail verify", "ledger"])
def test_a_link_out_of_a_folder_is_followed_by_the_option_that_the_refusal_names(
    verb: str, finished: Path, place: Place
) -> None:
    options = {"predict": ("--out", "scores.csv"), "export": ("--as", "bank", "--out", "part"), "audit": BRIEFLY}
    linked = finished / "summary.json"
    if verb in ("trail show", "trail verify", "ledger"):
        linked = place.folder / ".cutlayer" / ("ledger.sqlite" if verb == "ledger" else "telco.key.trail/000001.jsonl")
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.write_text("")
    elsewhere = place.folder / "elsewhere"
    shutil.move(linked, elsewhere)
    linked.symlink_to(elsewhere)
    command = (*verb.split(), linked.parent, *options.get(verb, ()))
    refused = place.call(*command)
    assert (refused.code, linked.exists()) == (2, True)
    assert f"{linked}: expected consent before it leads to {elsewhere}" in refused.error
    option = refused.error.rpartition("allow it by ")[2].split()
    assert "leads to" not in place.call(*command, *option).err


def test_a_resume_writes_through_no_link(finished: Path, place: Place) -> None:
    elsewhere = place.folder / "elsewhere"
    shutil.move(finished / "checkpoint", elsewhere)
    (finished / "checkpoint").symlink_to(elsewhere)
    result = place.call("run", place.file, "--out", finished, "--resume")
    assert result.code == 2
    assert f"expected consent before it leads to {elsewhere}" in result.error
