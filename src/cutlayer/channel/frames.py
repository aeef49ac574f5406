"""A queue of frames, bounded in bytes and in number, that can be ended with a reason."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

MAX_FRAMES = 16_384
"""Maximum number of frames in a queue: empty frames have no bytes, but each object takes about 100."""


class FramesEnded(Exception):
    """No frame will follow, for the reason in the message."""


class FrameQueue:
    """A first-in, first-out queue between two threads.

    A frame waits to enter while it and those queued are more than `capacity` bytes together, or `frames` are queued;
    into an empty queue any frame may enter.

    Args:
        capacity: Maximum size of all queued frames, in bytes.
        frames: Maximum number of queued frames, 1 or more.
    """

    def __init__(self, capacity: int, frames: int = MAX_FRAMES) -> None:
        self._capacity, self._most = capacity, frames
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._end: str | None = None
        self._changed = threading.Condition()

    def put(self, frame: bytes, timeout: float | None = None) -> None:
        """Add a frame, waiting for room for at most `timeout` seconds.

        Raises:
            TimeoutError: there was no room.
            FramesEnded: the queue was ended.
        """
        with self._changed:
            self._wait(lambda: self._end is not None or self._has_room(len(frame)), timeout)
            if self._end is not None:
                raise FramesEnded(self._end)
            self._frames.append(frame)
            self._bytes += len(frame)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> bytes:
        """Take the oldest frame, waiting for one for at most `timeout` seconds.

        Raises:
            TimeoutError: none came.
            FramesEnded: the queue was ended, and every frame taken.
        """
        with self._changed:
            self._wait(lambda: self._end is not None or bool(self._frames), timeout)
            if not self._frames:
                raise FramesEnded(self._end)
            frame = self._frames.popleft()
            self._bytes -= len(frame)
            self._changed.notify_all()
            return frame

    @property
    def waiting(self) -> bool:
        """Whether frames are queued."""
        with self._changed:
            return bool(self._frames)

    def end(self, why: str) -> None:
        """Accept no more frames; the queued frames can still be taken. The first reason is reported."""
        with self._changed:
            if self._end is None:
                self._end = why
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        return not self._frames or (self._bytes + size <= self._capacity and len(self._frames) < self._most)

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        if not self._changed.wait_for(ready, timeout):
            raise TimeoutError
