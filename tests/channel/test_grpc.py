"""Links between processes: what arrives, who is admitted, and what the loss of a peer looks like."""

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import torch

from cutlayer.channel import Kind, link
from cutlayer.channel.address import check_loopback
from cutlayer.channel.chunks import split_frame
from cutlayer.channel.codec import WIRE_VERSION, FrameLimits, encode
from cutlayer.channel.grpc_link import (
    FROM_KEY,
    LINK_BYTES,
    LINK_KEY,
    LINK_METHOD,
    NEXT_KEY,
    RUN_KEY,
    SERVICE,
    TO_KEY,
    WIRE_KEY,
)
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.errors import ConfigError, PeerLost, ProtocolError
from cutlayer.parties.drive.drive import drive
from tests.channel.links import connect, refuses
from tests.channel.parties import active, passive, run_here
from tests.parties.processes import forked, wait_for

HERE = "127.0.0.1:0"


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def greeting(reason="hello"):
    return {"kind": Kind.CLOSE, "fields": {"reason": reason}}


def raw_call(address, frames, wire=str(WIRE_VERSION), name=b"telco", more=(), **options):
    """A stream opened without the client, as a stranger might."""
    channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
    metadata = ((FROM_KEY, name), (TO_KEY, b"bank"), (WIRE_KEY, wire), *more)
    return channel, channel.stream_stream(f"/{SERVICE}/{LINK_METHOD}")(frames, metadata=metadata, timeout=10, **options)


def status_of(address, frames=(), **options):
    channel, call = raw_call(address, iter(frames), **options)
    with channel, pytest.raises(grpc.RpcError) as refused:
        list(call)
    return refused.value.code().name


def test_messages_cross_both_ways_to_the_bit():
    numbers = torch.randn(50, 8)
    numbers[0, 0], numbers[0, 1] = -0.0, float("nan")
    with (
        ServerLinks(HERE, "bank", ["telco", "shop"], "run 1", timeout=10) as bank,
        connect(bank.address, "shop", "bank", timeout=10) as shop,
        connect(bank.address, "telco", "bank", timeout=10) as telco,
    ):
        bank.wait_for_peers()
        assert [*bank.ports] == ["telco", "shop"]
        assert telco.run == shop.run == telco.port.run == "run 1"
        for name, passive in (("telco", telco), ("shop", shop)):
            passive.port.send(Kind.EMBEDDING, epoch=1, step=2, rows=bytes(16), tensors={"embedding": numbers})
            arrived = bank.receive(bank.ports[name])
            bank.ports[name].send(Kind.GRADIENT, epoch=1, step=2, tensors={"gradient": arrived.tensors["embedding"]})
            back = passive.receive(passive.port)
            assert (arrived.sender, arrived.epoch, arrived.step, arrived.rows) == (name, 1, 2, bytes(16))
            assert back.tensors["gradient"].numpy().tobytes() == numbers.numpy().tobytes()
        assert bank.ports["telco"].traffic[1].total() == telco.port.traffic[0].total() == numbers.nbytes


def test_names_and_runs_may_hold_any_character():
    with (
        ServerLinks(HERE, "Bank Ä", ["téléphone 1"], "läuft", timeout=10) as bank,
        connect(bank.address, "téléphone 1", "Bank Ä", timeout=10) as telco,
    ):
        telco.port.send(**greeting())
        assert bank.receive(bank.ports["téléphone 1"]).run == "läuft"


@pytest.mark.parametrize("run", ["run\n12:00:00 all is well", "run\x1b[2J", "r" * 65])
def test_a_run_id_that_could_write_lines_is_refused(run):
    with (
        ServerLinks(HERE, "bank", ["telco"], run, timeout=10) as bank,
        pytest.raises(ProtocolError, match="a run id of at most 64 printable characters from bank, got 'r") as refused,
    ):
        connect(bank.address, "telco", "bank", timeout=10)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("address", [HERE, "localhost:0"])
def test_no_proxy_stands_between(address, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with (
        ServerLinks(address, "bank", ["telco"], "run", timeout=10) as bank,
        connect(bank.address, "telco", "bank", timeout=10) as telco,
    ):
        bank.ports["telco"].send(**greeting())
        assert telco.receive(telco.port).fields["reason"] == "hello"


def test_closing_delivers_what_was_sent():
    small = FrameLimits(queued_bytes=4 * 2**20)
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=10) as bank:
        with connect(bank.address, "telco", "bank", small, timeout=10) as telco:
            bank.ports["telco"].send(**greeting("early"))
            for step in range(8):
                telco.port.send(Kind.EMBEDDING, step=step, tensors={"embedding": torch.full((2**18, 1), step + 0.5)})
            telco.port.send(**greeting("done"))
        port = bank.ports["telco"]
        for step in range(8):
            assert bank.receive(port).tensors["embedding"][-1] == step + 0.5
        assert bank.receive(port).fields["reason"] == "done"
        with pytest.raises(PeerLost, match="lost telco: it closed the link"):
            bank.receive(port)
        with pytest.raises(PeerLost, match="lost telco: it closed the link"):
            port.send(**greeting())


