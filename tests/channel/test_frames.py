"""The queues between a party's thread and gRPC's: bounded, ended with a reason, and repeatable until acknowledged."""

import threading
import time

import pytest

from cutlayer.channel.frames import ACK_BYTES, MAX_FRAMES, CallReplaced, FramesEnded, Inbox, Outbox


def frame(content):
    return (memoryview(content),)


def always():
    return True


def fill(box, frames, size=1):
    for number in range(frames):
        box.put((bytes([number % 256]) * size,), timeout=0)


def test_frames_leave_in_the_order_they_came():
    inbox = Inbox(100)
    for content in (b"a", b"bb", b"ccc"):
        inbox.add(frame(content))
    assert [bytes(inbox.get()[0]) for _ in range(3)] == [b"a", b"bb", b"ccc"]


@pytest.mark.parametrize(("inbox", "content"), [(Inbox(10), bytes(6)), (Inbox(2**20, frames=2), b"")])
def test_a_full_inbox_stops_the_reading_of_a_call(inbox, content):
    for _ in range(2):
        inbox.add(frame(content))
    began = time.monotonic()
    threading.Timer(0.1, inbox.get).start()
    inbox.wait_for_room()
    assert time.monotonic() - began > 0.05


def test_an_empty_inbox_makes_the_reader_wait():
    inbox = Inbox(10)
    with pytest.raises(TimeoutError):
        inbox.get(timeout=0.01)
    threading.Timer(0.05, inbox.add, [frame(b"late")]).start()
    assert bytes(inbox.get(timeout=5)[0]) == b"late"


def test_the_end_of_an_inbox_comes_after_its_frames():
    inbox = Inbox(10)
    inbox.add(frame(b"last"))
    inbox.end("it left")
    inbox.end("a later reason")
    inbox.add(frame(b"too late"))
    inbox.wait_for_room()
    assert inbox.has_frames
    assert bytes(inbox.get()[0]) == b"last"
    assert not inbox.has_frames
    with pytest.raises(FramesEnded, match="it left"):
        inbox.get()


def test_sent_frames_are_stored_until_the_peer_has_them():
    outbox = Outbox(100)
    fill(outbox, 5)
    assert [outbox.take(number, always) for number in range(5)] == [((bytes([n]),), n + 1) for n in range(5)]
    assert outbox.resume_at(2)
    assert outbox.take(2, always) == ((b"\2",), 3)
    assert outbox.resume_at(2)
    assert not outbox.resume_at(1)
    assert not outbox.resume_at(6)


@pytest.mark.parametrize("count", [-1, 6, 2**63])
def test_what_was_not_sent_cannot_be_acknowledged(count):
    outbox = Outbox(100)
    fill(outbox, 5)
    assert not outbox.drop_acknowledged(count)
    assert outbox.drop_acknowledged(3)
    assert outbox.drop_acknowledged(2)
    assert not outbox.resume_at(2)
    assert outbox.take(3, always) == ((b"\3",), 4)


def test_a_sender_waits_while_too_much_is_on_its_way():
    outbox = Outbox(2 * ACK_BYTES)
    fill(outbox, 3, ACK_BYTES)
    with pytest.raises(TimeoutError):
        outbox.put((b"",), timeout=0.01)
    threading.Timer(0.05, outbox.drop_acknowledged, [1]).start()
    outbox.put((b"",), timeout=5)


def test_a_frame_of_any_size_enters_an_outbox_below_its_capacity():
    outbox = Outbox(10)
    outbox.put((bytes(2 * ACK_BYTES),), timeout=0)
    outbox.put((bytes(2 * ACK_BYTES),), timeout=0)
    with pytest.raises(TimeoutError):
        outbox.put((b"",), timeout=0)


def test_empty_frames_are_counted_too():
    outbox = Outbox(2**30)
    for _ in range(MAX_FRAMES):
        outbox.put((b"",), timeout=0)
    with pytest.raises(TimeoutError):
        outbox.put((b"",), timeout=0.01)
    assert MAX_FRAMES * 128 < 4 * 2**20


def test_an_acknowledgement_goes_before_the_next_frame():
    outbox = Outbox(100)
    fill(outbox, 1)
    outbox.acknowledge(6)
    outbox.acknowledge(7)
    assert outbox.take(0, always) == ((b"\3" + (7).to_bytes(8, "little"),), 0)
    assert outbox.take(0, always) == ((b"\0",), 1)


def test_a_call_that_was_replaced_sends_nothing_more():
    outbox = Outbox(100)
    wanted = threading.Event()
    wanted.set()
    seen = []

    def replaced():
        with pytest.raises(CallReplaced):
            outbox.take(0, wanted.is_set)
        seen.append("ended")

    waiting = threading.Thread(target=replaced)
    waiting.start()
    wanted.clear()
    outbox.wake()
    waiting.join(5)
    fill(outbox, 1)
    assert seen == ["ended"]


def test_the_end_of_an_outbox_comes_after_its_frames():
    outbox = Outbox(100)
    fill(outbox, 1)
    outbox.end("closed here")
    with pytest.raises(FramesEnded, match="closed here"):
        outbox.put((b"late",))
    assert outbox.take(0, always) == ((b"\0",), 1)
    with pytest.raises(FramesEnded, match="closed here"):
        outbox.take(1, always)
