"""`cutlayer keys`: what two organisations do, and what goes wrong on the way."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cutlayer.channel.tls.authority import Authority, files_in, make_request
from cutlayer.channel.tls.files import Credentials
from cutlayer.channel.tls.names import identity_of
from cutlayer.errors import TrustError
from tests.cli.jobs import JOB, changed

MODE_OF_SECRETS = 0o600


@pytest.fixture
def invited(place):
    """A bank with an authority, and an invitation of telco."""
    assert place.call("keys", "init", "bank", "--federation", "loans").code == 0
    assert place.call("keys", "invite", "telco", "--address", "bank.example:7070").code == 0
    return place


def signed(place, *days):
    """The certificate of telco, in the folder `there/keys`."""
    assert place.call("keys", "request", "telco.invite", "--folder", "there/keys").code == 0
    assert place.call("keys", "sign", "there/keys/telco.request.pem", *days).code == 0
    shutil.move("telco.pem", "there/keys/telco.pem")


def serials(place, *, revoked):
    listed = place.call("keys", "list", "--json").document()["certificates"]
    return [entry["serial"] for entry in listed if entry["party"] == "telco" and entry["revoked"] is revoked]


def test_the_walk_through(invited):
    place = invited
    result = place.call("keys", "invite", "telco", "--address", "bank.example:7070", "--json").document()["authority"]
    made = place.call(
        "keys", "request", "telco.invite", "--folder", "there/keys", "--fingerprint", result, "--json"
    ).document()
    assert (made["authority"], made["address"]) == (result, "bank.example:7070")
    signed = place.call("keys", "sign", made["file"], "--fingerprint", made["key"].replace("-", " ").upper())
    assert signed.code == 0
    assert f"as the other side read out: key {made['key']}" in signed.out
    assert "compare" not in signed.out
    shutil.move("telco.pem", "there/keys/telco.pem")
    for folder, party in (("keys", "bank"), ("there/keys", "telco")):
        own = Credentials(files_in(Path(folder), party)).current().certificate
        assert identity_of(own) == f"spiffe://loans/{party}"
        assert isinstance(own.public_key().curve, ec.SECP256R1)
        assert (Path(folder) / f"{party}.key").stat().st_mode & 0o777 == MODE_OF_SECRETS
    assert Path("keys/ca.key").stat().st_mode & 0o777 == MODE_OF_SECRETS
    assert Path("keys").stat().st_mode & 0o077 == 0
    secret = Path("there/keys/telco.key").read_bytes()
    assert not [
        path
        for path in Path().rglob("*")
        if path.is_file() and "there" not in path.parts and secret in path.read_bytes()
    ]


def test_a_renewed_certificate_has_the_same_key_and_another_serial_number(invited):
    signed(invited)
    first = Credentials(files_in(Path("there/keys"), "telco")).current().certificate
    result = invited.call("keys", "renew", "telco")
    assert result.code == 0
    assert "send it to telco, for the folder keys there" in result.out
    shutil.move("telco.pem", "there/keys/telco.pem")
    second = Credentials(files_in(Path("there/keys"), "telco")).current().certificate
    assert first.public_key() == second.public_key()
    assert first.serial_number != second.serial_number
    result = invited.call("keys", "renew", "bank")
    assert (result.code, "send it" in result.out) == (0, False)
    assert Credentials(files_in(Path("keys"), "bank")).current().certificate.serial_number != first.serial_number


def test_a_revoked_party_needs_an_invitation_and_a_new_key(invited):
    signed(invited)
    (serial,) = serials(invited, revoked=False)
    assert invited.call("keys", "revoke", "telco", "--json").document()["revoked"] == [serial]
    listed = x509.load_pem_x509_crl(Path("keys/crl.pem").read_bytes())
    assert [f"{entry.serial_number:x}" for entry in listed] == [serial]
    shutil.copy("keys/crl.pem", "there/keys/crl.pem")
    with pytest.raises(TrustError, match="got one that is revoked; ask for a new invitation, and remove"):
        Credentials(files_in(Path("there/keys"), "telco"))
    for verb in ("renew", "revoke"):
        assert invited.call("keys", verb, "telco").code == 2
    request = "there/keys/telco.request.pem"
    assert "expected a request of an invited party" in invited.call("keys", "sign", request).error
    assert invited.call("keys", "invite", "telco", "--address", "b:1").code == 0
    assert (
        "expected a new key of telco, got one whose certificate was revoked"
        in invited.call("keys", "sign", request).error
    )
    Path("there/keys/telco.key").unlink()
    signed(invited)
    assert serials(invited, revoked=True) == [serial]
    Credentials(files_in(Path("there/keys"), "telco"))


def test_the_list_names_what_has_expired(invited):
    signed(invited)
    assert "expired" not in invited.call("keys", "list").out
    record = json.loads(Path("keys/issued.json").read_text())
    record["issued"][-1]["until"] = "2001-01-01T00:00:00+00:00"
    Path("keys/issued.json").write_text(json.dumps(record))
    bank, telco = invited.call("keys", "list").out.splitlines()
    assert bank.startswith("bank:")
    assert not bank.endswith("expired")
    assert telco.startswith("telco: until 2001")
    assert telco.endswith(", expired")


def test_one_serial_number_can_be_revoked_alone(invited):
    signed(invited)
    invited.call("keys", "renew", "telco")
    first, second = serials(invited, revoked=False)
    assert invited.call("keys", "revoke", first).code == 0
    assert (serials(invited, revoked=True), serials(invited, revoked=False)) == ([first], [second])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("init", "bank"),
            "keys holds an authority already, of spiffe://loans/bank; choose another --folder; or, if no",
        ),
        (("init", "bank", "--federation", "Loans", "--folder", "new"), "expected a federation name"),
        (("init", "../bank", "--folder", "new"), "expected a party name"),
        (("init", "job.yaml", "--folder", "new"), "expected the name of a party, as in the job, got a file, job.yaml"),
        (("invite", "../../etc/telco", "--address", "b:1"), "expected a party name"),
        (("invite", "shop", "--address", "b"), "expected an address as HOST:PORT"),
        (("invite", "shop", "--address", "b:0"), "with a port from 1 to 65535"),
        (("invite", "shop", "--address", "b:1", "--folder", "nowhere"), "expected an authority in nowhere"),
        (("request", "job.yaml"), "expected an invitation in job.yaml"),
        (("request", "nowhere"), "nowhere: cannot be read"),
        (("request", "telco.invite", "--fingerprint", "abcd"), "somebody may have replaced the file"),
        (
            ("request", "telco.invite", "--folder", "other"),
            "other holds the certificate of another authority; choose another --folder, or remove other",
        ),
        (("sign", "job.yaml"), "expected a signing request in PEM in job.yaml"),
        (("sign", "nowhere"), "nowhere cannot be read"),
        (("renew", "shop"), "expected a certificate of shop to renew, got none"),
        (("renew", "bank", "--days", "0"), "expected --days from 1 to"),
        (("revoke", "shop"), "expected a party with a valid certificate"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(invited, arguments, message):
    Authority.create(Path("other"), "elsewhere", "bank")
    before = {path: path.read_bytes() for path in Path("keys").iterdir() if path.suffix != ".lock"}
    result = invited.call("keys", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.error
    assert {path: path.read_bytes() for path in Path("keys").iterdir() if path.suffix != ".lock"} == before
    assert not Path("new").exists() or not list(Path("new").iterdir())


@pytest.mark.parametrize(
    ("federation", "party", "message"),
    [
        ("loans", "shop", "expected a request of an invited party"),
        ("loans", "bank", "expected a request of an invited party"),
        ("other", "telco", "expected a request for the federation loans"),
    ],
)
def test_only_an_invited_party_of_the_federation_is_signed(invited, federation, party, message):
    path, _ = make_request(Path("stranger"), federation, party)
    result = invited.call("keys", "sign", str(path))
    assert result.code == 2
    assert message in result.error
    assert not Path(f"{party}.pem").exists()


def test_a_second_key_of_a_party_is_not_signed_while_the_first_is_valid(invited):
    """Who intercepts a request, or repeats the invitation, cannot get a certificate beside the partner's."""
    signed(invited)
    path, _ = make_request(Path("stranger"), "loans", "telco")
    result = invited.call("keys", "sign", str(path))
    assert result.code == 2
    assert "expected no valid certificate of another key of telco" in result.error


