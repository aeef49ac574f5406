"""`audit --empirical-epsilon`: what it writes, what it shows, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cutlayer.protections.catalogue import DPEmbedding
from cutlayer.results.audit import PassiveAudit
from cutlayer.training.file_digests import write_digests
from tests.cli.jobs import QuietPlace, write_tables
from tests.report.passive_samples import exact, passive_run

CALL = ("--empirical-epsilon", "--canaries", "2000")


@pytest.fixture(scope="module")
def guarded_once(tmp_path_factory):
    """The folder of a finished run with a guarantee on each side; not to be changed."""
    place = QuietPlace(tmp_path_factory.mktemp("guarded"))
    write_tables(place.folder)
    private = {"parties.bank.privacy": {"label_dp": {"eps": 1.0}}}
    private["parties.telco.privacy"] = {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}
    place.change({**private, "train.epochs": 1})
    assert place.call("run", place.file, "--json").code == 0
    return place.run_folder


@pytest.fixture
def guarded(guarded_once, place):
    return Path(shutil.copytree(guarded_once, place.folder / "guarded"))


def halve_the_noise(monkeypatch):
    setup = DPEmbedding.setup

    def halved(self, context):
        setup(self, context)
        self._sigma /= 2

    monkeypatch.setattr(DPEmbedding, "setup", halved)


def test_guarantees_that_hold_and_one_that_does_not(place, guarded, monkeypatch):
    result = place.call("audit", guarded, *CALL)
    assert result.code == 0
    assert "Guarantees tested with canaries" in result.out
    assert result.out.count("no fault found") == 2
    found = json.loads((guarded / "audit.json").read_text())["guarantees"]
    assert [(each["protection"], each["party"], each["protects"]) for each in found] == [
        ("label_dp", "bank", "labels"),
        ("dp_embedding", "telco", "features"),
    ]
    assert [one["epsilon"] for one in found] == pytest.approx([1.0, 8.0])
    assert all(0.4 * one["epsilon"] < one["lower_bound"] < one["epsilon"] for one in found)
    assert place.call("audit", guarded, "--json").document()["guarantees"] == found, "kept by the next audit"

    halve_the_noise(monkeypatch)
    broken = place.call("audit", guarded, *CALL, "--json")
    assert broken.code == 1
    (finding,) = (item for item in broken.document()["findings"] if item["code"] == "CL109")
    assert "dp_embedding of telco" in finding["detail"]
    shown = place.call("report", guarded)
    assert shown.code == 1
    assert "DOES NOT HOLD" in shown.out
    assert "DOES NOT HOLD" in (guarded / "report.html").read_text()


def test_a_passive_party_s_own_folder_is_tested_too(place, guarded, monkeypatch):
    ledger = json.loads((guarded / "ledger.json").read_text())
    ledger["entries"] = [entry for entry in ledger["entries"] if entry["party"] == "telco"]
    (guarded / "ledger.json").write_text(json.dumps(ledger))
    passive_run().write(guarded / "outcome.json")
    PassiveAudit(features=(exact(1, 2),)).write(guarded / "audit.json")
    write_digests(guarded, None)
    result = place.call("audit", guarded, *CALL)
    assert result.code == 0
    assert "dp_embedding" in result.out
    halve_the_noise(monkeypatch)
    broken = place.call("audit", guarded, *CALL, "--json")
    assert broken.code == 1
    assert [guarantee["party"] for guarantee in broken.document()["guarantees"]] == ["telco"]
    assert "DOES NOT HOLD" in (guarded / "report.html").read_text()


def test_a_run_without_guarantees_has_none_to_test(place, finished):
    result = place.call("audit", finished, *CALL)
    assert result.code == 2
    assert "expected a guarantee by random draws in the ledger" in result.error


def test_so_few_canaries_are_refused(place, finished):
    assert (
        "400 canaries or more, got 3" in place.call("audit", finished, "--empirical-epsilon", "--canaries", "3").error
    )
