"""Temporary folders that go with their process: those of one that was killed are removed by the next that makes one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK, _FILES = "lock", "files"
_LOCKS: dict[Path, int] = {}
"""Descriptor of the lock of each folder of this process."""


def new_folder(prefix: str) -> Path:
    """Make a private temporary folder, and remove those of this prefix and user that no process holds any more.

    Args:
        prefix: Begin of its name.

    Returns:
        The folder, to be removed by `remove_folder`.
    """
    _remove_left(prefix)
    outer = Path(tempfile.mkdtemp(prefix=prefix))
    (outer / _FILES).mkdir()
    # Under another name until it is held: a lock that is free is of a process that has ended.
    unheld = outer / f"{_LOCK}.new"
    _LOCKS[outer / _FILES] = lock = os.open(unheld, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unheld.rename(outer / _LOCK)
    return outer / _FILES


def remove_folder(folder: Path) -> None:
    """Remove a folder of `new_folder`, as far as this is possible."""
    shutil.rmtree(folder.parent, ignore_errors=True)
    os.close(_LOCKS.pop(folder))


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder of `new_folder` for a while."""
    folder = new_folder(prefix)
    try:
        yield folder
    finally:
        remove_folder(folder)


def _remove_left(prefix: str) -> None:
    """Remove folders whose process was killed. A number of a process would not do: containers share folders, not them.

    No link is followed: not to a folder, nor to a lock, nor by `rmtree` below.
    """
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(prefix)]
    for path in found:
        with suppress(OSError):  # it is no such folder, is held, or was removed meanwhile
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(folder).st_uid == os.geteuid():
                    _remove_if_free(path, folder)
            finally:
                os.close(folder)


def _remove_if_free(path: str, folder: int) -> None:
    lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