def test_a_damaged_request_is_refused(invited):
    path, request = make_request(Path("stranger"), "loans", "telco")
    raw = bytearray(request.public_bytes(serialization.Encoding.DER))
    raw[-1] ^= 1
    damaged = x509.load_der_x509_csr(bytes(raw))
    with pytest.raises(TrustError, match="its signature does not match its key"):
        Authority(Path("keys")).sign(damaged, 30)
    assert path.exists()


def test_no_file_of_anybody_else_is_replaced(invited):
    """But a certificate, an invitation or a request of an earlier call is."""
    signed(invited)
    request = "there/keys/telco.request.pem"
    Path("mine").write_text("mine")
    shutil.copy("mine", "telco.pem")
    calls = (
        ("invite", "telco", "--address", "b:1", "--out", "mine"),
        ("sign", request),
        ("sign", request, "--out", "keys/ca.pem"),
        ("renew", "telco", "--out", "mine"),
        ("init", "mine", "--folder", "new"),
        ("request", "telco.invite", "--folder", "new"),
    )
    Path("new").mkdir()
    for name in ("mine.pem", "telco.request.pem"):
        shutil.copy("mine", f"new/{name}")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.suffix != ".lock"}
    for arguments in calls:
        result = invited.call("keys", *arguments)
        assert (result.code, "expected no file at" in result.error) == (2, True), arguments
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in Path("new").iterdir()} == {"mine.pem", "telco.request.pem", "keys.lock"}
    Path("telco.pem").unlink()
    for arguments in (
        ("sign", request),
        ("sign", request),
        ("renew", "telco"),
        ("invite", "telco", "--address", "b:1"),
    ):
        assert invited.call("keys", *arguments).code == 0


