"""`cutlayer approve`: nothing is sent without the signatures of all, and what somebody tries in their place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.channel.approvals import Approval, SignedApproval
from cutlayer.channel.kinds import Kind
from cutlayer.channel.port import link
from cutlayer.cli.exchange_steps import courier_of
from cutlayer.cli.organisation import Organisation, load_party
from cutlayer.errors import NotApproved
from cutlayer.jobs.links import open_trail
from tests.channel.certificates import Federation
from tests.cli.jobs import JOB, Place, Result, as_yaml, changed

PARTIES = ("bank", "telco", "shop")
SHARED = {
    "parties": {
        "bank": {"role": "active", "address": "127.0.0.1:7077"},
        "telco": {"role": "passive"},
        "shop": {"role": "passive"},
    },
    "federation": "loans",
    "approvals": "required",
    "model": {
        "bottom": {"bank": {"kind": "auto"}, **{name: {"kind": "linear", "width": 4} for name in ("telco", "shop")}},
        "top": {"kind": "auto", "candidates": ["linear"]},
    },
    "train.release": "once",
}
LOCAL = {
    "bank": "{table: bank.csv, id: id, label: default, audit: {attacks: []}}",
    "telco": "{table: telco.csv, id: id, fit: {kind: sketch}, audit: {attacks: []}}",
    "shop": "{table: telco.csv, id: id, fit: {kind: sketch}, audit: {attacks: []}}",
}


@dataclass(frozen=True)
class World:
    """Each organisation's folder with its table, private file, job and certificates."""

    place: Place
    federation: Federation

    def file(self, party: str, name: str) -> Path:
        return self.place.folder / party / name

    def call(self, verb: str, party: str, *options: object, job: str = "job.yaml") -> Result:
        local = self.file(party, f"{party}.yaml")
        return self.place.call(verb, self.file(party, job), "--as", party, "--local", local, *options)

    def page(self, party: str) -> dict[str, Any]:
        page: dict[str, Any] = self.call("approve", party, "--json").document()["page"]
        return page

    def sign(self, party: str) -> Path:
        signed = self.call("approve", party, "--sign", self.page(party)["reference"])
        assert signed.code == 0, signed
        return self.file(party, f"approvals/job-{party}.json")

    def all_sign(self) -> dict[str, Path]:
        files = {party: self.sign(party) for party in PARTIES}
        for party in PARTIES:
            brought = [option for peer in PARTIES if peer != party for option in ("--accept", files[peer])]
            assert self.call("approve", party, *brought, "--json").document()["complete"]
        return files

    def release(self, party: str = "telco", name: str = "out.release") -> Result:
        return self.call("release", party, "--out", self.file(party, name))

    def opened(self, party: str) -> Organisation:
        local = self.file(party, f"{party}.yaml")
        return load_party(
            self.file(party, "job.yaml"), party, local, plaintext=False, timeout=0, deadline=0, reconnect=None
        )

    def store(self, party: str) -> Path:
        (folder,) = (self.file(party, ".cutlayer") / f"{party}.key.approvals").iterdir()
        return folder


@pytest.fixture
def apart(place: Place) -> World:
    federation = Federation(place.folder / "keys", "telco", "shop")
    job = as_yaml(changed(JOB, SHARED))
    for party in PARTIES:
        home = place.folder / party
        home.mkdir()
        for name in ("bank.csv", "telco.csv"):
            shutil.copy(place.folder / name, home / name)
        (home / "job.yaml").write_text(job)
        (home / f"{party}.yaml").write_text(LOCAL[party])
        shutil.copytree(federation.base / party, home / "keys")
    return World(place, federation)


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_a_release_leaves_once_all_have_signed_and_the_trail_says_so(apart: World) -> None:
    refused = apart.release()
    assert (refused.code, apart.file("telco", "out.release").exists()) == (7, False), refused
    assert "expected the approval of bank for job" in refused.error
    shown = apart.call("approve", "telco")
    assert "- feature: `plan`, `usage`" in shown.out
    assert "- id: `id`" in shown.out
    assert "4 numbers of each common row, once" in shown.out
    assert "nothing was signed; to approve this page: --sign " in shown.out
    files = apart.all_sign()
    assert all(word not in files["telco"].read_text() for word in ("usage", "plan", "telco.csv", "sketch"))
    released = apart.release()
    assert released.code == 0, released.err
    trail = apart.file("telco", ".cutlayer/telco.key.trail")
    starts = apart.place.call("trail", "show", trail, "--json").document()["starts"]
    assert [len(start["about"]["approvals"]) for start in starts] == [1, 2, 3]
    assert starts[-1]["about"]["approvals"][1].startswith("telco approved, number 1, digest ")
    assert "approval: telco approved, number 1" in apart.place.call("trail", "show", trail).out
    run = apart.file("telco", "runs/job-telco")
    again = ("release", "--run", run, "--out", apart.file("telco", "new.release"))
    assert apart.call(again[0], "telco", *again[1:]).code == 0
    apart.call("approve", "telco", "--withdraw")
    for verb, *options in ((*again[:-1], apart.file("telco", "o")), ("party", "predict", "--run", run)):
        words = [verb, options.pop(0)] if verb == "party" else [verb]
        local = ("--as", "telco", "--local", apart.file("telco", "telco.yaml"))
        refused = apart.place.call(*words, apart.file("telco", "job.yaml"), *local, *options)
        assert (refused.code, "telco has withdrawn its approval" in refused.error) == (7, True), (verb, refused)
    refused = apart.place.call("serve", run, *local)
    assert (refused.code, "telco has withdrawn its approval" in refused.error) == (7, True), refused


