"""SIGTERM and SIGHUP end a command as Ctrl-C does; service managers and closed terminals send these."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@dataclass
class Received:
    """The signal that ended the command.

    Attributes:
        number: Number of the first of `SIGNALS` that arrived; `None` before.
    """

    number: int | None = None

    def exit_code(self, interrupted: int) -> int:
        """128 + the signal's number, as a shell reports it, or `interrupted` after Ctrl-C."""
        return interrupted if self.number is None else 128 + self.number


@contextmanager
def stopped_by_signals() -> Iterator[Received]:
    """Turn the signals into a `KeyboardInterrupt` in the main thread, so that everything is cleaned up on the way out.

    A signal that the parent process chose to ignore, as `nohup` does with SIGHUP, stays ignored. Further signals are
    ignored while the command cleans up; SIGKILL and a second Ctrl-C still end it at once.
    """
    received = Received()

    def stop(number: int, _frame: FrameType | None) -> None:
        if received.number is None:
            received.number = number
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # Python delivers signals to the main thread alone
        yield received
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