FILES = {
    "readable by others": (lambda files: files.key.chmod(0o640), "expected a key that only its owner can read"),
    "no key": (lambda files: files.key.unlink(), "cannot be read"),
    "key of another": (lambda files: shutil.copyfile("keys/bank.key", files.key), "expected the private key of"),
    "no certificate": (lambda files: files.cert.write_text("hello"), "expected a certificate in PEM"),
    "another authority": (lambda files: shutil.copyfile("other/ca.pem", files.ca), "signed by another authority"),
    "a foreign list": (lambda _: shutil.copyfile("other/crl.pem", "there/keys/crl.pem"), "authorities signed"),
    "a huge file": (lambda files: files.ca.write_bytes(bytes(2**21)), "at most 1,048,576 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_files_that_cannot_be_used(invited, what):
    signed(invited)
    Authority.create(Path("other"), "elsewhere", "bank")
    change, result = FILES[what]
    change(files_in(Path("there/keys"), "telco"))
    with pytest.raises(TrustError, match=result):
        Credentials(files_in(Path("there/keys"), "telco"))


def test_a_party_without_certificates_says_what_to_do(place):
    (place.folder / "bank.yaml").write_text("table: bank.csv\nid: id\nlabel: default\n")
    result = place.call("party", "job.yaml", "--as", "bank", "--local", "bank.yaml")
    assert result.code == 2
    assert "expected the certificate of bank at keys/bank.pem" in result.error
    assert "--plaintext links parties on this machine without one" in result.error


def test_a_certificate_that_soon_expires_is_pointed_out(invited):
    invited.call("keys", "renew", "bank", "--days", "3")
    (invited.folder / "bank.yaml").write_text("table: bank.csv\nid: id\nlabel: default\n")
    shared = {"bank": {"role": "active", "address": "127.0.0.1:1"}, "telco": {"role": "passive"}}
    invited.write(changed(JOB, {"parties": shared, "federation": "loans"}))
    party = ("party", "job.yaml", "--as", "bank", "--local", "bank.yaml", "--timeout", "0")
    result = invited.call(*party, "--preflight", "--json")
    assert "this party's certificate expires at " in result.err
    checks = {check["name"]: check["problem"] for check in result.document()["checks"]}
    assert not any(checks[name] for name in ("job", "table", "certificate", "address"))
    assert "did not connect" in checks["telco"] or "cannot listen" in checks["listen"]


@pytest.mark.parametrize("verb", ["request", "sign"])
def test_a_pipe_is_no_file_of_a_partner(invited, verb):
    os.mkfifo("pipe")
    result = invited.call("keys", verb, "pipe")
    assert (result.code, "expected a file at pipe, got a folder, pipe or device" in result.error) == (2, True)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("bank.invalid", "the host name bank.invalid is not known here"),
        ("192.0.2.1", "it is in use, or not an address"),
    ],
)
def test_an_address_that_is_not_of_this_machine_names_listen(invited, host, why):
    """As behind a router, and where the placeholder of `init` still stands."""
    (invited.folder / "bank.yaml").write_text("table: bank.csv\nid: id\nlabel: default\n")
    shared = {"bank": {"role": "active", "address": f"{host}:7070"}, "telco": {"role": "passive"}}
    invited.write(changed(JOB, {"parties": shared, "federation": "loans"}))
    result = invited.call("party", "job.yaml", "--as", "bank", "--local", "bank.yaml", "--preflight", "--json")
    problem = {check["name"]: check["problem"] for check in result.document()["checks"]}["listen"]
    assert f"cannot listen at {host}:7070: {why}" in problem
    assert "write listen: 0.0.0.0:7070 into the private file" in problem


def test_a_mistyped_invitation_is_named_with_the_nearest(invited):
    result = invited.call("keys", "request", "telco.invit")
    assert result.code == 2
    assert result.error == "telco.invit: cannot be read: No such file or directory; did you mean 'telco.invite'?\n"
