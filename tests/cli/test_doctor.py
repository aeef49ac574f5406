"""`cutlayer doctor`: what is wrong with an installation or a machine is exit code 2, with the remedy."""

from __future__ import annotations

import socket
from itertools import count
from types import SimpleNamespace

import pytest

from cutlayer.cli import doctor
from tests.cli.jobs import JOB, changed
from tools.ports import free_port


def checks(result):
    return {check["name"]: check for check in result.document()["checks"]}


def test_this_installation_is_ready(place, monkeypatch):
    monkeypatch.setattr(doctor, "missing_of", lambda extra: ["mlflow"] if extra == "mlflow" else [])
    result = place.call("doctor", "--json")
    assert result.code == 0
    found = checks(result)
    assert result.document()["ready"] is True
    assert "17 as required, torch " in found["packages"]["result"]
    assert found["extra serve"]["result"] == "installed"
    assert found["extra mlflow"]["result"] == "not installed; pip install 'cutlayer[mlflow]'"
    assert "cores for this process, OMP_NUM_THREADS " in found["threads"]["result"]
    assert "openblas with 1 thread" in found["threads"]["result"]
    assert " UTC, time zone " in found["clock"]["result"]
    assert "the same loss, 0." in found["self-test"]["result"]
    assert place.left() == set()
    shown = place.call("doctor")
    assert "ok  extra mlflow: not installed; pip install 'cutlayer[mlflow]'\n" in shown.out
    assert shown.out.endswith(found["self-test"]["result"] + "\n")


@pytest.mark.parametrize("version", [None, "2.5.1"])
def test_without_a_package_nothing_is_trained(place, monkeypatch, version):
    installed = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == "torch" else installed(name))
    monkeypatch.setattr(doctor, "_device", lambda: pytest.fail("imports PyTorch"))
    result = place.call("doctor", "--json")
    assert result.code == 2
    problem = f"expected torch 2.6 or later, got {version or 'none'}; install cutlayer again, by pip install --upgrade"
    assert checks(result)["packages"]["problem"] == problem
    assert "self-test" not in checks(result)


def test_losses_that_differ_are_a_problem(place, monkeypatch):
    losses = count()
    run = SimpleNamespace(history=lambda: [{"loss": float(next(losses))}])
    monkeypatch.setattr("cutlayer.jobs.execute.execute", lambda *_: run)
    result = place.call("doctor", "--json")
    assert result.code == 2
    assert "expected the same loss twice, to the last bit, got 0.0 and 1.0" in checks(result)["self-test"]["problem"]


def test_a_clock_that_is_behind_and_a_folder_that_cannot_be_written(place, monkeypatch):
    class Past(doctor.datetime):
        @classmethod
        def now(cls, zone=None):
            return cls(1970, 1, 2, tzinfo=zone)

    monkeypatch.setattr(doctor, "datetime", Past)
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    found = checks(place.call("doctor", "--json"))
    assert "the clock says 1970-01-02 00:00 UTC, before this file was installed" in found["clock"]["problem"]
    assert found["folder"]["problem"].endswith("cannot be written to; work in another folder")


@pytest.fixture
def apart(place, monkeypatch):
    """A job between organisations with the bank's certificates, on an installation that is well."""
    monkeypatch.setattr(doctor, "_installation", lambda: iter(()))
    monkeypatch.setattr(doctor, "_self_test", lambda: "skipped")
    public = {"parties.bank": {"role": "active"}, "parties.telco": {"role": "passive"}}
    place.port = free_port()
    place.write(changed(JOB, {**public, "parties.bank.address": f"127.0.0.1:{place.port}"}))
    (place.folder / "bank.yaml").write_text("table: bank.csv\nid: id\nlabel: default\n")
    (place.folder / "telco.yaml").write_text("table: lost.csv\nid: id\n")
    assert place.call("keys", "init", "bank").code == 0
    return place


def test_a_partys_own_part(apart):
    bank = ("doctor", "job.yaml", "--as", "bank", "--local", "bank.yaml", "--json")
    result = apart.call(*bank)
    found = checks(result)
    assert (result.code, found["address"]["result"]) == (0, f"127.0.0.1:{apart.port} is free to listen at")
    assert "valid until 20" in found["certificate"]["result"]
    assert found["table"]["result"].endswith("bank.csv can be read")
    with socket.create_server(("127.0.0.1", apart.port)):
        taken = apart.call(*bank)
        partner = checks(apart.call("doctor", "job.yaml", "--as", "telco", "--local", "telco.yaml", "--json"))
    assert taken.code == 2
    assert "another program may listen there" in checks(taken)["address"]["problem"]
    assert partner["address"]["result"] == f"somebody listens at 127.0.0.1:{apart.port}"
    assert "lost.csv, which cannot be read" in partner["table"]["problem"]
    assert "the certificate of telco at" in partner["certificate"]["problem"]
    alone = checks(apart.call("doctor", "job.yaml", "--as", "telco", "--local", "telco.yaml", "--json"))
    assert alone["address"]["problem"].startswith(f"expected somebody who listens at 127.0.0.1:{apart.port}, got ")


def test_a_key_that_others_can_read_is_a_problem(apart):
    [key] = (apart.folder / "keys").glob("bank*key*")
    key.chmod(0o644)
    result = apart.call("doctor", "job.yaml", "--as", "bank", "--local", "bank.yaml", "--json")
    assert result.code == 2
    assert "keys/bank.key, got mode 0644; run chmod 600" in checks(result)["certificate"]["problem"]


def test_a_job_needs_a_party(place):
    result = place.call("doctor", "job.yaml", "--as", "bank")
    assert (result.code, result.out) == (2, "")
    assert result.error == "expected a job, --as and --local together, or none of them, got some of them\n"
