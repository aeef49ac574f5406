"""Secrets that never leave their owner: made once, kept readable by the owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cutlayer.errors import ConfigError

LENGTH = 32


def load_or_make(path: Path) -> bytes:
    """Read a 32-byte key, or make one from the operating system's randomness with mode 0600.

    Raises:
        ConfigError: the file holds something else.
    """
    if path.exists():
        return read_key(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    key = secrets.token_bytes(LENGTH)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    return key


def read_key(path: Path) -> bytes:
    """Read a 32-byte key.

    Raises:
        ConfigError: there is no such file, or it holds something else.
    """
    try:
        key = path.read_bytes()
    except OSError as failure:
        raise ConfigError(f"the key {path} cannot be read: {failure.strerror}") from None
    if len(key) != LENGTH:
        raise ConfigError.expected(f"{LENGTH} bytes of key in {path}", f"{len(key)} bytes")
    return key
