"""Files that survive a power failure: written whole or not at all, synced to disk, and locked by one process."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from cutlayer.errors import LockHeld, RunFolderError

RESERVED_BYTES = 1 << 30
"""Bytes of a disk that what other parties send may not use."""


def write_whole(path: Path, content: bytes | str, mode: int = 0o600) -> None:
    """Write a file so that after a crash it holds either its old content or all of the new.

    Args:
        path: Path of the file; its folder exists.
        content: Content of the file; text is encoded as UTF-8.
        mode: Permissions of a new file.
    """
    data = content.encode() if isinstance(content, str) else content

    def write(partial: Path) -> None:
        with create(partial, mode) as file:
            file.write(data)

    replace_whole(path, write)


def create(path: Path, mode: int = 0o600) -> BinaryIO:
    """Open an empty file for writing; nothing in it is on disk before it is synced.

    Raises:
        OSError: The path is a symbolic link, among others; the file that it leads to stays as it is.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode), "wb")


def replace_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Have `write` make a file under a temporary name, sync it, and give it the name `path`.

    Args:
        path: Path of the file; its folder exists.
        write: Writes the whole content to the path it is given.
    """
    UnsyncedFile(path, write).finish()


class UnsyncedFile:
    """A file with its whole content under a temporary name, until `finish` has synced it and given it its own.

    Args:
        path: Path of the file; its folder exists.
        write: Writes the whole content to the path it is given.
    """

    def __init__(self, path: Path, write: Callable[[Path], None]) -> None:
        self.path = path
        self.partial = path.with_name(f"{path.name}.partial")
        # A folder may come from another user: a link of this name in it leads to any file of this one, a file of this
        # name may be readable by all.
        self.partial.unlink(missing_ok=True)
        with self._removed_on_failure():
            write(self.partial)

    def start(self) -> None:
        """Have the system begin to write the file to the disk, where it can, so that `finish` waits less."""
        if not hasattr(os, "posix_fadvise"):
            return
        descriptor = os.open(self.partial, os.O_RDONLY)
        try:
            # On Linux: writes what is changed, without a wait, and drops from memory what is on disk already.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Return once the file is on disk under its name."""
        with self._removed_on_failure():
            sync_file(self.partial)
            self.partial.replace(self.path)
        sync_folder(self.path.parent)

    @contextmanager
    def _removed_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException as failure:
            self.partial.unlink(missing_ok=True)
            if isinstance(failure, OSError) and failure.errno and failure.filename is None:  # as of a disk that is full
                failure.filename = str(self.path)
            raise


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, which is no symbolic link, and return once it is on disk."""
    append(path, line.encode() + b"\n")


def append(path: Path, content: bytes) -> None:
    """Add bytes to a file, which is no symbolic link, and return once they are on disk."""
    new = not path.exists()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "ab") as file:
        file.write(content)
        file.flush()
        os.fdatasync(file.fileno())
    if new:
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Return once a file's content is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Return once the names in a folder are on disk: a file that was made or renamed has no name before that."""
    sync_file(path)


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make a folder and those above it that are missing, and return once all of their names are on disk."""
    missing = takewhile(lambda folder: not folder.exists(), (path, *path.parents))
    for folder in reversed([*missing]):
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)


def file_version(path: Path) -> tuple[int, ...]:
    """Numbers that change when a file is replaced or written again; none without a file."""
    try:
        stated = path.stat()
    except OSError:
        return ()
    return stated.st_ino, stated.st_size, stated.st_mtime_ns, stated.st_mode


def check_room(folder: Path) -> None:
    """Refuse to write more of what another party sends where the disk would be full.

    Raises:
        RunFolderError: Less than `RESERVED_BYTES` bytes are free.
    """
    if shutil.disk_usage(folder).free < RESERVED_BYTES:
        raise RunFolderError.expected(f"{RESERVED_BYTES >> 30} GB free at {folder}, for all else", "less", "make room")


def check_new(path: Path) -> None:
    """Raise `RunFolderError` unless a folder is empty or to be made."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunFolderError.expected(f"a new or empty folder at {path}", "other files", "choose another one")


def check_output(
    *paths: Path,
    own: Callable[[bytes], bool] | None = None,
    overwrite: bool = False,
    kept: Iterable[Path] = (),
    remedy: str = "choose another with --out",
) -> None:
    """Refuse to replace a file that the caller did not write, before it computes or releases anything.

    Args:
        paths: Files that the caller is going to write.
        own: Whether the caller wrote a file, by its content; such a file may be replaced.
        overwrite: Whether the user allows files to be replaced, apart from those of `kept`.
        kept: Files that the caller reads, and folders: what is there is never replaced.
        remedy: What the user can do instead.

    Raises:
        RunFolderError: A file is in the place of one of them.
    """
    mine = [path for path in paths if own is not None and path.is_file() and own(path.read_bytes())]
    standing = [path for path in paths if os.path.lexists(path) and path not in mine]
    places = [place.resolve() for place in kept]
    for path in standing:
        if any(path.resolve().is_relative_to(place) for place in places):
            wanted = "another file than those that are read or belong to the run"
            raise RunFolderError.expected(wanted, path, "choose another with --out")
    if standing and not (overwrite and all(path.is_file() for path in standing)):
        raise RunFolderError.expected(f"no file at {', '.join(map(str, standing))}", "one", remedy)


@contextmanager
def locked(path: Path, holder: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file for the duration; the operating system frees it when the process ends, however it ends.

    Args:
        path: Path of the lock file, which is made if absent and not removed; its content is replaced.
        holder: Activity of this process, for the message in a process that comes second.
        wait: Whether to wait until the lock is free, instead of raising.

    Raises:
        LockHeld: Another process holds the lock; the message names it.
        OSError: The path is a symbolic link, among others; the file that it leads to stays as it is.
    """
    descriptor = _lock(path, wait=wait)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{holder} (process {os.getpid()})".encode(), 0)
        yield
    finally:
        os.ftruncate(descriptor, 0)
        os.close(descriptor)


def _lock(path: Path, *, wait: bool) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # The holder may have removed the file with its folder: a lock on a file without a name excludes nobody.
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BlockingIOError:
            other = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise LockHeld(
                f"{path.parent} is in use by {other}; wait until it has ended, or choose another folder"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
