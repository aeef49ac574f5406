"""The frames of a link that wait: received ones until they are read, sent ones until the peer has them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from cutlayer.channel.chunks import Frame, acknowledgement

MAX_FRAMES = 16_384
"""Maximum number of frames in a queue: empty frames have no bytes, but each object takes about 100."""

ACK_BYTES, ACK_FRAMES = 2**20, 64
"""A receiver acknowledges once this many bytes or frames are new. A sender may always have more on its way."""


class FramesEnded(Exception):
    """No frame will follow, for the reason in the message."""


class CallReplaced(FramesEnded):
    """Another call carries the frames of the link."""


class Inbox:
    """Received frames, first in, first out, between the thread of a call and that of the party.

    Args:
        capacity: Size of all queued frames, in bytes, from which on no more are read from the call.
        frames: Number of queued frames from which on no more are read from the call, 1 or more.
    """

    def __init__(self, capacity: int, frames: int = MAX_FRAMES) -> None:
        self._capacity = capacity
        self._max_frames = frames
        # `None` follows the last frame. This queue wakes a thread in a tenth of the time of a condition.
        self._frames: SimpleQueue[Frame | None] = SimpleQueue()
        self._bytes = 0
        self._end: str | None = None
        self._room = threading.Condition(threading.Lock())

    def add(self, frame: Frame) -> None:
        """Add a frame, also beyond the capacity; without effect after the end."""
        with self._room:
            if self._end is None:
                self._bytes += _size(frame)
                self._frames.put(frame)

    def wait_for_room(self) -> None:
        """Block until the queue is below its capacity, or ended."""
        with self._room:
            self._room.wait_for(lambda: self._end is not None or self._has_room())

    def get(self, timeout: float | None = None) -> Frame:
        """Take the oldest frame, waiting for one for at most `timeout` seconds.

        Raises:
            TimeoutError: None came.
            FramesEnded: The queue was ended, and every frame taken.
        """
        try:
            frame = self._frames.get(timeout=timeout)
        except Empty:
            raise TimeoutError from None
        if frame is None:
            self._frames.put(None)  # for the next call
            raise FramesEnded(self._end)
        with self._room:
            self._bytes -= _size(frame)
            self._room.notify_all()
        return frame

    @property
    def has_frames(self) -> bool:
        """Whether frames are queued."""
        with self._room:
            return self._frames.qsize() > (self._end is not None)

    def end(self, why: str) -> None:
        """Accept no more frames; the queued frames can still be taken. The first reason is reported."""
        with self._room:
            if self._end is None:
                self._end = why
                self._frames.put(None)
            self._room.notify_all()

    def _has_room(self) -> bool:
        return self._bytes < self._capacity and self._frames.qsize() < self._max_frames


class Outbox:
    """Sent frames by number, stored until the peer acknowledges them, so that a new call can repeat them.

    Args:
        capacity: Size of the stored frames, in bytes, beyond which a sender waits; a frame enters at or below it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = max(capacity, 2 * ACK_BYTES)
        self._frames: deque[Sequence[bytes]] = deque()
        self._first = 0
        self._bytes = 0
        self._acknowledge: int | None = None
        self._end: str | None = None
        self._changed = threading.Condition(threading.Lock())

    def put(self, chunks: Sequence[bytes], timeout: float | None = None) -> None:
        """Add a frame, waiting for room for at most `timeout` seconds.

        Raises:
            TimeoutError: There was no room.
            FramesEnded: The queue was ended.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._end is not None or self._has_room(), timeout):
                raise TimeoutError
            if self._end is not None:
                raise FramesEnded(self._end)
            self._frames.append(chunks)
            self._bytes += _size(chunks)
            self._changed.notify_all()

    def take(self, number: int, wanted: Callable[[], bool]) -> tuple[Sequence[bytes], int]:
        """The next chunks to send: an acknowledgement, or frame `number`; waits for one of them.

        Args:
            number: Number of the frame, from 0 at the start of the link.
            wanted: Whether the call is still the one of this link; asked again after `wake`.

        Returns:
            The chunks, and the number of the frame after them.

        Raises:
            Replaced: The call is no longer wanted.
            FramesEnded: The queue was ended and every frame taken.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    not wanted()
                    or self._acknowledge is not None
                    or number < self._first + len(self._frames)
                    or self._end is not None
                )
            )
            if not wanted():
                raise CallReplaced("another call carries the frames")
            if self._acknowledge is not None:
                chunk = acknowledgement(self._acknowledge)
                self._acknowledge = None
                return (chunk,), number
            if number < self._first + len(self._frames):
                return self._frames[number - self._first], number + 1
            raise FramesEnded(self._end)

    def drop_acknowledged(self, frames: int) -> bool:
        """Drop the frames that the peer has; false if it cannot have that many."""
        with self._changed:
            if not self._first <= frames <= self._first + len(self._frames):
                return frames < self._first and frames >= 0
            while self._first < frames:
                self._bytes -= _size(self._frames.popleft())
                self._first += 1
            self._changed.notify_all()
            return True

    def resume_at(self, frames: int) -> bool:
        """Drop the frames that the peer has; false if it lacks one that is gone, or cannot have that many."""
        with self._changed:
            stored = self._first <= frames <= self._first + len(self._frames)
        return stored and self.drop_acknowledged(frames)

    def acknowledge(self, frames: int) -> None:
        """Have the next chunk say how many frames were received."""
        with self._changed:
            self._acknowledge = frames
            self._changed.notify_all()

    def wake(self) -> None:
        """Have `take` ask again whether its call is wanted."""
        with self._changed:
            self._changed.notify_all()

    def end(self, why: str) -> None:
        """Accept no more frames; the stored frames can still be taken. The first reason is reported."""
        with self._changed:
            if self._end is None:
                self._end = why
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return not self._frames or (self._bytes <= self._capacity and len(self._frames) < MAX_FRAMES)


def _size(chunks: Sequence[bytes | memoryview]) -> int:
    return sum(map(len, chunks))
