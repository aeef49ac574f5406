"""A folder that the first process of a test run makes, and that those forked beside it only read."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder of this name, made by whichever process asks first; the others wait for it.

    Args:
        factory: Of this process, whose folder is one of those of `pytest --forks`, or the only one.
        name: Name of the folder.
        make: Fills it.
    """
    own = factory.getbasetemp()
    shared = own.parent if own.name.startswith("worker") else own
    folder, made = shared / f"{name}-once", shared / f"{name}-once.made"
    with (shared / f"{name}-once.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
            folder.mkdir(mode=0o700)
            make(folder)
            made.touch()
    return folder
