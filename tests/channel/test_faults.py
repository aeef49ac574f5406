"""Links through a bad network, and peers that freeze, return as somebody else, or lie about what they have."""

from __future__ import annotations

import signal
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from cutlayer.channel import Kind
from cutlayer.channel.chunks import CHUNK_BYTES, Assembler, acknowledgement, split_frame
from cutlayer.channel.codec import WIRE_VERSION, FrameLimits
from cutlayer.channel.grpc_client import ClientLink
from cutlayer.channel.grpc_link import LINK_METHOD, SERVICE, TO_KEY, WIRE_KEY, Keepalive
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.channel.security import Security
from cutlayer.channel.tls.authority import files_in
from cutlayer.channel.tls.files import Credentials
from cutlayer.errors import PeerLost, ProtocolError
from tests.channel.certificates import Federation
from tests.channel.links import connect, refuses
from tests.parties.processes import forked, wait_for
from tools.faults.fuzz import fuzz
from tools.faults.proxy import Faults, Proxy
from tools.faults.trial import STEPS, certificates, run_trial

HERE = "127.0.0.1:0"
FAST = Keepalive(interval=0.5, timeout=0.5)


@pytest.fixture(scope="module")
def security():
    with certificates() as made:
        yield made


@contextmanager
def linked(security, **options):
    """Both ends of a link through a proxy: the active party's, the proxy, and the passive party's."""
    with (
        ServerLinks(HERE, "bank", ["telco"], "run", security=security["bank"], **options) as bank,
        Proxy(bank.address) as proxy,
        connect(proxy.address, "telco", "bank", security=security["telco"], **options) as telco,
    ):
        yield bank, proxy, telco


def greeting(reason="hello"):
    return {"kind": Kind.CLOSE, "fields": {"reason": reason}}


@pytest.mark.parametrize("seed", range(3))
def test_random_faults_end_in_the_right_numbers_or_a_named_error(security, seed, monkeypatch):
    """1,000 of these, whose parties are more patient: `python -m tools.faults`."""
    monkeypatch.setattr("tools.faults.trial.PATIENCE", 1.5)
    monkeypatch.setattr("tools.faults.trial.RECONNECT", 1.0)
    outcome = run_trial(seed, security)
    assert not outcome.wrong, outcome
    for error in outcome.errors.values():
        assert "bank" in error or "telco" in error


def test_changed_frames_are_refused_or_valid():
    """A million of these: `python -m tools.faults --frames 1000000`."""
    found = fuzz(2000)
    assert not found.wrong, found
    assert found.refused > 1000
    assert found.refused + found.decoded == found.frames == 2000
    assert found.longest_error < 1000


def test_the_trial_notices_wrong_numbers(security, monkeypatch):
    monkeypatch.setattr("tools.faults.trial.sent", lambda seed, step: torch.rand(4, 8))
    outcome = run_trial(0, security)
    assert "WrongNumbers" in outcome.ended.values()
    assert outcome.wrong


