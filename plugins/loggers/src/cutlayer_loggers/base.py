"""Interface of a log, and the thread that it runs in."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Literal

End = Literal["FINISHED", "FAILED", "KILLED"]
END_SECONDS = 60.0
"""How long the end of a run waits for what is still to be written."""


class Log(ABC):
    """Writes the curves, settings and results of one run to one place."""

    @abstractmethod
    def begin(self, job: str, run: str, settings: Mapping[str, str], earlier: str | None) -> str:
        """Begin a run, or continue one after a resume.

        Args:
            job: Name of the job.
            run: Name of the run.
            settings: Settings of the job by dotted key.
            earlier: What this returned before the resume; `None` for a new run.

        Returns:
            What identifies the run in its place.
        """

    @abstractmethod
    def write(self, values: Mapping[str, float], epoch: int) -> None:
        """Write finite values by name, after so many epochs."""

    @abstractmethod
    def attach(self, page: Path) -> None:
        """Add a file, which may be gone afterwards."""

    @abstractmethod
    def end(self, state: End) -> None:
        """End the run."""


class Background:
    """Makes the calls of a log in their order in a thread of its own, so that a slow server delays no training.

    After the first that fails no other is made, and a warning says so: a log must not end a run.

    Args:
        where: Key of the log in the job, for the warning.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._failure: Exception | None = None
        self._warned = False
        self._thread = Thread(target=self._work, name=where, daemon=True)
        self._thread.start()

    def call(self, action: Callable[[], object]) -> None:
        """Make a call after those before it."""
        self._warn()
        self._calls.put(action)

    def fail(self, failure: Exception) -> None:
        """Make no further call: what it would have written could not be made."""
        self._failure = self._failure or failure

    def close(self, seconds: float) -> None:
        """Wait until all calls are made, for so many seconds at most."""
        self._calls.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive() and self._failure is None:
            self._failure = TimeoutError(f"no answer for {seconds:g} s")
        self._warn()

    def _work(self) -> None:
        while (action := self._calls.get()) is not None:
            try:
                if self._failure is None:
                    action()
            except Exception as failure:  # whatever a server or a library raises
                self._failure = failure

    def _warn(self) -> None:
        """Warn in the thread of the run, whose warnings a user sees."""
        if self._failure is not None and not self._warned:
            self._warned = True
            reason = next(iter(str(self._failure).splitlines()), "") or type(self._failure).__name__
            text = f"{self._where}: nothing more is logged, the run goes on ({reason}); its folder holds all results"
            warnings.warn(text, stacklevel=2)