def test_limits_of_the_online_service_are_signed_and_hold_where_it_serves(apart: World) -> None:
    private = apart.file("telco", "telco.yaml")
    text = private.read_text()
    private.write_text(text.replace("{table", "{serve: {max_ids: 500}, table"))
    shown = apart.call("approve", "telco").out
    assert "## Limits of online serving\n\n- max_ids: 500\n- passes: 1\n" in shown
    apart.all_sign()
    private.write_text(text)
    assert "- max_ids: no limit" in apart.call("approve", "telco").out
    assert apart.release().code == 0, "a release does not depend on it"
    local = ("--as", "telco", "--local", private)
    refused = apart.place.call("serve", apart.file("telco", "runs/job-telco"), *local)
    assert (refused.code, "one with other serve" in refused.error) == (7, True), refused


def test_a_withdrawal_stops_the_courier_of_files(apart: World) -> None:
    """What was written before it, and has not been brought, stays here."""
    apart.all_sign()
    setup = load_party(
        apart.file("telco", "job.yaml"),
        "telco",
        apart.file("telco", "telco.yaml"),
        plaintext=False,
        timeout=0,
        deadline=0,
        reconnect=None,
    )
    folder = apart.place.folder / "files"
    (folder / "predict-1~june").mkdir(parents=True)
    (folder / "predict-1~june" / "telco~bank~0.cutlayer").touch()
    with courier_of(setup, "telco", folder) as courier:
        assert not courier.carry(folder / "predict-1~june")  # nobody listens
        apart.call("approve", "telco", "--withdraw")
        with pytest.raises(NotApproved, match="telco has withdrawn"):
            courier.carry(folder / "predict-1~june")
    store = pytest.importorskip("fsspec").filesystem("memory")
    with courier_of(setup, "telco", folder, "memory://withdrawn/exchange") as courier, pytest.raises(NotApproved):
        courier.carry(folder / "predict-1~june")
    assert not store.find("/withdrawn")


def test_predictions_need_an_approval_of_what_the_model_was_trained_with(apart: World) -> None:
    apart.all_sign()
    assert apart.release().code == 0
    run, private = apart.file("telco", "runs/job-telco"), apart.file("telco", "telco.yaml")
    # A page with one column less than the model reads, and a stricter map.
    private.write_text(LOCAL["telco"].replace("{table", "{features: {exclude: [plan]}, table", 1))
    apart.sign("telco")
    for verb, *options in (("release", "--run", run, "--out", apart.file("telco", "o")), ("serve",)):
        local = ("--as", "telco", "--local", private)
        arguments = (run, *local) if verb == "serve" else (apart.file("telco", "job.yaml"), *local, *options)
        refused = apart.place.call(verb, *arguments)
        assert (refused.code, "got one with other columns (+plan), settings" in refused.error) == (7, True), refused
    private.write_text(LOCAL["telco"])
    apart.sign("telco")
    table = apart.file("telco", "telco.csv")
    head, *rows = table.read_text().splitlines()
    table.write_text("\n".join([f"{head},income", *(f"{row},1" for row in rows)]) + "\n")  # which the model never reads
    released = apart.call("release", "telco", "--run", run, "--out", apart.file("telco", "new.release"))
    assert released.code == 0, released
    assert "(+income)" in apart.call("align", "telco").error  # a training would read it


def test_every_way_of_sending_asks_for_the_approvals(apart: World) -> None:
    exchange = apart.place.folder / "between"
    for options in (
        ("party",),
        ("party", "--preflight"),
        ("align",),
        ("align", "--exchange", exchange),
        ("exchange", "--folder", exchange),
        ("release", "--out", apart.file("telco", "o")),
    ):
        verb, *more = options
        result = apart.call(verb, "telco", *more, "--json")
        assert "expected the approval of bank" in result.out, (options, result)
        assert result.code == (2 if "--preflight" in more else 7)
    apart.all_sign()
    plain = apart.call("release", "telco", "--out", apart.file("telco", "o"), "--plaintext")
    assert (plain.code, "expected certificates, by whose keys" in plain.error) == (7, True)


