"""`cutlayer doctor`: what is wrong with an installation or a machine is exit code 2, with the remedy."""

from __future__ import annotations

from importlib import metadata
from itertools import count
from types import SimpleNamespace

import pytest

from cutlayer.cli import doctor
from cutlayer.config import extras


def checks(result):
    return {check["name"]: check for check in result.document()["checks"]}


def test_this_installation_is_ready(place, monkeypatch):
    monkeypatch.setattr(extras, "missing_of", lambda extra: ["mlflow"] if extra == "mlflow" else [])
    result = place.call("doctor", "--json")
    assert result.code == 0
    found = checks(result)
    assert result.document()["ready"] is True
    required = [name for name in metadata.requires("cutlayer") or () if "extra ==" not in name]
    assert f"{len(required)} as required, torch " in found["packages"]["result"]
    remedy = "pip install 'cutlayer[mlflow]', or in a checkout pip install './plugins/loggers[mlflow]'"
    assert found["extra serve"]["result"] == "installed"
    assert found["extra mlflow"]["result"] == f"not installed; {remedy}"
    assert "cores for this process, OMP_NUM_THREADS " in found["threads"]["result"]
    assert "openblas with 1 thread" in found["threads"]["result"]
    assert " UTC, time zone " in found["clock"]["result"]
    assert "the same loss, 0." in found["self-test"]["result"]
    assert place.left() == set()
    shown = place.call("doctor")
    assert f"ok  extra mlflow: not installed; {remedy}\n" in shown.out
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
