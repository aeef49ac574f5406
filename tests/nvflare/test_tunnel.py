"""Links through a hub: it reads nothing, and what it changes breaks a connection, which heals, or ends the run."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.channel import Kind
from cutlayer.channel.grpc_client import ClientLink
from cutlayer.channel.grpc_link import Keepalive
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.errors import PeerLost, ProtocolError, TrustError
from cutlayer_nvflare.tunnel import MAX_CONNECTIONS, PIECE_BYTES, Segment, Tunnel
from tests.channel.links import connect
from tests.nvflare.kits import security

MARK = 1234567.0
Harm = Callable[[Segment], list[Segment] | None]


class Hub:
    """Carries pieces between two sites, keeps all it sees, and may harm those from the passive site.

    `harm` returns what is delivered: nothing is a piece that the hub takes and loses, `None` one without an answer.
    """

    def __init__(self, harm: Harm | None = None) -> None:
        self.seen: list[Segment] = []
        self.harm = harm
        self.tunnels = {site: Tunnel(self._from(site)) for site in ("site-1", "site-2")}

    def _from(self, sender: str) -> Callable[[str, Segment], bool]:
        return lambda site, piece: self.carry(sender, site, piece)

    def carry(self, sender: str, site: str, piece: Segment) -> bool:
        self.seen.append(piece)
        harmed = self.harm(piece) if self.harm is not None and sender == "site-2" else [piece]
        if harmed is None:
            raise OSError("no answer")
        answers = [self.tunnels[site].receive(sender, each) for each in harmed]
        return all(answers)


@contextmanager
def linked(kits: Path, hub: Hub, **options: Any) -> Iterator[tuple[ServerLinks, ClientLink]]:
    """Bank at site-1 and telco at site-2, with nothing between them but the hub."""
    pings = Keepalive(interval=0.3, timeout=1.0)  # what follows a lost piece shows that it is missing
    quick = {"timeout": 5.0, "reconnect": 5.0, "notify": lambda text: None, "keepalive": pings, **options}
    with (
        hub.tunnels["site-1"] as near,
        hub.tunnels["site-2"] as far,
        ServerLinks("127.0.0.1:0", "bank", ["telco"], "run", security=security(kits, "site-1"), **quick) as bank,
    ):
        near.lead_to("127.0.0.1", int(bank.address.rpartition(":")[2]))
        with connect(far.entrance("site-1"), "telco", "bank", security=security(kits, "site-2"), **quick) as telco:
            yield bank, telco


def exchange(bank: ServerLinks, telco: ClientLink, steps: int = 4, rows: int = 4_000) -> None:
    """Embeddings one way and back as gradients; every number is the one that was sent."""
    for step in range(steps):
        numbers = torch.full((rows, 4), MARK) + step
        telco.port.send(Kind.EMBEDDING, epoch=1, step=step, rows=bytes(16), tensors={"embedding": numbers})
        arrived = bank.receive(bank.ports["telco"])
        assert torch.equal(arrived.tensors["embedding"], numbers)
        bank.ports["telco"].send(Kind.GRADIENT, epoch=1, step=step, tensors={"gradient": numbers})
        assert torch.equal(telco.receive(telco.port).tensors["gradient"], numbers)


def test_the_hub_carries_every_bit_and_reads_none(kits: Path) -> None:
    hub = Hub()
    with linked(kits, hub) as (bank, telco):
        exchange(bank, telco, steps=2, rows=100_000)
    crossed = b"".join(piece.content for piece in hub.seen)
    assert len(crossed) > 4 * 100_000 * 16
    assert max(len(piece.content) for piece in hub.seen) <= PIECE_BYTES
    assert struct.pack("<f", MARK) * 2 not in crossed
    for word in (b"embedding", b"telco", b"cutlayer", b"example_project"):  # even names and certificates are encrypted
        assert word not in crossed


class Once:
    """Does something to the first full piece of each of the first connections: those after the handshake."""

    def __init__(self, what: str, times: int = 1) -> None:
        self.what, self.left, self.kept = what, times, None

    def __call__(self, piece: Segment) -> list[Segment] | None:
        if self.kept is not None and piece.connection == self.kept.connection:
            earlier, self.kept = self.kept, None
            return [piece, earlier]  # the later one first
        if self.left == 0 or len(piece.content) < 20_000:
            return [piece]
        self.left -= 1
        changed = bytes([piece.content[500] ^ 1])
        match self.what:
            case "flip":
                return [replace(piece, content=piece.content[:500] + changed + piece.content[501:])]
            case "truncate":
                return [replace(piece, content=piece.content[:-1])]
            case "lose":
                return []
            case "no answer":
                return None
            case "repeat":
                return [piece, piece]
            case "repeat as the next":
                return [piece, replace(piece, number=piece.number + 1)]
            case "reorder":
                self.kept = piece
                return []
            case "inject":
                return [replace(piece, content=bytes(1000)), replace(piece, number=piece.number + 1)]
            case _:
                return [replace(piece, connection="0" * 16)]


HARMS = [
    "flip",
    "truncate",
    "lose",
    "no answer",
    "repeat",
    "repeat as the next",
    "reorder",
    "inject",
    "other connection",
]


@pytest.mark.parametrize("what", HARMS)
def test_what_the_hub_changes_changes_no_number(kits: Path, what: str) -> None:
    """Each break heals: the link connects again and repeats what was lost."""
    hub = Hub()
    with linked(kits, hub) as (bank, telco):
        hub.harm = harm = Once(what)
        exchange(bank, telco)
        assert harm.left == 0


def test_a_hub_that_changes_everything_ends_the_link(kits: Path) -> None:
    hub, quick = Hub(), {"timeout": 0.4, "reconnect": 0.2}
    with linked(kits, hub, **quick) as (bank, telco):
        exchange(bank, telco, steps=1)
        hub.harm = Once("flip", times=10**6)
        with pytest.raises((PeerLost, ProtocolError)):
            exchange(bank, telco)
        hub.harm = None  # the link is closed in order


def test_the_hub_cannot_be_a_party(kits: Path) -> None:
    """Its certificate is of the same authority, but its name is not one that the job has."""
    as_telco = security(kits, "server", telco="cn:server")
    with (
        ServerLinks("127.0.0.1:0", "bank", ["telco"], "run", security=security(kits, "site-1")) as bank,
        pytest.raises(ProtocolError, match="expected the certificate of a party of this job, got that of cn:server"),
    ):
        connect(bank.address, "telco", "bank", timeout=0.5, security=as_telco, notify=lambda text: None)
    with (
        ServerLinks(
            "127.0.0.1:0", "bank", ["telco"], "run", security=security(kits, "server", bank="cn:server")
        ) as hub,
        pytest.raises(TrustError, match="wrong name"),
    ):
        connect(hub.address, "telco", "bank", timeout=0.5, security=security(kits, "site-2"), notify=lambda text: None)


def test_pieces_that_do_not_fit_are_refused() -> None:
    tunnel = Tunnel(lambda site, piece: True)
    name = "0123456789abcdef"
    with closing(socket.create_server(("127.0.0.1", 0))) as door, tunnel:
        assert not tunnel.receive("site-2", Segment(name, 0, b"x"))  # this site leads nowhere yet
        tunnel.lead_to(*door.getsockname())
        for wrong in (
            Segment(name, 1, b"not the first"),
            Segment(name, -1, b""),
            Segment("short", 0, b""),
            Segment(name, 0, bytes(PIECE_BYTES + 1)),
            Segment(name, "0", b""),  # type: ignore[arg-type]
            Segment(None, 0, b""),  # type: ignore[arg-type]
            Segment(name, 0, "text"),  # type: ignore[arg-type]
            Segment(name, True, b""),
        ):
            assert not tunnel.receive("site-2", wrong)
        taken = [tunnel.receive("site-2", Segment(f"{number:016}", 0, b"x")) for number in range(MAX_CONNECTIONS + 5)]
        assert sum(taken) == MAX_CONNECTIONS
        assert tunnel.receive("site-3", Segment(name, 0, b"x"))  # another site is not shut out by it


def test_a_party_that_reads_nothing_holds_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer_nvflare.tunnel.TAKE_SECONDS", 1)
    with closing(socket.create_server(("127.0.0.1", 0))) as party, Tunnel(lambda site, piece: True) as site:
        site.lead_to(*party.getsockname())
        # More than the buffers of both sockets hold, which are some megabytes.
        taken = [site.receive("site-1", Segment("c" * 16, number, bytes(PIECE_BYTES))) for number in range(100)]
        near, _ = party.accept()
        near.close()
    assert taken[0]
    assert not taken[-1]


def test_an_end_of_one_direction_leaves_the_other_open() -> None:
    hub = Hub()
    with closing(socket.create_server(("127.0.0.1", 0))) as door, hub.tunnels["site-1"] as near, hub.tunnels["site-2"]:
        near.lead_to(*door.getsockname())
        host, port = hub.tunnels["site-2"].entrance("site-1").split(":")
        with socket.create_connection((host, int(port)), 5) as one:
            one.sendall(b"question")
            other, _ = door.accept()
            one.shutdown(socket.SHUT_WR)
            with other:
                assert b"".join(iter(lambda: other.recv(100), b"")) == b"question"
                other.sendall(b"answer")
                other.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: one.recv(100), b"")) == b"answer"