def test_a_party_can_demand_it_alone(apart: World) -> None:
    for party in PARTIES:
        apart.file(party, "job.yaml").write_text(as_yaml(changed(JOB, {**SHARED, "approvals": "none"})))
    apart.file("telco", "telco.yaml").write_text(LOCAL["telco"].replace("{table", "{approvals: required, table", 1))
    assert apart.release("telco").code == 7
    assert apart.release("shop").code == 0


def test_what_is_not_approved_any_more(apart: World) -> None:
    apart.all_sign()
    table = apart.file("telco", "telco.csv")
    before, private, job = table.read_text(), LOCAL["telco"], apart.file("telco", "job.yaml").read_text()
    head, *rows = before.splitlines()
    table.write_text("\n".join([f"{head},income", *(f"{row},1" for row in rows)]) + "\n")
    assert "got one with other columns (+income)" in apart.release().error
    table.write_text("\n".join([head, *rows[::2]]) + "\n")  # other rows are no other page
    assert apart.call("approve", "telco", "--json").document()["complete"]
    table.write_text(before)
    sketch, path = "fit: {kind: sketch}", "table: telco.csv"
    for old, change, what in (
        (path, 'table: {path: telco.csv, missing: ["", "-1"]}', "settings"),
        (sketch, "fit: {kind: sketch, map: permutation}", "readable, settings"),
        (sketch, f"{sketch}, privacy: {{dp_embedding: {{clip: 1.0, noise_multiplier: 2.0}}}}", "guarantees, settings"),
        (sketch, f"{sketch}, limits: {{embedding_norm: 5.0}}", "settings"),
        (sketch, f"{sketch}, serving: 3", "sends"),
    ):
        apart.file("telco", "telco.yaml").write_text(private.replace(old, change))
        result = apart.release()
        assert result.code == 7, (change, result)
        assert "expected the page that telco approved, got one with other " in result.error
        assert what in result.error
    apart.file("telco", "telco.yaml").write_text(private)
    apart.file("telco", "job.yaml").write_text(job.replace("width: 4", "width: 5"))
    assert "expected the approval of bank for job" in apart.release().error
    apart.file("telco", "job.yaml").write_text(job.replace("federation: loans", "federation: lenders"))
    assert apart.release().code == 2  # the certificate is of another federation
    apart.file("telco", "job.yaml").write_text(job)
    assert apart.release().code == 0


def test_forged_swapped_and_foreign_records_are_refused(apart: World) -> None:
    files = apart.all_sign()
    shop, telco = files["shop"].read_text(), files["telco"].read_text()

    def accepted(content: str) -> Result:
        path = apart.place.folder / "brought.json"
        path.write_text(content)
        return apart.call("approve", "bank", "--accept", path)

    def changed_record(**changes: Any) -> str:
        record = json.loads(telco)
        return json.dumps({**record, "approval": {**record["approval"], "number": 2, **changes}})

    assert accepted(telco).code == 0  # known already
    assert "a signature of its content" in accepted(changed_record()).error
    assert "expected" in accepted(changed_record(job="0" * 32)).error
    assert (
        "the signature of spiffe://loans/shop, got that of spiffe://loans/telco"
        in accepted(changed_record(party="shop")).error
    )
    swapped = json.loads(telco)["approval"]["identities"]
    swapped |= {"telco": swapped["shop"], "shop": swapped["telco"]}
    assert "one of other parties or identities" in accepted(changed_record(identities=swapped)).error
    mixed = {**json.loads(telco), **{key: json.loads(shop)[key] for key in ("chain", "signature")}}
    assert "the signature of spiffe://loans/telco, got that of spiffe://loans/shop" in accepted(json.dumps(mixed)).error
    own = apart.file("bank", "approvals/job-bank.json").read_text()
    assert "the approval of a partner, got one of bank" in accepted(own).error
    missing = apart.call("approve", "bank", "--accept", apart.place.folder / "job-tleco.json")
    assert (missing.code, "job-tleco.json: cannot be read: No such file" in missing.error) == (2, True), missing
    for nonsense in (
        "",
        "[]",
        "{}",
        "x" * 70_000,
        changed_record(number=2**70),
        changed_record(number=True),
        changed_record(time="\x1b[2J\nerror"),
    ):
        result = accepted(nonsense)
        assert (result.code, "a signed record in" in result.error) == (2, True), nonsense[:40]
    store = apart.store("bank")
    shutil.copy(store / "telco.json", store / "shop.json")  # one party for another
    assert "shop.json: the approval of shop, got that of telco" in apart.call("align", "bank").error
    shutil.copy(files["shop"], store / "shop.json")
    other = apart.place.folder / "other"
    shutil.copytree(apart.federation.base / "telco", other)
    impostor = Federation(apart.place.folder / "strangers", "telco")  # another authority, the same names
    record = Approval.model_validate({**json.loads(telco)["approval"], "number": 9})
    forged = SignedApproval.of(record, impostor.security("telco"))
    assert "a certificate that an authority of the file ca signed" in accepted(forged.model_dump_json()).error


