"""Call a verb in a fork of this process, and record what it reached outside of its folder."""

from __future__ import annotations

import ctypes
import json
import os
import pkgutil
import resource
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

PATIENCE = 90.0
"""Seconds after which a verb is killed: none takes so long with an honest file."""
MAX_ADDRESS_SPACE = 16 * 2**30
"""Bytes that a verb may ask for, so that a test does not take the machine's memory."""
BAIT_MODULES = ("hostile_model", "this")
"""Modules that hostile files name, and that nothing else imports."""
_CONNECTING = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
_STARTING = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn"),
    *("os.startfile", "sqlite3.load_extension"),
)
_CHANGING = (
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod"),
    *("os.chown", "os.utime", "shutil.rmtree"),
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_IN_ALL = 0xFFF
_EVENT = struct.Struct("iIII")
_OPENED, _WRITTEN = 0x21, 0x3CE


@dataclass
class Seen:
    """What a verb did.

    Attributes:
        code: Exit code; negative for a signal.
        output: What it printed.
        events: What it reached: kind and name.
        peak: Peak of its memory in bytes.
        seconds: Wall time.
    """

    code: int
    output: str
    events: set[tuple[str, str]] = field(default_factory=set)
    peak: int = 0
    seconds: float = 0.0


class Watched:
    """The folder that no hostile file may reach, and the port that none may connect to.

    Args:
        outside: The folder; its files are bait.
    """

    def __init__(self, outside: Path) -> None:
        self.outside = outside
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_NONBLOCK)
        for folder in (outside, *(path for path in outside.rglob("*") if path.is_dir())):
            if self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), _IN_ALL) < 0:
                raise OSError(ctypes.get_errno(), f"inotify of {folder}")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._connections, writer = os.pipe()
        os.set_blocking(self._connections, False)
        self._pid = os.fork()
        if self._pid == 0:
            self._close_all(writer)

    def _close_all(self, writer: int) -> None:
        """The trap: close every connection at once, and report it."""
        while True:
            connection, _ = self._listener.accept()
            os.write(writer, b".")
            connection.close()

    def close(self) -> None:
        """End the trap."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._listener.close()
        os.close(self._connections)
        os.close(self._inotify)

    def reached(self) -> Iterator[tuple[str, str]]:
        """What was reached since the last call, whichever library did it."""
        with suppress(BlockingIOError):
            if os.read(self._connections, 4096):
                yield "connect", "the trap"
        with suppress(BlockingIOError):
            while content := os.read(self._inotify, 1 << 16):
                at = 0
                while at < len(content):
                    _, mask, _, length = _EVENT.unpack_from(content, at)
                    name = content[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0").decode()
                    at += _EVENT.size + length
                    if name and mask & _WRITTEN:
                        yield "write", f"outside/{name}"
                    elif name and mask & _OPENED:
                        yield "read", f"outside/{name}"


def call(verb: Callable[[], int], folder: Path, trial: Path, watched: Watched, limit: int = MAX_ADDRESS_SPACE) -> Seen:
    """Run something in a fork.

    Args:
        verb: Returns an exit code.
        folder: Working folder.
        trial: All that it may write to.
        watched: What it must not reach.
        limit: Bytes of address space.
    """
    home = trial / "home"
    home.mkdir(exist_ok=True)
    began, record = time.monotonic(), home / "events.json"
    output = home / "output.txt"
    list(watched.reached())
    pid = os.fork()
    if pid == 0:
        _child(verb, folder, trial, limit)
    code, peak = _awaited(pid, began + PATIENCE)
    with suppress(FileNotFoundError, ValueError):
        events = {(kind, name) for kind, name in json.loads(record.read_bytes())}
        return _seen(code, output, events, peak, began, watched)
    return _seen(code, output, set(), peak, began, watched)


def _seen(code: int, output: Path, events: set[tuple[str, str]], peak: int, began: float, watched: Watched) -> Seen:
    events |= set(watched.reached())
    text = output.read_text(errors="replace") if output.exists() else ""
    return Seen(code, text, events, peak, time.monotonic() - began)


def _awaited(pid: int, until: float) -> tuple[int, int]:
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _child(verb: Callable[[], int], folder: Path, trial: Path, limit: int) -> None:
    """Run the verb, write what was recorded, and end."""
    code, home = 70, trial / "home"
    events: set[tuple[str, str]] = set()
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(HOME=str(home), COLUMNS="200", PGPASSWORD="bait", PGCONNECT_TIMEOUT="3")
        tempfile.tempdir = str(home)
        sys.path.insert(0, str(trial / "modules"))
        target = os.open(home / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with _recorded(events, str(trial)):
            code = verb()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 70
    except BaseException as failure:
        print(f"Traceback: {type(failure).__name__}: {failure}", flush=True)  # noqa: T201
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            (home / "events.json").write_text(json.dumps(sorted(events)))
        os._exit(code)


@contextmanager
def _recorded(events: set[tuple[str, str]], own: str) -> Iterator[None]:
    """Record what is reached; writes into `own`, and into the devices of the system, are no events."""
    active = [True]

    def hook(event: str, arguments: Sequence[Any]) -> None:
        if not active[0]:
            return
        if event == "exec":  # of the code of a module: not every import is an event
            module = getattr(arguments[0], "co_filename", "").rpartition("/")[2].removesuffix(".py")
            if module in BAIT_MODULES:
                events.add(("import", module))
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                _changed(events, own, path)
        elif event in _CHANGING:
            for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
                _changed(events, own, path)
        elif event in _CONNECTING:
            events.add(("connect", str(arguments[1:] if event == "socket.connect" else arguments[:1])[:200]))
        elif event in _STARTING and arguments[0] != "uname":  # by which Python's `platform` asks for the processor
            events.add(("program", f"{event} {str(arguments[:2])[:160]}"))

    sys.dont_write_bytecode = True  # a module that no earlier process has imported would be compiled to a file
    sys.addaudithook(hook)
    try:
        yield
    finally:
        active[0] = False


def _changed(events: set[tuple[str, str]], own: str, path: Any) -> None:
    if isinstance(path, int) or path is None:
        return
    name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - resolves no link, and calls nothing that is recorded
    if not name.startswith((own + os.sep, "/dev/", "/proc/")):
        events.add(("write", name))


def command(*arguments: str) -> Callable[[], int]:
    """The command line with these arguments."""

    def run() -> int:
        from cutlayer.cli.app import _run

        return _run(list(arguments))

    return run


def preload(*others: str) -> None:
    """Import the package and what it imports late, so that a fork need not."""
    import cutlayer

    names = (module.name for module in pkgutil.walk_packages(cutlayer.__path__, "cutlayer."))
    for name in (*(name for name in names if name != "cutlayer.__main__"), *others):
        import_module(name)