def test_the_active_party_may_leave_first():
    bank = ServerLinks(HERE, "bank", ["telco"], "run", timeout=10)
    with connect(bank.address, "telco", "bank", timeout=10) as telco:
        for _ in range(100):
            bank.ports["telco"].send(**greeting("done"))
        bank.close()
        bank.close()
        assert [telco.receive(telco.port).fields["reason"] for _ in range(100)] == ["done"] * 100
        with pytest.raises(PeerLost, match="lost bank: it closed the link"):
            telco.receive(telco.port)


def test_closing_waits_until_the_peer_has_read_the_end(monkeypatch):
    reads = threading.Event()
    bank = ServerLinks(HERE, "bank", ["telco"], "run", timeout=10)
    with connect(bank.address, "telco", "bank", timeout=10) as telco:
        wait = telco._stream._inbox.wait_for_room
        monkeypatch.setattr(telco._stream._inbox, "wait_for_room", lambda: reads.wait() and wait())
        bank.ports["telco"].send(**greeting("done"))
        closing = threading.Thread(target=bank.close)
        closing.start()
        closing.join(0.5)
        assert closing.is_alive()  # the end of its calls could reset the connection
        reads.set()
        assert telco.receive(telco.port).fields["reason"] == "done"
        with pytest.raises(PeerLost, match="lost bank: it closed the link"):
            telco.receive(telco.port)
        closing.join()


def test_a_client_waits_for_a_server_that_starts_late():
    with ServerLinks(HERE, "bank", ["telco"], "run") as first:
        address = first.address
    late = []
    starter = threading.Timer(0.5, lambda: late.append(ServerLinks(address, "bank", ["telco"], "late", timeout=10)))
    starter.start()
    with connect(address, "telco", "bank", timeout=10) as telco:
        assert telco.run == "late"
        starter.join()
        late[0].close()


def test_silence_is_a_lost_peer():
    with ServerLinks(HERE, "bank", ["telco", "shop"], "run", timeout=10) as bank:
        with pytest.raises(PeerLost, match="lost telco: it did not connect"):
            bank.receive(bank.ports["telco"], timeout=0.1)
        with connect(bank.address, "telco", "bank", timeout=10):
            with pytest.raises(PeerLost, match="lost telco: it sent nothing"):
                bank.receive(bank.ports["telco"], timeout=0.1)
            with pytest.raises(PeerLost, match=r"lost shop: did not connect to 127\.0\.0\.1:\d+ within 0.1 s"):
                bank.wait_for_peers(timeout=0.1)


def test_waiting_is_repeated_with_the_address_that_the_peers_use(monkeypatch):
    monkeypatch.setattr("cutlayer.channel.grpc_server.REMINDER_SECONDS", 0.05)
    lines = []
    with ServerLinks(HERE, "bank", ["telco"], "run", public_address="bank.example:7070", notify=lines.append) as bank:
        bank.join_problems["telco"] = "another job"
        with pytest.raises(PeerLost, match=r"lost telco: did not connect to bank\.example:7070 within 0\.3 s"):
            bank.wait_for_peers(timeout=0.3)
    assert lines[0] == f"waiting for telco, which connects to bank.example:7070; this party listens at {bank.address}"
    assert lines[1].startswith("still waiting for telco, for up to 0 s; it cannot join: another job")


def test_nobody_listens():
    with ServerLinks(HERE, "bank", [], "run") as gone:
        address = gone.address
    start = time.monotonic()
    with pytest.raises(PeerLost, match=f"lost bank: it does not answer at {address} within 0.3 s"):
        connect(address, "telco", "bank", timeout=0.3)
    assert time.monotonic() - start < 2


def test_a_peer_that_takes_nothing_is_lost_and_memory_stays_bounded():
    little = FrameLimits(queued_bytes=2**20)

    def flood(port):
        while port.traffic[0].total() < 2**30:
            port.send(Kind.GRADIENT, tensors={"gradient": torch.zeros(2**17, 1)})
            yield port

    with (
        ServerLinks(HERE, "bank", ["telco"], "run", little, timeout=0.3) as bank,
        connect(bank.address, "telco", "bank", little, timeout=10) as telco,
    ):
        bank.wait_for_peers()
        with pytest.raises(PeerLost, match="lost telco: it accepted no message"):
            drive(flood(bank.ports["telco"]), lambda port: None)
        assert bank.ports["telco"].traffic[0].total() < 64 * 2**20
        assert telco.receive(telco.port).kind == Kind.GRADIENT


