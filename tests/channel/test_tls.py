"""Links with certificates on both sides: who is let in, what a refusal says, and what survives a new certificate."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import grpc
import pytest
import torch
from cryptography import x509

from cutlayer.channel import Kind, Message
from cutlayer.channel.codec import WIRE_VERSION
from cutlayer.channel.contract import Contract
from cutlayer.channel.grpc_client import ClientLink
from cutlayer.channel.grpc_link import (
    ENDED_FIELD,
    FROM_KEY,
    LINK_METHOD,
    MAX_CONNECTIONS,
    NEXT_KEY,
    RUN_KEY,
    SERVICE,
    TO_KEY,
    WIRE_KEY,
)
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.channel.receiving import check_not_closed, close_reason
from cutlayer.channel.tls import files as certificate_files
from cutlayer.channel.tls import probe as probe_of_certificates
from cutlayer.channel.tls.files import Credentials
from cutlayer.errors import PeerLost, ProtocolError, TrustError
from tests.channel.certificates import Federation
from tests.channel.links import connect

HERE = "127.0.0.1:0"


@pytest.fixture
def made(tmp_path: Path) -> Federation:
    return Federation(tmp_path, "telco", "shop")


def greeting(reason="hello"):
    return {"kind": Kind.CLOSE, "fields": {"reason": reason}}


def served(made, notify=None, peers=("telco",), **options):
    return ServerLinks(HERE, "bank", peers, "run", timeout=5, security=made.security("bank"), notify=notify, **options)


def joined(made, address, party="telco", timeout=5.0, **options):
    security = options.pop("security", None) or made.security(party)
    return connect(address, party, "bank", timeout=timeout, security=security, **options)


def unchecked():
    """A party that does not check its own certificate, as a hostile or careless one."""
    return patch.object(certificate_files, "check_own", lambda loaded: None)


def test_messages_cross_both_ways_to_the_bit(made):
    numbers = torch.randn(300_000, 8)
    with (
        served(made, peers=("telco", "shop")) as bank,
        joined(made, bank.address) as telco,
        joined(made, bank.address, "shop") as shop,
    ):
        bank.wait_for_peers()
        for name, passive in (("telco", telco), ("shop", shop)):
            passive.port.send(Kind.EMBEDDING, epoch=1, step=2, rows=bytes(16), tensors={"embedding": numbers})
            arrived = bank.receive(bank.ports[name])
            bank.ports[name].send(Kind.GRADIENT, epoch=1, step=2, tensors={"gradient": arrived.tensors["embedding"]})
            back = passive.receive(passive.port)
            assert back.tensors["gradient"].numpy().tobytes() == numbers.numpy().tobytes()


WRONG = {
    "expired": ({"end": timedelta(days=-1)}, "expired"),
    "not valid yet": ({"begin": timedelta(days=1)}, "not valid yet"),
    "self-signed": ({"self_signed": True}, "self-signed"),
    "another name": ({"stated": "shop"}, "wrong name"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_server_with_a_wrong_certificate_is_refused_and_the_reason_said(made, what):
    change, result = WRONG[what]
    made.replace("bank", **change)
    text = []
    with (
        unchecked(),
        ServerLinks(
            HERE,
            "bank",
            ["telco"],
            "run",
            timeout=1,
            security=made.security("bank", bank=f"spiffe://loans/{change.get('stated', 'bank')}"),
        ) as bank,
    ):
        with pytest.raises(TrustError, match=result):
            joined(made, bank.address, timeout=0.5, notify=text.append)
        with pytest.raises(PeerLost, match="did not connect"):
            bank.wait_for_peers(0)
    assert len(text) == 1
    assert text[0].startswith(f"waiting for bank at {bank.address}, for up to ")


def test_a_party_cannot_sign_certificates_for_others(made, capfd):
    """Shop signs a certificate of bank with its own, which an authority signed."""
    made.replace("bank", signer="shop")
    with unchecked(), served(made) as bank, pytest.raises(TrustError, match="refused here: invalid CA certificate"):
        joined(made, bank.address, timeout=0.3)
    made.replace("telco", signer="shop")
    made.replace("bank")
    with unchecked(), served(made) as bank, pytest.raises(TrustError, match="refused this party's certificate"):
        joined(made, bank.address, timeout=0.3)


@pytest.mark.parametrize("what", ["expired", "not valid yet", "self-signed"])
def test_a_client_with_a_wrong_certificate_is_refused_and_told_so(made, what, capfd):
    change, _ = WRONG[what]
    made.replace("telco", **change)
    with served(made) as bank:
        with unchecked(), pytest.raises(TrustError, match=r"refused this party's certificate \(spiffe://loans/telco"):
            joined(made, bank.address, timeout=0.5)
        with pytest.raises(PeerLost, match="did not connect"):
            bank.wait_for_peers(0)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("what", ["expired", "not valid yet", "self-signed"])
def test_a_wrong_certificate_is_noticed_by_its_own_party_first(made, what):
    change, result = WRONG[what]
    made.replace("telco", **change)
    with pytest.raises(TrustError, match="not valid before" if what == "not valid yet" else result) as refused:
        made.security("telco")
    assert (f"the clock here, {datetime.now(UTC):%Y-%m-%d}" in str(refused.value)) == (what != "self-signed")


@pytest.mark.parametrize(
    ("identity", "remedy"),
    [
        ("spiffe://cutlayer/telco", "write federation: loans into the job, at all parties"),
        ("spiffe://loans/telko", "compare the name of the party with the job"),
    ],
)
def test_a_job_of_another_identity_names_what_differs(made, identity, remedy):
    own = made.security("telco", telco=identity)
    with pytest.raises(TrustError, match=f"expected the certificate of {identity} in .*telco.pem.*; {remedy}"):
        own.check_own("telco")


def test_a_client_with_the_certificate_of_another_party_is_that_party(made):
    """The name is that of the certificate, whatever the call says."""
    result = []
    with served(made, result.append) as bank:
        stranger = made.security("shop")
        with patch.object(type(stranger), "check_own"), pytest.raises(ProtocolError, match="no passive party 'shop'"):
            joined(made, bank.address, security=stranger)
    assert [text for text in result if "refused a caller at 127.0.0.1: this job has no passive party 'shop'" in text]


def test_a_certificate_of_another_federation_of_the_same_authority_is_refused(made):
    made.identities["telco"] = "spiffe://other/telco"
    result = []
    with served(made, result.append) as bank:
        with pytest.raises(ProtocolError, match="expected the certificate of a party of this job, got that of spiffe"):
            joined(made, bank.address, security=made.security("telco", telco="spiffe://loans/telco"))
        with pytest.raises(TrustError, match="wrong name"):
            joined(
                made,
                bank.address,
                timeout=0.3,
                security=made.security("shop", bank="spiffe://other/bank"),
                party="shop",
            )
    assert len([text for text in result if "spiffe://loans/telco" in text]) == 1


def test_a_client_without_a_certificate_never_reaches_us(made, capfd):
    with served(made) as bank:
        ca = made.files("bank").ca.read_bytes()
        with (
            grpc.secure_channel(
                bank.address,
                grpc.ssl_channel_credentials(ca),
                [("grpc.ssl_target_name_override", "party.cutlayer.invalid")],
            ) as channel,
            pytest.raises(grpc.RpcError) as refused,
        ):
            channel.unary_unary(f"/{SERVICE}/Greet")(b"", timeout=5)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert bank.join_problems == {}


def test_a_revoked_client_is_refused_without_a_restart(made):
    shown = []
    with served(made, shown.append) as bank:
        with joined(made, bank.address) as telco:
            telco.port.send(**greeting())
            assert bank.receive(bank.ports["telco"]).kind == Kind.CLOSE
            telco.port.send(Kind.COMMITTED, epoch=0)
            made.authority.revoke("telco")
            result = (
                r"the certificate of spiffe://loans/telco \(serial \w+\) is revoked; invite the party again .*--resume"
            )
            with pytest.raises(TrustError, match=result) as refused:
                bank.receive(bank.ports["telco"])
            left = Message(
                Kind.CLOSE, "bank", "telco", "run", -1, -1, 0, fields={"reason": close_reason(refused.value)}
            )
            with pytest.raises(ProtocolError, match="bank left: it does not accept a certificate any more; its output"):
                check_not_closed(left)
        with pytest.raises(
            ProtocolError, match=r"refused the link: the certificate of spiffe://loans/telco .* revoked"
        ):
            joined(made, bank.address)
    assert [text for text in shown if "refused a caller at 127.0.0.1: the certificate of spiffe://loans/telco" in text]


def test_lists_and_authorities_count_each(made, tmp_path):
    """Two federations in one file: every list is read, and a serial number is that of its own authority alone."""
    other = Federation(tmp_path / "others", "telco")
    made.authority.revoke("shop")
    other.authority.revoke("telco")
    for federation in (made, other):
        federation.publish()
    files = other.files("telco")
    revoked = [federation.files(party).cert for federation, party in ((made, "shop"), (other, "telco"))]
    for pair in (("bank", "others/bank"), ("others/bank", "bank")):
        for name in ("ca.pem", "crl.pem"):
            (files.ca.parent / name).write_bytes(b"".join((tmp_path / folder / name).read_bytes() for folder in pair))
        loaded = certificate_files.load_files(files)
        chains = [x509.load_pem_x509_certificates(path.read_bytes()) for path in (*revoked, made.files("telco").cert)]
        assert [loaded.is_revoked(chain[0]) for chain in chains] == [True, True, False]
        assert all(certificate_files.is_signed_by(chain, loaded.authorities) for chain in chains)
        assert not certificate_files.is_signed_by(chains[0], loaded.authorities[pair[0] == "bank" :][:1])
    of_another = frozenset({(chains[0][0].subject.public_bytes(), chains[0][0].serial_number)})
    assert not replace(loaded, revoked=of_another).is_revoked(chains[0][0])
    (files.ca.parent / "ca.pem").write_bytes((tmp_path / "bank" / "ca.pem").read_bytes())
    with pytest.raises(TrustError, match=r"a list in .* that one of the authorities signed"):
        certificate_files.load_files(files)


def test_the_first_list_that_runs_out_is_the_one_to_replace(made, tmp_path, monkeypatch):
    other = Federation(tmp_path / "others")
    monkeypatch.setattr("cutlayer.channel.tls.authority.LIST_DAYS", 3)
    other.authority.invite("late")
    with other.authority._locked_record():
        other.authority._write_list()
    files = made.files("telco")
    for first, second in (("bank", "others/bank"), ("others/bank", "bank")):
        for name in ("ca.pem", "crl.pem"):
            (files.ca.parent / name).write_bytes(
                b"".join((tmp_path / folder / name).read_bytes() for folder in (first, second))
            )
        until = certificate_files.load_files(files).lists_until
        assert until is not None
        assert until - datetime.now(UTC) < timedelta(days=4)


def test_a_revoked_server_is_refused(made):
    with served(made) as bank:
        made.authority.revoke("bank")
        made.publish()
        with pytest.raises(TrustError, match=r"the certificate of spiffe://loans/bank \(serial \w+\) is revoked"):
            joined(made, bank.address, timeout=0.3)


def test_a_job_that_names_another_identity_refuses_the_right_certificate(made):
    with served(made) as bank, pytest.raises(TrustError, match="spiffe://loans/treasury, which the job names"):
        joined(made, bank.address, timeout=0.3, security=made.security("telco", bank="spiffe://loans/treasury"))


def test_ones_own_certificate_must_be_the_one_that_the_job_names(made):
    with pytest.raises(TrustError, match=r"expected the certificate of spiffe://loans/treasury in .*bank\.pem"):
        ServerLinks(HERE, "bank", ["telco"], "run", security=made.security("bank", bank="spiffe://loans/treasury"))


def test_a_man_in_the_middle_with_a_certificate_of_the_federation_is_refused(made):
    """He relays the probe to the right party and answers the call himself: the channel accepts the probed one alone."""
    text = []
    with served(made) as bank:
        target = ("127.0.0.1", int(bank.address.rpartition(":")[2]))
        with closing(socket.create_server(("127.0.0.1", 0))) as door:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            files = made.files("shop")
            context.load_cert_chain(files.cert, files.key)
            context.set_alpn_protocols(["h2"])
            seen = threading.Thread(target=relay_once_then_pose, args=(door, target, context), daemon=True)
            seen.start()
            address = f"127.0.0.1:{door.getsockname()[1]}"
            with pytest.raises(PeerLost):
                joined(made, address, timeout=0.2, notify=text.append)
            assert "CERTIFICATE_VERIFY_FAILED" in text[0]
        assert bank.join_problems == {}


def relay_once_then_pose(door, target, context):
    for first in (True, False):
        connection, _ = door.accept()
        with connection:
            if first:
                with socket.create_connection(target) as onward:
                    copies = [
                        threading.Thread(target=copy, args=pair, daemon=True)
                        for pair in ((connection, onward), (onward, connection))
                    ]
                    for thread in copies:
                        thread.start()
                    copies[0].join(5)
                continue
            try:
                with context.wrap_socket(connection, server_side=True) as posed:
                    posed.recv(100)
            except OSError:
                pass


def copy(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_a_server_without_tls_is_named(made):
    result = r"expected TLS at .* was it started with --plaintext\?"
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=5) as plain, pytest.raises(TrustError, match=result):
        joined(made, plain.address, timeout=0.3)


def test_a_client_without_tls_does_not_get_in(made):
    with served(made) as bank, pytest.raises(PeerLost, match="does not answer"):
        connect(bank.address, "telco", "bank", timeout=0.3, notify=lambda text: None)


def test_nobody_at_the_address(made):
    with socket.socket() as bound:  # its port is taken, so that no other process can listen there
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(PeerLost, match="is not reachable"):
            joined(made, f"127.0.0.1:{bound.getsockname()[1]}", timeout=0.2)


def test_a_host_that_is_not_known(made):
    with pytest.raises(PeerLost, match="is not known"):
        joined(made, "nobody.invalid:1", timeout=0.2)


def test_silence_at_the_address(made):
    silent = socket.create_server(("127.0.0.1", 0))
    with closing(silent), pytest.raises(PeerLost, match=r"or does not answer, within 0.5 s"):
        joined(made, f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)


def test_handshakes_that_are_cut_are_no_refusal(made, monkeypatch):
    """A certificate that is refused is refused each time."""
    answer, cut = probe_of_certificates._answer, iter(range(4))
    monkeypatch.setattr(
        probe_of_certificates, "_answer", lambda secure: answer(secure) if next(cut, None) is None else b""
    )
    with served(made) as bank, joined(made, bank.address):
        bank.wait_for_peers()
    assert next(cut, None) is None


def test_a_connection_that_is_closed_at_once_is_tried_again(made):
    """As by a party that has as many connections as it takes: no certificate was refused."""
    with closing(socket.create_server(("127.0.0.1", 0))) as door:
        threading.Thread(target=close_all, args=(door,), daemon=True).start()
        with pytest.raises(PeerLost, match=r"closed the connection|is not reachable"):
            joined(made, f"127.0.0.1:{door.getsockname()[1]}", timeout=0.3)


def close_all(door):
    with suppress(OSError):
        while True:
            connection, _ = door.accept()
            connection.recv(4096)
            connection.close()


def test_strangers_who_only_connect_do_not_use_up_the_files_of_a_party(made):
    """Without a bound each is an open file, and the next checkpoint of the party cannot be opened."""
    with served(made) as bank, joined(made, bank.address) as telco, ExitStack() as opened:
        target = ("127.0.0.1", int(bank.address.rpartition(":")[2]))
        begun = {opened.enter_context(socket.create_connection(target)) for _ in range(MAX_CONNECTIONS + 50)}
        closed, deadline = set(), time.monotonic() + 60
        while len(closed) < 50 and time.monotonic() < deadline:
            ready, _, _ = select.select([*(begun - closed)], [], [], 1)
            closed |= {stranger for stranger in ready if ended(stranger)}
        assert len(closed) >= 50
        telco.port.send(**greeting())
        assert bank.receive(bank.ports["telco"]).kind == Kind.CLOSE


@pytest.mark.parametrize("who", ["telco", "shop"])
def test_greetings_that_do_not_come_keep_nobody_away(made, who):
    """Of a party that was revoked, and of one of the job: each would hold one of a few threads."""
    made.add("estate")
    made.identities["estate"] = "spiffe://loans/estate"
    with served(made, peers=("telco", "estate")) as bank, ExitStack() as opened:
        if who == "shop":
            made.authority.revoke(who)
        silent, files = threading.Event(), made.files(who)
        held = grpc.ssl_channel_credentials(files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes())
        name = [("grpc.ssl_target_name_override", "party.cutlayer.invalid")]
        channel = opened.enter_context(grpc.secure_channel(bank.address, held, name))
        opened.callback(silent.set)
        calls = [channel.stream_unary(f"/{SERVICE}/Greet").future(nothing_until(silent)) for _ in range(8)]
        refused = sum(done(call) for call in calls)
        assert refused >= len(calls) - (who == "telco")
        with joined(made, bank.address, "estate", timeout=20) as estate:
            estate.port.send(**greeting())
            assert bank.receive(bank.ports["estate"]).kind == Kind.CLOSE


def nothing_until(event):
    event.wait()
    yield from ()


def done(call):
    """Whether a call ends by itself within some seconds, and not by the bound of a greeting."""
    try:
        return call.exception(timeout=3) is not None
    except grpc.FutureTimeoutError:
        return False


def ended(stranger):
    try:
        return not stranger.recv(1)
    except OSError:
        return True


def test_another_job_is_named_key_by_key_at_both_sides(made):
    here, there = (Contract({"train": {"batch_size": size, "epochs": 3}}) for size in (8192, 4096))
    at_bank, at_telco = [], []
    with served(made, at_bank.append, contract=here) as bank:
        with pytest.raises(ProtocolError, match=r"other job: train.batch_size: 4096 here, 8192 there"):
            joined(made, bank.address, timeout=0.3, contract=there, notify=at_telco.append)
        with pytest.raises(PeerLost, match=r"telco cannot join: other job: train.batch_size: 8192 here, 4096 there"):
            bank.wait_for_peers(0)
    assert len(at_telco) == 1
    assert [text for text in at_bank if "telco at 127.0.0.1 cannot join: other job: train.batch_size: 8192" in text]


def test_another_version_is_named(made):
    result = r"other version: cutlayer .* here, 9\.9 at bank; install the same"
    with (
        served(made, contract=Contract(version="9.9")) as bank,
        patch("cutlayer.channel.grpc_connection.WIRE_VERSION", 99),
        pytest.raises(ProtocolError, match=result),
    ):
        joined(made, bank.address, timeout=0.3)


def test_a_preflight_opens_no_link(made):
    with served(made, greet_only=True) as bank:
        link = ClientLink(bank.address, "telco", "bank", security=made.security("telco"))
        link.greet()
        link.close()
        assert bank.wait_for_greetings(5) == {"telco": ""}
        with pytest.raises(PeerLost, match=r"bank runs its preflight"):
            joined(made, bank.address, timeout=0.3)
        assert bank.wait_for_greetings(0.1) == {"telco": ""}


def test_a_party_that_ended_before_its_link_says_so_and_may_come_again(made):
    """Without it the label owner waits for minutes, and knows nothing."""
    at_bank = []
    ended = "it ended before it connected, and its output says why; it may be started again"
    with served(made, notify=at_bank.append) as bank:
        link = ClientLink(bank.address, "telco", "bank", security=made.security("telco"))
        with link, pytest.raises(ProtocolError, match=f"bank says: {ended}"):
            link.greet(**{ENDED_FIELD: "the limit 0.05 of health, which nobody else may read"})
        assert at_bank == [f"telco at 127.0.0.1 cannot join: {ended}"]
        with pytest.raises(PeerLost, match=f"within 0 s; telco cannot join: {ended}"):
            bank.wait_for_peers(0)
        with joined(made, bank.address):
            bank.wait_for_peers()


def test_a_renewed_certificate_is_taken_up_at_the_end_of_an_epoch(made):
    """Both sides renew while they are linked; no message is lost, and nobody restarts."""
    result = []
    with served(made, result.append, reconnect=10) as bank, joined(made, bank.address, reconnect=10) as telco:
        first = bank._certificates["telco"].serial_number
        telco.port.send(**greeting("before"))
        assert bank.receive(bank.ports["telco"]).fields["reason"] == "before"
        made.authority.renew("bank", 30, made.files("bank").cert)
        made.authority.renew("telco", 30, made.files("telco").cert)
        bank.ports["telco"].send(Kind.EPOCH_END, epoch=0, fields={"stop": False, "best": True})
        assert telco.receive(telco.port).kind == Kind.EPOCH_END
        for number in range(3):
            telco.port.send(**greeting(f"after {number}"))
            bank.ports["telco"].send(**greeting(f"down {number}"))
        assert [bank.receive(bank.ports["telco"]).fields["reason"] for _ in range(3)] == [
            f"after {n}" for n in range(3)
        ]
        assert [telco.receive(telco.port).fields["reason"] for _ in range(3)] == [f"down {n}" for n in range(3)]
        assert bank._certificates["telco"].serial_number != first
    assert [text for text in result if "connected again" in text]


def test_a_new_revocation_list_is_not_reported_as_a_new_certificate(made):
    text = []
    credentials = Credentials(made.files("bank"), text.append)
    made.authority.revoke("telco")
    credentials.current()
    assert text == ["the revocation list was replaced; certificates on it: 1"]
    made.authority.renew("bank", 30, made.files("bank").cert)
    credentials.current()
    assert "this party's certificate is valid until" in text[1]


def test_a_server_is_given_a_new_configuration_only_where_its_files_are_new(made, monkeypatch):
    """gRPC replaces what its handshakes use without a lock: one at every connection ended the process."""
    fetchers = []
    real = grpc.dynamic_ssl_server_credentials

    def recorded(first, fetch, **options):
        fetchers.append(fetch)
        return real(first, fetch, **options)

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", recorded)
    with served(made):
        fetch = fetchers.pop()
        assert [fetch() for _ in range(3)] == [None] * 3
        made.authority.revoke("shop")
        assert fetch() is None  # the list is read at each call
        made.authority.renew("bank", 30, made.files("bank").cert)
        assert isinstance(fetch(), grpc.ServerCertificateConfiguration)
        assert fetch() is None


def test_half_replaced_files_stay_without_effect(made):
    credentials = made.security("telco").credentials
    before = credentials.current()
    key = made.files("telco").key
    old = key.read_bytes()
    key.write_bytes(made.files("shop").key.read_bytes())
    assert credentials.current() is before
    assert "expected the private key of" in credentials.problem
    key.write_bytes(old)
    assert credentials.current() == before
    assert not credentials.problem


def test_a_run_id_that_was_heard_does_not_let_another_party_in(made):
    """Shop knows the run and claims to be telco: its certificate says otherwise."""
    result = []
    with served(made, result.append, peers=("telco", "shop"), reconnect=5) as bank, joined(made, bank.address) as telco:
        telco.port.send(**greeting("mine"))
        bank.receive(bank.ports["telco"])
        channel, _ = made.security("shop").open_channel(bank.address, "bank", ())
        metadata = (
            (FROM_KEY, b"telco"),
            (TO_KEY, b"bank"),
            (WIRE_KEY, str(WIRE_VERSION)),
            (RUN_KEY, b"run"),
            (NEXT_KEY, "0"),
        )
        with channel:
            call = channel.stream_stream(f"/{SERVICE}/{LINK_METHOD}")(iter(()), metadata=metadata)
            assert list(call) == []
        telco.port.send(**greeting("still mine"))
        assert bank.receive(bank.ports["telco"]).fields["reason"] == "still mine"
    assert [text.partition(" from")[0] for text in result] == ["telco connected", "shop connected"]


def test_strangers_do_not_disturb_a_link(made, capfd):
    """Idle sockets, garbage, half a handshake, no certificate, and callers with a certificate but no place."""
    with served(made) as bank, joined(made, bank.address) as telco:
        port = int(bank.address.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        for number, each in enumerate(idle):
            each.sendall((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0" * 5000)[number % 3])
        for _ in range(20):
            bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
            try:
                with socket.create_connection(("127.0.0.1", port)) as raw, bare.wrap_socket(raw) as secure:
                    secure.recv(1)
            except OSError:
                pass
        began = time.monotonic()
        for number in range(50):
            telco.port.send(**greeting(str(number)))
            assert bank.receive(bank.ports["telco"]).fields["reason"] == str(number)
        assert time.monotonic() - began < 5
        for each in idle:
            each.close()


def test_a_pipe_is_no_certificate_and_nobody_waits_for_it(tmp_path: Path) -> None:
    federation = Federation(tmp_path, "telco")
    files = federation.security("telco").credentials.files
    files.cert.unlink()
    os.mkfifo(files.cert)
    with pytest.raises(TrustError, match="a folder, a device or a pipe"):
        certificate_files.load_files(files)
