"""The driver of one party."""

import pytest
import torch

from cutlayer.channel import Kind, link
from cutlayer.errors import PeerLost, ProtocolError
from cutlayer.parties.drive.drive import drive, drive_together


@pytest.fixture
def ends():
    return link("bank", "telco", "run")


def counting(port, closed):
    try:
        total = 0
        while (message := (yield port)).kind == Kind.READY:
            total += message.fields["width"]
        return total
    finally:
        closed.append(True)


def test_a_party_is_resumed_until_it_returns(ends):
    bank, telco = ends
    for width in (1, 2, 3):
        telco.send(Kind.READY, fields={"order": "", "width": width, "pilot": ""})
    telco.send(Kind.COMMITTED)
    asked, closed = [], []

    def receive(port):
        asked.append(port)
        return port.arrived.popleft()

    random = torch.get_rng_state()
    assert drive(counting(bank, closed), receive) == 6
    assert asked == [bank] * 4
    assert closed == [True]
    assert torch.equal(torch.get_rng_state(), random)


def test_a_party_that_waits_for_nothing_returns_at_once():
    def party():
        return 7
        yield

    assert drive(party(), lambda port: pytest.fail("asked")) == 7


def test_a_lost_peer_closes_the_party(ends):
    bank, _ = ends
    closed = []

    def receive(port):
        raise PeerLost("lost telco: gone")

    with pytest.raises(PeerLost, match="telco"):
        drive(counting(bank, closed), receive)
    assert closed == [True]


def test_parties_that_all_wait_are_named(ends):
    bank, telco = ends
    closed = []
    with pytest.raises(ProtocolError, match="no message is in transit: bank for telco, telco for bank"):
        drive_together({"bank": counting(bank, closed), "telco": counting(telco, closed)})
    assert closed == [True, True]


def leaving(port):
    """Sends one message and returns."""
    port.send(Kind.READY, fields={"order": "", "width": 1, "pilot": ""})
    return "left"
    yield


def losing(port):
    """Loses a peer of its own after the first message."""
    yield port
    raise PeerLost("lost shop: gone")


def staying(port):
    """Sends one message, and goes on without the peer that it waits for."""
    port.send(Kind.READY, fields={"order": "", "width": 1, "pilot": ""})
    try:
        yield port
    except PeerLost:
        return "stayed"


def test_a_party_that_is_lost_ends_the_run_unless_another_goes_on_without_it(ends):
    bank, telco = ends
    with pytest.raises(PeerLost, match="shop"):
        drive_together({"bank": losing(bank), "telco": leaving(telco)})
    bank, telco = link("bank", "telco", "run")
    assert drive_together({"bank": losing(bank), "telco": staying(telco)}) == {"telco": "stayed"}