def test_only_the_named_parties_are_admitted_and_each_once():
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=10) as bank:
        with pytest.raises(ProtocolError, match=r"bank at .* refused the link: this job has no passive party 'eve'"):
            connect(bank.address, "eve", "bank", timeout=10)
        with pytest.raises(ProtocolError, match="refused the link: this is 'bank', not 'shop'"):
            connect(bank.address, "telco", "shop", timeout=10)
        assert status_of(bank.address, wire="1") == "FAILED_PRECONDITION"
        assert status_of(bank.address, name=b"\xff") == "PERMISSION_DENIED"
        with connect(bank.address, "telco", "bank", timeout=10) as telco:
            telco.port.send(**greeting("first"))
            assert bank.receive(bank.ports["telco"]).fields["reason"] == "first"
            with pytest.raises(ProtocolError, match="a stream of 'telco' was opened before"):
                connect(bank.address, "telco", "bank", timeout=1)
            telco.port.send(**greeting("still here"))
            assert bank.receive(bank.ports["telco"]).fields["reason"] == "still here"


def test_a_name_that_a_stranger_took_and_left_is_free_again():
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=10) as bank:
        for _ in range(5):
            channel, call = raw_call(bank.address, iter(()))
            with channel:
                list(call)
        with connect(bank.address, "telco", "bank", timeout=10) as telco:
            telco.port.send(**greeting("mine"))
            assert bank.receive(bank.ports["telco"]).fields["reason"] == "mine"


def test_a_stranger_who_takes_a_name_and_keeps_silent_does_not_lock_out_its_owner():
    silent = threading.Event()
    waiting = []

    def nothing():
        silent.wait(20)
        yield from ()

    with ServerLinks(HERE, "bank", ["telco", "shop"], "run", timeout=10) as bank:
        try:
            for _ in range(4):
                channel, call = raw_call(bank.address, nothing())
                call.initial_metadata()
                waiting.append(channel)
            taken = threading.Thread(target=lambda: waiting.append(bank.receive(bank.ports["telco"])))
            taken.start()
            with connect(bank.address, "telco", "bank", timeout=10) as telco:
                telco.port.send(**greeting("mine"))
                taken.join(10)
                assert waiting.pop().fields["reason"] == "mine"
                bank.ports["telco"].send(**greeting("yours"))
                assert telco.receive(telco.port).fields["reason"] == "yours"
        finally:
            silent.set()
            for channel in waiting:
                channel.close()


@pytest.mark.parametrize("link", [b"", b"s" * LINK_BYTES])
def test_a_caller_that_was_replaced_cannot_take_the_link_back(link):
    """It was given the name of the run before the owner came; a link belongs to the process that carried a message."""
    more = ((LINK_KEY, link),) if link else ()
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=10, reconnect=10) as bank:
        channel, call = raw_call(bank.address, iter(()), more=more)
        with channel:
            assert dict(call.initial_metadata())[RUN_KEY] == b"run"
        with connect(bank.address, "telco", "bank", timeout=10, reconnect=10) as telco:
            telco.port.send(**greeting("mine"))
            assert bank.receive(bank.ports["telco"]).fields["reason"] == "mine"
            again = ((RUN_KEY, b"run"), (NEXT_KEY, "0"), *more)
            assert status_of(bank.address, more=again) == "FAILED_PRECONDITION"
            bank.ports["telco"].send(**greeting("yours"))
            assert telco.receive(telco.port).fields["reason"] == "yours"


def test_a_party_that_was_heard_and_left_is_lost_and_not_replaced():
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=10) as bank:
        with connect(bank.address, "telco", "bank", timeout=10) as telco:
            telco.port.send(Kind.COMMITTED, epoch=3)
            assert bank.receive(bank.ports["telco"]).kind == Kind.COMMITTED
        with pytest.raises(PeerLost, match=r"it closed the link; the last .* was committed of epoch 3$") as lost:
            bank.receive(bank.ports["telco"])
        assert lost.value.peer == "telco"
        with pytest.raises(ProtocolError, match="was opened before"):
            connect(bank.address, "telco", "bank", timeout=1)


def test_the_port_is_closed_while_all_are_connected_and_messages_cross():
    with ServerLinks(HERE, "bank", ["telco", "shop"], "run", timeout=10, shut_when_complete=True) as bank:
        with (
            connect(bank.address, "telco", "bank", timeout=10) as telco,
            connect(bank.address, "shop", "bank", timeout=10) as shop,
        ):
            telco.port.send(**greeting("telco"))
            bank.receive(bank.ports["telco"])
            assert not refuses(bank.address)  # the other one may be a stranger who keeps silent
            shop.port.send(**greeting("shop"))
            bank.receive(bank.ports["shop"])
            wait_for(lambda: refuses(bank.address), "the end of the port", 10)
            for party in (telco, shop):
                bank.ports[party.port.me].send(**greeting("labels"))
                assert party.receive(party.port).fields["reason"] == "labels"
                party.port.send(**greeting("grades"))
                assert bank.receive(bank.ports[party.port.me]).fields["reason"] == "grades"
            assert refuses(bank.address)
        with pytest.raises(PeerLost):
            bank.receive(bank.ports["telco"])
        assert refuses(bank.address)  # who has left is not waited for


