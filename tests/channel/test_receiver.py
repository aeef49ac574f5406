"""What a stream does with chunks on gRPC's own thread: it stores them, waits for nothing and raises nothing."""

from __future__ import annotations

import pytest

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.chunks import END, acknowledgement, split_frame
from cutlayer.channel.codec import FrameLimits, encode
from cutlayer.channel.stream import Arrival, Receiver, Stream
from cutlayer.errors import ProtocolError


def chunk(sequence: int) -> bytes:
    (only,) = split_frame([encode(Message(Kind.COMMITTED, "telco", "bank", "run", 0, -1, sequence))])
    return only


def opened(limits: FrameLimits = FrameLimits()) -> tuple[Stream, Receiver, Port]:  # noqa: B008 - frozen
    stream = Stream("telco", limits, timeout=1, reconnect=60)
    call, receiver = stream.attach(0), Receiver()
    assert call is not None
    receiver.begin(stream, call)
    return stream, receiver, Port("bank", "telco", "run", stream.transmit)


def test_a_frame_can_be_read_before_the_call_is_asked_for_the_next_chunk() -> None:
    stream, receiver, port = opened()
    assert receiver(chunk(0)) is Arrival.FRAME
    assert stream.receive(port).kind is Kind.COMMITTED
    assert receiver(acknowledgement(0)) is Arrival.PART
    assert receiver(END) is Arrival.END


def test_a_full_queue_does_not_block_the_thread_of_grpc() -> None:
    """It holds a lock of gRPC, and serves other calls; `pump` waits for room before it asks for more."""
    stream, receiver, port = opened(FrameLimits(queued_bytes=1))
    assert [receiver(chunk(number)) for number in range(3)] == [Arrival.FRAME] * 3
    assert [stream.receive(port).sequence for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("damage", [b"", b"\1", b"\2more", b"\7" * 9, acknowledgement(5)])
def test_damage_is_raised_in_the_thread_of_the_party(damage: bytes) -> None:
    stream, receiver, port = opened()
    arrivals = map(receiver, [chunk(0), damage, chunk(1)])
    assert stream.pump(arrivals) == ("it sent a damaged frame", True)
    stream.end("it sent a damaged frame")
    assert stream.receive(port).sequence == 0
    with pytest.raises(ProtocolError, match="in a frame from telco"):
        stream.receive(port)


def test_a_call_that_was_replaced_stores_nothing() -> None:
    stream, receiver, port = opened()
    assert receiver(chunk(0)) is Arrival.FRAME
    call, fresh = stream.attach(0), Receiver()
    assert call is not None
    fresh.begin(stream, call)
    assert receiver(chunk(1)) is Arrival.REPLACED
    assert fresh(chunk(1)) is Arrival.FRAME
    assert [stream.receive(port).sequence for _ in range(2)] == [0, 1]
    assert stream.received_frames == 2
    assert Receiver()(chunk(0)) is Arrival.REPLACED
