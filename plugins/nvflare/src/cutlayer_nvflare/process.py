"""A party in a process of its own: the command `cutlayer party`, which ends with the process that started it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from cutlayer.storage.durable import make_folder

PEER_LOST = 3
"""Exit code whose message names no more than parties, steps and seconds: the hub may read it."""
# -P: a folder that the hub filled must not provide modules.
_COMMAND = (sys.executable, "-P", "-m", "cutlayer")
_LISTENING = re.compile(r"waiting for \S+, which connects to (?:\S+; this party listens at )?(\S+)")
_SET_DEATH_SIGNAL = 1
_GRACE_SECONDS = 10.0
"""Seconds that an aborted party has to close its files before it is killed."""
_libc = ctypes.CDLL(None)


class PartyProcess:
    """The process of a party.

    Args:
        arguments: Arguments of `cutlayer`.
        log: File for what it writes to standard error; the document of `--json` is next to it.
        notify: Called with each line of the log that says what happens to its connections.
        command: Command that takes the arguments.

    Attributes:
        address: Where the active party listens; empty before.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, notify: Callable[[str], None], command: Sequence[str] = _COMMAND
    ) -> None:
        self.address = ""
        self._log = log
        self._document = log.with_suffix(".json")
        self._notify = notify
        self._listening = threading.Event()
        self._ended = threading.Event()
        self._started = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._code = -1
        make_folder(log.parent)
        # The kernel kills the process when the thread that started it ends: that one waits for it.
        self._owner = threading.Thread(target=self._run, args=([*command, *arguments],), name="party", daemon=True)
        self._owner.start()
        self._started.wait()

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._ended.is_set()

    def wait_until_listening(self, timeout: float) -> bool:
        """Wait until the active party listens; false if it ended, or time was up, before."""
        return self._listening.wait(timeout) and bool(self.address)

    def wait(self, timeout: float) -> bool:
        """Wait for the end; false if time was up before."""
        return self._ended.wait(timeout)

    def stop(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        if self._process is None or self.ended:
            return
        self._process.terminate()
        if not self.wait(_GRACE_SECONDS):
            self._process.kill()
            self.wait(_GRACE_SECONDS)

    def problem(self) -> str:
        """Why the process failed, in words that may leave the site; empty if it did not.

        Errors about tables and private files stay in the log of the site.
        """
        if self._code in (0, 1):  # 1: a gate, or a protection, which the run folder's report explains
            return "" if self._code == 0 else "it ended with exit code 1: a gate failed or a protection was not applied"
        if self._code == PEER_LOST:
            try:
                return str(json.loads(self._document.read_text())["error"])
            except (OSError, ValueError, KeyError, TypeError):
                return "it lost another party"
        return f"it ended with {_described(self._code)}; the reason is in the log at that site"

    def _run(self, command: list[str]) -> None:
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        try:
            with (
                _opened(self._log, os.O_APPEND) as log,
                _opened(self._document, os.O_TRUNC) as document,
                subprocess.Popen(  # noqa: S603
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=document,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    preexec_fn=die_with_parent,
                ) as process,
            ):
                self._process = process
                self._started.set()
                for line in process.stderr or ():
                    log.write(line)
                    log.flush()
                    self._read(line.strip())
            self._code = process.returncode
        finally:
            self._started.set()
            self._ended.set()
            self._listening.set()

    def _read(self, line: str) -> None:
        time, _, text = line.partition(" ")
        if not re.fullmatch(r"\d\d:\d\d:\d\d", time):
            return
        # The whole line: others quote what a peer says, which must not choose where the tunnel leads.
        if (matched := _LISTENING.fullmatch(text)) and not self.address:
            self.address = matched[1]
            self._listening.set()
        self._notify(text)


def _opened(path: Path, flag: int) -> TextIO:
    """Open a file that only its owner can read, whatever the permissions of its folder."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flag, 0o600), "w")


def _described(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
