"""`cutlayer party` alone: what can be wrong before, and instead of, a link to the others."""

from __future__ import annotations

import json

import pytest

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


def test_a_passive_party_audits_what_it_sent(apart):
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
    assert json.loads((folder / "report.json").read_text()) == found
    page = (folder / "report.html").read_text()
    again = apart.call("report", folder, "--json").document()
    assert {**again, "folder": found["folder"]} == found, "as often as the partner asks"

    sent = {message["kind"]: message for message in found["messages"]}
    run, epochs = found["rows"]["run"], found["epochs"]
    parts = {part["part"]: part["rows"] for part in found["releases"]}
    assert sum(parts.values()) == run
    assert sent["embedding"]["rows"] == epochs * parts["training"]
    assert sent["embedding"]["sent"] == sent["gradient"]["received"] > 0
    assert sent["evaluation"]["rows"] == epochs * parts["validation"] + parts["test"]
    [link] = found["alignment"]["links"]
    assert (link["common"], link["run"], link["passive"]["rows"]) == (run, run, found["rows"]["table"])
    at_bank = json.loads((apart.folder / "runs" / "job-bank" / "report.json").read_text())["data"]["alignment"]
    assert at_bank["links"][0]["active"]["stated"] == link["active"]["stated"]
    for text in ("What the alignment made known", f"bank learned that {run} of the {link['active']['stated']} ids"):
        assert text in page
    assert "What the alignment made known" in (apart.folder / "runs" / "job-bank" / "report.html").read_text()

    printed = apart.call("report", folder).out
    assert "None: nothing protects the columns of telco" in " ".join(printed.split())
    assert "report.html" in printed
    assert "### What telco sent" in apart.call("report", folder, "--markdown").out


def test_a_passive_party_audits_its_folder_again(apart):
    words = ["party", "job.yaml", "--plaintext", "--as", "bank", "--local", "bank.yaml", "--json"]
    bank = forked(run_in, apart.folder, words)
    try:
        result = apart.call("party", "job.yaml", "--plaintext", "--as", "telco", "--local", "telco.yaml", "--quiet")
        assert bank.wait() == 0
    finally:
        bank.kill()
    folder = apart.folder / "runs" / "job-telco"
    assert "every message that left: cutlayer trail show" in result.out
    audited = apart.call("audit", folder, "--attack", "inversion", "--json").document()
    assert {each["attack"] for each in audited["features"]} == {"inversion"}
    assert "can rebuild" in (folder / "report.html").read_text()
    for option, message in (
        (("--attack", "norm"), "expected attacks on features in the folder of a passive party"),
        (("--fail-above", "0.6"), "expected --fail-above at the active party, which has the labels, got 0.6"),
    ):
        refused = apart.call("audit", folder, *option)
        assert (refused.code, refused.out) == (2, "")
        assert message in refused.error
    card = apart.call("report", folder, "--for", "dpia", "--json").document()
    assert [each["attack"] for each in card["evidence"]].count("inversion") == len(card["evidence"]) > 0
    assert card["alignment"]
    blank = {field["name"] for field in card["fields"] if field["value"] is None}
    assert {"Purpose", "Lawful basis"} <= blank
    assert (folder / "privacy_annex.html").exists()
