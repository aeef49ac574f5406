"""The queue between a party's thread and gRPC's: bounded, and ended with a reason."""

import threading
import time

import pytest

from cutlayer.channel.frames import MAX_FRAMES, FrameQueue, FramesEnded


def test_frames_leave_in_the_order_they_came():
    queue = FrameQueue(100)
    for frame in (b"a", b"bb", b"ccc"):
        queue.put(frame)
    assert [queue.get() for _ in range(3)] == [b"a", b"bb", b"ccc"]


def test_a_full_queue_makes_the_sender_wait():
    queue = FrameQueue(10)
    queue.put(bytes(6))
    with pytest.raises(TimeoutError):
        queue.put(bytes(5), timeout=0.01)
    threading.Timer(0.05, queue.get).start()
    queue.put(bytes(5), timeout=5)
    assert queue.get() == bytes(5)


def test_empty_frames_are_counted_too():
    queue = FrameQueue(2**20, frames=3)
    for _ in range(3):
        queue.put(b"", timeout=0)
    with pytest.raises(TimeoutError):
        queue.put(b"", timeout=0.01)
    queue.get()
    queue.put(b"", timeout=0)


def test_the_usual_number_of_frames_takes_little_memory():
    queue = FrameQueue(2**30)
    for _ in range(MAX_FRAMES):
        queue.put(b"", timeout=0)
    with pytest.raises(TimeoutError):
        queue.put(b"", timeout=0.01)
    assert MAX_FRAMES * 128 < 4 * 2**20


def test_an_empty_queue_takes_a_frame_of_any_size():
    queue = FrameQueue(10)
    queue.put(bytes(1000), timeout=0)
    assert len(queue.get()) == 1000


def test_an_empty_queue_makes_the_reader_wait():
    queue = FrameQueue(10)
    with pytest.raises(TimeoutError):
        queue.get(timeout=0.01)
    threading.Timer(0.05, queue.put, [b"late"]).start()
    assert queue.get(timeout=5) == b"late"


def test_an_ended_queue_gives_what_it_holds_and_then_the_first_reason():
    queue = FrameQueue(10)
    queue.put(b"last")
    queue.end("gone")
    queue.end("too late")
    with pytest.raises(FramesEnded, match="gone"):
        queue.put(b"more")
    assert queue.get() == b"last"
    with pytest.raises(FramesEnded, match="gone"):
        queue.get()


def test_the_end_wakes_those_who_wait():
    full, empty = FrameQueue(1), FrameQueue(1)
    full.put(b"x")
    for queue in (full, empty):
        threading.Timer(0.05, queue.end, ["gone"]).start()
    start = time.monotonic()
    with pytest.raises(FramesEnded):
        full.put(b"y", timeout=5)
    with pytest.raises(FramesEnded):
        empty.get(timeout=5)
    assert time.monotonic() - start < 2
