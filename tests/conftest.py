"""Where the tests' folders lie: in memory, if there is room, since every epoch of every run is synced to its disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free; a whole run of the tests takes 2 GB at most."""


def pytest_configure() -> None:
    """Choose the root of all temporary folders, unless the caller has."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
