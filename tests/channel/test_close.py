"""What a peer said before it left is read before the broken link is reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.chunks import END, split_frame
from cutlayer.channel.codec import DEFAULT_LIMITS, encode
from cutlayer.channel.stream import Receiver, Stream
from cutlayer.errors import PeerLost


def test_a_farewell_is_read_although_the_party_was_about_to_send() -> None:
    stream = Stream("telco", DEFAULT_LIMITS, timeout=5)
    call = stream.attach(0)
    assert call is not None
    port = Port("bank", "telco", "run", stream.transmit)
    close = Message(Kind.CLOSE, "telco", "bank", "run", -1, -1, 0, fields={"reason": "Interrupted"})
    receiver = Receiver()
    receiver.begin(stream, call)
    why, final = stream.pump(map(receiver, [*split_frame([encode(close)]), END]))
    stream.detach(call, why, final=final)
    port.send(Kind.EPOCH_END, epoch=0, fields={"stop": False, "best": False})
    assert stream.receive(port).fields["reason"] == "Interrupted"
    with pytest.raises(PeerLost, match="it closed the link"):
        port.send(Kind.EPOCH_END, epoch=1, fields={"stop": False, "best": False})


class _EndedCall(grpc.Call):
    """A call of a passive party that the active party ended, with a status and without a chunk."""

    def __init__(self, status: grpc.StatusCode) -> None:
        self.status = status

    def code(self) -> grpc.StatusCode:
        return self.status

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    is_active = time_remaining = cancel = add_callback = initial_metadata = trailing_metadata = details = code


@pytest.mark.parametrize(
    ("status", "closing", "final"),
    [
        (grpc.StatusCode.OK, True, True),
        (grpc.StatusCode.UNAVAILABLE, True, False),
        (grpc.StatusCode.OK, False, False),
    ],
)
def test_a_peer_that_acts_on_the_end_before_grpc_reports_it_taken_did_not_break_the_link(
    status: grpc.StatusCode, *, closing: bool, final: bool
) -> None:
    """On a busy machine gRPC resumes the iterator of the chunks only after the peer has ended the call."""
    stream = Stream("bank", DEFAULT_LIMITS, timeout=5, reconnect=30)
    call = stream.attach(0)
    assert call is not None
    if closing:
        stream.finish()
        assert next(stream.outgoing(call)) == END  # taken, and not yet reported
    why = "this party closed the link" if final else "the connection broke"
    assert stream.pump(_EndedCall(status)) == (why, final)


def test_a_link_that_was_used_meanwhile_is_not_given_to_another_caller() -> None:
    stream = Stream("telco", DEFAULT_LIMITS, timeout=5, vacant=True)
    assert stream.attach(0, unused=True) is not None
    assert stream.attach(0, unused=True) is not None
    Port("bank", "telco", "run", stream.transmit).send(Kind.EPOCH_END, epoch=0, fields={"stop": False, "best": False})
    assert stream.attach(0, unused=True) is None
    assert stream.attach(0) is not None