def test_another_service_is_no_party():
    stranger = grpc.server(ThreadPoolExecutor(1))
    port = stranger.add_insecure_port(HERE)
    stranger.start()
    with pytest.raises(ProtocolError, match="got another service"):
        connect(f"127.0.0.1:{port}", "telco", "bank", timeout=10)
    stranger.stop(None).wait()


FOREIGN = encode(link("eve", "bank", "run")[0].send(**greeting()))


@pytest.mark.parametrize("chunks", [[b""], [b"rubbish"], split_frame([b"rubbish"]), split_frame([FOREIGN])])
def test_a_bad_frame_names_who_sent_it(chunks):
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=10) as bank:
        channel, _call = raw_call(bank.address, iter(chunks))
        with channel, pytest.raises(ProtocolError, match="telco"):
            bank.receive(bank.ports["telco"])


@pytest.mark.parametrize(
    ("options", "status"),
    [({}, "RESOURCE_EXHAUSTED"), ({"compression": grpc.Compression.Gzip}, "UNIMPLEMENTED")],
)
def test_an_oversized_or_compressed_frame_never_arrives(options, status, capfd):
    with ServerLinks(HERE, "bank", ["telco"], "run", FrameLimits(frame_bytes=2**16), timeout=0.5) as bank:
        assert status_of(bank.address, [bytes(2**24)], **options) == status
        with pytest.raises(PeerLost, match="telco"):
            bank.receive(bank.ports["telco"])


def test_an_oversized_message_fails_where_it_is_sent():
    with (
        ServerLinks(HERE, "bank", ["telco"], "run", FrameLimits(frame_bytes=2**16), timeout=10) as bank,
        pytest.raises(ProtocolError, match="a frame of at most 65536 bytes"),
    ):
        bank.ports["telco"].send(Kind.GRADIENT, tensors={"gradient": torch.zeros(2**14, 2)})


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:1", "192.168.1.7:50051", "example.org:443", "[::]:1", "[fe80::1]:1", "localhost.example:1", "127.1:1"],
)
def test_without_tls_only_loopback(address):
    for attempt in (lambda: ServerLinks(address, "bank", [], "run"), lambda: connect(address, "telco", "bank")):
        with pytest.raises(ConfigError, match="links without TLS stay on this machine"):
            attempt()


@pytest.mark.parametrize(
    "address",
    ["", "localhost", ":50051", "localhost:", "unix:/run/link", "localhost:70000", "localhost:-1", "127.0.0.1:²"],
)
def test_an_address_needs_a_port(address):
    with pytest.raises(ConfigError, match="an address as HOST:PORT"):
        check_loopback(address)


@pytest.mark.parametrize("address", ["127.0.0.1:50051", "127.9.8.7:1", "localhost:0", "[::1]:50051"])
def test_loopback_addresses(address):
    assert check_loopback(address) == address


def test_an_address_in_use_is_an_error(capfd):
    with (
        ServerLinks(HERE, "bank", [], "run") as bank,
        pytest.raises(ConfigError, match=f"cannot listen at {bank.address}: it is in use"),
    ):
        ServerLinks(bank.address, "bank", [], "run")


def learns(address):
    """The passive party of `tests.channel.parties`, in a process of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with connect(address, "telco", "bank", timeout=30) as link:
            assert drive(passive(link.port), link.receive) == "done"


def waits(address):
    """A passive party that sends one message and waits for an answer."""
    with connect(address, "telco", "bank", timeout=30) as link:
        link.port.send(Kind.COMMITTED)
        link.receive(link.port)


def test_two_processes_learn_what_one_learns():
    bank, telco = link("bank", "telco", "run")
    here = run_here(active(bank), passive(telco))
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=30) as links:
        other = forked(learns, links.address)
        apart = drive(active(links.ports["telco"]), links.receive)
    assert other.wait() == 0
    assert apart == here


def test_a_killed_peer_is_lost_at_once():
    with ServerLinks(HERE, "bank", ["telco"], "run", timeout=30) as links:
        other = forked(waits, links.address)
        assert links.receive(links.ports["telco"]).kind == Kind.COMMITTED
        other.kill()
        start = time.monotonic()
        with pytest.raises(PeerLost, match="lost telco: "):
            links.receive(links.ports["telco"])
        assert time.monotonic() - start < 5
        other.wait()
