"""What a peer said before it left is read before the broken link is reported."""

from __future__ import annotations

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
