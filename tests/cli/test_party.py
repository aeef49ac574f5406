"""`cutlayer party` alone: what can be wrong before, and instead of, a link to the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutlayer.accounting.events import GaussianRelease
from cutlayer.accounting.ledger import Entry, Ledger
from cutlayer.accounting.plan import ReleasePlan
from cutlayer.cli.passive_outcome import show_outcome
from cutlayer.report.rounding import metric
from cutlayer.results.audit import PassiveAudit
from cutlayer.results.features import FeatureResult
from cutlayer.results.metric_names import name_of
from cutlayer.training.folder import RunFolder
from tests.cli.jobs import JOB, changed
from tests.parties.processes import forked, run_in
from tools.ports import free_port

PUBLIC = {"parties.bank": {"role": "active"}, "parties.telco": {"role": "passive"}}


@pytest.fixture
def apart(place):
    """The shared job without anybody's private part, and each party's file beside it."""
    place.write(changed(JOB, {**PUBLIC, "parties.bank.address": f"127.0.0.1:{free_port()}"}))
    (place.folder / "bank.yaml").write_text("table: bank.csv\nid: id\nlabel: default\naudit: {depth: quick}\n")
    (place.folder / "telco.yaml").write_text("table: telco.csv\nid: id\n")
    return place


def kept(place):
    """What lies in the folder, apart from the long-lived keys."""
    return {path.name for path in place.folder.iterdir()} - {".cutlayer"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--as", "shop", "--local", "bank.yaml"), "expected a party of the job (bank, telco), got shop"),
        (("--as", "bank", "--local", "nowhere.yaml"), "nowhere.yaml: cannot be read: No such file or directory"),
        (("--as", "bank", "--local", "bank.csv"), "bank.csv: "),
        (("--as", "bank", "--local", "telco.yaml"), "expected parties.bank.label, got none"),
        (("--as", "telco", "--local", "bank.yaml"), "expected no parties.telco.label, got default"),
        (("--as", "bank", "--local", "bank.yaml", "--resume"), "expected a run to resume at"),
        (("--as", "bank", "--local", "bank.yaml", "--key", "bank.csv"), "32 bytes of key in bank.csv"),
    ],
)
def test_what_is_wrong_before_a_link_is_made(apart, arguments, message):
    before = kept(apart)
    result = apart.call("party", "job.yaml", "--plaintext", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.error
    assert kept(apart) == before


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "10.1.2.3:7070"])
def test_an_address_nobody_can_listen_at(apart, address):
    apart.write(changed(JOB, {**PUBLIC, "parties.bank.address": address}))
    before = kept(apart)
    result = apart.call("party", "job.yaml", "--plaintext", "--as", "bank", "--local", "bank.yaml", "--timeout", "1")
    assert result.code == 2
    assert address in result.error
    assert kept(apart) == before


@pytest.mark.parametrize("name", ["bank", "telco"])
def test_port_0_is_no_address_that_peers_can_know(apart, name):
    apart.write(changed(JOB, {**PUBLIC, "parties.bank.address": "127.0.0.1:0"}))
    before = kept(apart)
    result = apart.call("party", "job.yaml", "--plaintext", "--as", name, "--local", f"{name}.yaml", "--timeout", "0.3")
    assert result.code == 2
    assert "expected an address with a port from 1 to 65535, got '127.0.0.1:0'; name one that is free" in result.error
    assert kept(apart) == before


def test_without_an_address(apart):
    apart.write(changed(JOB, PUBLIC))
    result = apart.call("party", "job.yaml", "--plaintext", "--as", "bank", "--local", "bank.yaml")
    assert result.error == "expected parties.bank.address, got none; such as 127.0.0.1:7070\n"


@pytest.mark.parametrize("name", ["bank", "telco"])
def test_a_peer_that_never_comes_is_exit_code_3_and_leaves_nothing(apart, name):
    before = kept(apart)
    result = apart.call(
        "party", "job.yaml", "--plaintext", "--as", name, "--local", f"{name}.yaml", "--timeout", "0.3", "--json"
    )
    assert result.code == 3
    assert result.document()["error"].startswith("lost ")
    assert kept(apart) == before


def test_a_passive_party_audits_what_it_sent(apart, capsys):
    text = "table: telco.csv\nid: id\naudit: {attacks: [inversion, membership], rows: 256}\n"
    (apart.folder / "telco.yaml").write_text(text)
    words = ["party", "job.yaml", "--plaintext", "--as", "bank", "--local", "bank.yaml", "--json"]
    bank = forked(run_in, apart.folder, words)
    try:
        result = apart.call("party", "job.yaml", "--plaintext", "--as", "telco", "--local", "telco.yaml", "--json")
        assert bank.wait() == 0
    finally:
        bank.kill()
    found = result.document()
    assert {feature_result["attack"] for feature_result in found["features"]} == {"inversion"}
    [skipped] = found["skipped"]
    assert (skipped["party"], skipped["message"], skipped["attack"]) == ("telco", "embedding", "membership")
    assert "bank" in skipped["reason"]
    folder = apart.folder / "runs" / "job-telco"
    show_outcome(RunFolder.open(folder), as_json=False)
    printed = capsys.readouterr().out
    for result in found["features"]:
        assert f"{name_of(result['metric'])} {metric(result['value'])}, without" in printed
        assert f"without embedding {metric(result['baseline'])}" in printed
    assert "guarantee: none; nothing protects the features of telco" in printed
    assert apart.call("report", folder).out == printed  # as often as the partner asks
    assert apart.call("report", folder, "--json").document() == found
    refused = apart.call("audit", folder)
    assert (refused.code, refused.out) == (2, "")
    assert "expected the run folder of the active party" in refused.error


def test_a_result_without_a_value_is_shown(tmp_path, capsys):
    """Columns that are constant among the attacked rows have no R2."""
    nothing = dict.fromkeys(("value", "low", "high", "baseline"))
    about = {"run": "this run", "party": "telco", "attack": "inversion", "release": "epoch 1", "metric": "r2"}
    result = FeatureResult(**about, known=10, rows=10, **nothing)
    folder = RunFolder(tmp_path)
    folder.write_json("outcome.json", {"party": "telco", "epochs": 1, "evidence": []})
    PassiveAudit(features=(result,)).write(tmp_path / "audit.json")
    show_outcome(folder, as_json=False)
    assert "inversion, epoch 1: R² n/a, without embedding n/a" in capsys.readouterr().out


def test_a_passive_party_is_told_its_price_and_where_its_trail_is(tmp_path, capsys):
    folder = RunFolder(tmp_path)
    folder.write_json("outcome.json", {"party": "telco", "epochs": 1, "evidence": []})
    event = GaussianRelease(noise_multiplier=4.0, releases=ReleasePlan(training=1, validation=1, test=1))
    entry = Entry("dp_embedding", "telco", "features", ("bank",), event)
    folder.write_json("ledger.json", Ledger((entry,)).to_json())
    PassiveAudit().write(tmp_path / "audit.json")
    show_outcome(folder, trail=Path(".cutlayer/telco.key.trail"))
    told = capsys.readouterr().out
    assert "guarantee: the features of telco, towards bank: epsilon " in told
    assert "own columns: not attacked; `audit: {attacks: [inversion]}`" in told
    assert "every message that left: cutlayer trail show .cutlayer/telco.key.trail" in told