def test_a_withdrawal_holds_against_earlier_files(apart: World) -> None:
    files = apart.all_sign()
    kept = {party: path.read_text() for party, path in files.items()}
    store = apart.store("telco")
    withdrawn = apart.call("approve", "telco", "--withdraw")
    assert (withdrawn.code, "not complete: telco has withdrawn" in withdrawn.out) == (0, True)
    assert "telco has withdrawn its approval" in apart.release().error
    (store / "telco.json").write_text(kept["telco"])  # its own file of before
    assert "record 2 of telco or a later one, got number 1" in apart.release().error
    assert apart.call("approve", "bank", "--accept", files["telco"]).code == 0
    assert "telco has withdrawn" in apart.call("align", "bank").error
    again = apart.place.folder / "again.json"
    again.write_text(kept["telco"])
    assert "got number 1; a later one is known" in apart.call("approve", "bank", "--accept", again).error
    apart.sign("telco")
    assert apart.call("approve", "bank", "--accept", files["telco"], "--json").document()["complete"]
    (store / "numbers.json").write_text("[")
    assert "numbers.json is damaged" in apart.release().error


@pytest.mark.parametrize("why", ["expired", "revoked"])
def test_an_approval_ends_with_its_certificate(apart: World, why: str) -> None:
    apart.all_sign()
    if why == "revoked":
        apart.federation.authority.revoke("shop")
        for name in ("ca.pem", "crl.pem"):
            shutil.copy(apart.federation.base / "bank" / name, apart.file("telco", f"keys/{name}"))
        assert "certificate of spiffe://loans/shop is revoked" in apart.release().error
        return
    apart.federation.replace("shop", end=timedelta(days=-1))
    record = SignedApproval.read(apart.store("telco") / "shop.json")
    chain = apart.federation.files("shop").cert.read_text()
    expired = record.model_copy(update={"chain": chain})
    (apart.store("telco") / "shop.json").write_text(expired.model_dump_json())
    assert "certificate of spiffe://loans/shop is expired" in apart.release().error


def test_a_withdrawal_stops_a_process_before_its_next_message(apart: World) -> None:
    apart.all_sign()
    setup = apart.opened("telco")
    assert setup.links.trail is not None
    trail = open_trail(setup.job, "telco", setup.links.trail, setup.links.security)
    port, other = link("telco", "bank", "r")
    port.record = trail.record
    port.send(Kind.EMBEDDING, tensors={"embedding": torch.zeros(2, 4)})
    assert len(other.arrived) == 1
    apart.call("approve", "telco", "--withdraw")
    with pytest.raises(NotApproved, match="telco has withdrawn"):
        port.send(Kind.EMBEDDING, tensors={"embedding": torch.zeros(2, 4)})
    assert len(other.arrived) == 1
    port.send(Kind.CLOSE, fields={"reason": "NotApproved"})  # its peers are told that it ended
    trail.close()
    apart.sign("telco")
    assert not apart.place.call("trail", "verify", setup.links.trail, "--json").document()["problems"]


def test_only_the_page_that_was_seen_is_signed(apart: World) -> None:
    seen = apart.page("telco")["reference"]
    private = apart.file("telco", "telco.yaml")
    private.write_text(LOCAL["telco"].replace("fit:", "serving: 9, fit:"))
    refused = apart.call("approve", "telco", "--sign", seen)
    assert (refused.code, "the page of now" in refused.error) == (2, True)
    assert (
        "one of --sign, --accept and --withdraw" in apart.call("approve", "telco", "--sign", seen, "--withdraw").error
    )
    nothing = apart.call("approve", "telco", "--withdraw")
    assert (nothing.code, "an approval of telco to withdraw" in nothing.error) == (7, True)
    apart.file("telco", "mine.json").write_text("mine")
    refused = apart.call("approve", "telco", "--sign", apart.page("telco")["reference"], "--out", "telco/mine.json")
    assert (refused.code, apart.file("telco", "mine.json").read_text()) == (2, "mine")