def exchanged(bank, telco, proxy, cuts):
    """Send in both directions while the connection is cut again and again; what arrived at each side."""
    numbers = [torch.randn(40_000, 8) for _ in range(4)]
    total, seen = 4 * STEPS, []

    def leading():
        for step in range(total):
            message = bank.receive(bank.ports["telco"])
            seen.append(message.step)
            assert torch.equal(message.tensors["embedding"], numbers[step % 4])
            bank.ports["telco"].send(Kind.GRADIENT, step=step, tensors={"gradient": numbers[-step % 4]})

    thread = threading.Thread(target=leading)
    thread.start()
    back = []
    for step in range(total):
        telco.port.send(Kind.EMBEDDING, step=step, tensors={"embedding": numbers[step % 4]})
        if step % (total // cuts) == total // cuts // 2:
            proxy.cut()
        message = telco.receive(telco.port)
        assert torch.equal(message.tensors["gradient"], numbers[-step % 4])
        back.append(message.step)
    thread.join(20)
    return seen, back, list(range(total))


def test_a_closed_connection_heals_and_nothing_is_lost_or_repeated(security):
    result = []
    with linked(security, timeout=10, reconnect=10, notify=result.append) as (bank, proxy, telco):
        seen, back, wanted = exchanged(bank, telco, proxy, cuts=4)
        assert seen == back == wanted
    assert len([text for text in result if text == "connected to bank again; nothing was lost"]) == 4


def test_messages_of_one_direction_survive_too(security):
    """Nothing comes back but acknowledgements; more is on its way than a connection holds."""
    with linked(security, timeout=10, reconnect=10, notify=lambda text: None) as (bank, proxy, telco):
        content = torch.randn(30_000, 8)
        arrived = []
        thread = threading.Thread(
            target=lambda: arrived.extend(bank.receive(bank.ports["telco"]).step for _ in range(60))
        )
        thread.start()
        for step in range(60):
            telco.port.send(Kind.EMBEDDING, step=step, tensors={"embedding": content})
            if step % 20 == 10:
                proxy.cut()
        thread.join(20)
        assert arrived == list(range(60))


def test_what_a_party_sent_last_arrives_although_the_connection_broke(security):
    options = {"timeout": 10, "reconnect": 10, "notify": lambda text: None}
    with (
        ServerLinks(HERE, "bank", ["telco"], "run", security=security["bank"], **options) as bank,
        Proxy(bank.address) as proxy,
    ):
        with connect(proxy.address, "telco", "bank", security=security["telco"], **options) as telco:
            telco.port.send(**greeting("first"))
            assert bank.receive(bank.ports["telco"]).fields["reason"] == "first"
            proxy.cut()
            telco.port.send(**greeting("last"))
        assert bank.receive(bank.ports["telco"]).fields["reason"] == "last"


def test_a_network_that_swallows_everything_is_noticed(security):
    options = {"timeout": 60, "reconnect": 1, "keepalive": FAST, "notify": lambda text: None}
    with linked(security, **options) as (bank, proxy, telco):
        telco.port.send(Kind.COMMITTED, epoch=4)
        assert bank.receive(bank.ports["telco"]).kind == Kind.COMMITTED
        proxy.silent = True
        began = time.monotonic()
        with pytest.raises(PeerLost, match=r"lost telco: .*; no connection since, for 1 s; .* committed of epoch 4"):
            bank.receive(bank.ports["telco"])
        with pytest.raises(PeerLost, match="lost bank: "):
            telco.receive(telco.port)
        assert time.monotonic() - began < 20


def client(address: str, keys: Path) -> None:
    """What the process does that will be frozen."""
    identities = {name: f"spiffe://loans/{name}" for name in ("bank", "telco")}
    security = Security(Credentials(files_in(keys, "telco")), identities)
    with ClientLink(address, "telco", "bank", timeout=30, reconnect=1, security=security) as link:
        link.open(30)
        link.port.send(Kind.COMMITTED)
        link.receive(link.port)


def test_a_frozen_process_is_noticed_long_before_the_deadline_of_a_step(tmp_path: Path):
    made = Federation(tmp_path, "telco")
    options = {"timeout": 300, "reconnect": 1, "keepalive": FAST, "notify": lambda text: None}
    with ServerLinks(HERE, "bank", ["telco"], "run", security=made.security("bank"), **options) as bank:
        frozen = forked(client, bank.address, tmp_path / "telco")
        try:
            assert bank.receive(bank.ports["telco"]).kind == Kind.COMMITTED
            frozen.signal(signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(PeerLost, match="lost telco: "):
                bank.receive(bank.ports["telco"])
            assert time.monotonic() - began < 20
        finally:
            frozen.kill()
            frozen.wait()


def test_a_party_that_was_started_anew_ends_the_run_at_once(security):
    """Its messages are gone with its process: a replay cannot help, and waiting would not either."""
    options = {"timeout": 60, "reconnect": 60, "notify": lambda text: None}
    with (
        ServerLinks(HERE, "bank", ["telco"], "run", security=security["bank"], **options) as bank,
        Proxy(bank.address) as proxy,
    ):
        link = connect(proxy.address, "telco", "bank", security=security["telco"], **{**options, "reconnect": 0})
        link.port.send(**greeting())
        bank.receive(bank.ports["telco"])
        proxy.cut()
        with pytest.raises(PeerLost, match="lost bank"):
            link.receive(link.port)
        link.close()
        deadline = time.monotonic() + 10
        while not bank._streams["telco"].is_reconnecting and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(ProtocolError, match="a stream of 'telco' was opened before"):
            connect(bank.address, "telco", "bank", security=security["telco"], **{**options, "timeout": 1})
        with pytest.raises(PeerLost, match="lost telco: it was started anew; resume at all parties"):
            bank.receive(bank.ports["telco"])


def test_a_first_connection_that_breaks_before_the_run_is_known_is_opened_again(security, monkeypatch):
    """The active party has accepted it and may have sent already; only the passive party does not know of it."""
    options = {"timeout": 10, "reconnect": 10, "notify": lambda text: None}
    attach, lost = ClientLink._attach, []

    def break_first(link, connection, limit):
        if not lost:
            lost.append(connection)
            assert bank._streams["telco"].opened.wait(10)
            bank.ports["telco"].send(**greeting("sent before the connection broke"))
            raise PeerLost("lost bank: the connection broke", "bank")
        attach(link, connection, limit)

    monkeypatch.setattr(ClientLink, "_attach", break_first)
    with (
        ServerLinks(HERE, "bank", ["telco"], "run", security=security["bank"], **options) as bank,
        connect(bank.address, "telco", "bank", security=security["telco"], **options) as telco,
    ):
        assert lost
        assert telco.receive(telco.port).fields["reason"] == "sent before the connection broke"
        telco.port.send(**greeting("answer"))
        assert bank.receive(bank.ports["telco"]).fields["reason"] == "answer"


def test_a_second_process_of_a_connected_party_disturbs_nothing(security):
    options = {"timeout": 10, "reconnect": 10, "notify": lambda text: None}
    with (
        ServerLinks(HERE, "bank", ["telco"], "run", security=security["bank"], **options) as bank,
        connect(bank.address, "telco", "bank", security=security["telco"], **options) as telco,
    ):
        telco.port.send(**greeting("one"))
        assert bank.receive(bank.ports["telco"]).fields["reason"] == "one"
        with pytest.raises(ProtocolError, match="was opened before"):
            connect(bank.address, "telco", "bank", security=security["telco"], **{**options, "timeout": 1})
        telco.port.send(**greeting("two"))
        assert bank.receive(bank.ports["telco"]).fields["reason"] == "two"


LIES = {
    "an acknowledgement of what was not sent": [acknowledgement(7)],
    "the rest of no frame": [b"\2abc"],
    "another kind of chunk": [b"\7" + bytes(20)],
    "a frame that is too large": [b"\1" + (2**31).to_bytes(4, "little")],
    "a chunk that is too small": [b"\1" + (2 * CHUNK_BYTES).to_bytes(4, "little") + b"x"],
    "a frame that is interrupted": [split_frame([bytes(2 * CHUNK_BYTES)])[0], split_frame([b"new"])[0]],
}


@pytest.mark.parametrize("what", LIES)
def test_a_partner_who_breaks_the_rules_of_chunks_is_named(security, what):
    with ServerLinks(
        HERE, "bank", ["telco"], "run", timeout=10, security=security["bank"], notify=lambda text: None
    ) as bank:
        channel, _ = security["telco"].open_channel(bank.address, "bank", ())
        with channel:
            metadata = ((TO_KEY, b"bank"), (WIRE_KEY, str(WIRE_VERSION)))
            call = channel.stream_stream(f"/{SERVICE}/{LINK_METHOD}")(iter(LIES[what]), metadata=metadata)
            with pytest.raises(ProtocolError, match="in a frame from telco: expected"):
                bank.receive(bank.ports["telco"])
            call.cancel()


def test_small_chunks_cannot_fill_the_memory():
    """Each chunk but the last is full: a frame of 64 MiB is at most 64 objects and not one for each byte."""
    assembler = Assembler(FrameLimits())
    assert assembler.add(b"\1" + (64 * 2**20).to_bytes(4, "little") + bytes(CHUNK_BYTES)) is None
    with pytest.raises(ProtocolError, match="expected a chunk with 1048576 bytes of its frame, got 1"):
        assembler.add(b"\2x")


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_a_frame_of_any_size_is_put_together_again(size):
    content = torch.randint(256, (size,), dtype=torch.uint8).numpy().tobytes()
    cut = size // 3
    chunks = split_frame([content[:cut], b"", content[cut:]])
    assembler = Assembler(FrameLimits())
    *before, last = [assembler.add(chunk) for chunk in chunks]
    assert before == [None] * (len(chunks) - 1)
    assert b"".join(last) == content


def test_the_proxy_does_what_its_schedule_says():
    one, other = Faults(3, 1.0), Faults(3, 1.0)
    pieces = [bytes([n]) * 50 for n in range(40)]
    assert [one(piece) for piece in pieces] == [other(piece) for piece in pieces]
    assert set(one.done) == set(Faults.KINDS)
    assert Faults(3, 0.0)(b"abc") == b"abc"


def _again(lines):
    return [line for line in lines if "connected again" in line]


@contextmanager
def _met(lines, reconnect):
    """The ends of a link whose port shuts once the party has been heard, and the proxy between them."""
    options = {"timeout": 10, "reconnect": reconnect}
    with (
        ServerLinks(HERE, "bank", ["telco"], "run", shut_when_complete=True, notify=lines.append, **options) as bank,
        Proxy(bank.address) as proxy,
        connect(proxy.address, "telco", "bank", **options) as telco,
    ):
        telco.port.send(**greeting("before"))
        bank.receive(bank.ports["telco"])
        yield bank, proxy, telco


def test_the_port_opens_for_a_connection_that_broke_and_closes_again():
    lines = []
    with _met(lines, reconnect=10) as (bank, proxy, telco):
        for broken in (1, 2):
            wait_for(lambda: refuses(bank.address), "the end of the port", 10)
            proxy.cut()
            wait_for(lambda broken=broken: len(_again(lines)) == broken, "a connection", 10)
        wait_for(lambda: refuses(bank.address), "the end of the port", 10)
        telco.port.send(**greeting("after"))
        assert bank.receive(bank.ports["telco"]).fields["reason"] == "after"


def test_a_port_that_another_process_took_meanwhile_loses_the_peer_and_says_why():
    lines = []
    with _met(lines, reconnect=1.0) as (bank, proxy, _telco):
        wait_for(lambda: refuses(bank.address), "the end of the port", 10)
        host, port = bank.address.rsplit(":", 1)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((host, int(port)))
            other.listen()
            proxy.cut()
            with pytest.raises(PeerLost, match="no connection since"):
                bank.receive(bank.ports["telco"])
        assert any("cannot listen at" in line for line in lines)
