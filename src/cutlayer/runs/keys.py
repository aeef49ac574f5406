"""Secrets that never leave their owner: made once, kept readable by the owner alone."""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from pathlib import Path

from cutlayer.errors import CheckpointError, ConfigError

LENGTH = 32
_FINGERPRINT = b"cutlayer key"


def load_or_make(path: Path) -> bytes:
    """Read a 32-byte key, or make one from the operating system's randomness with mode 0600.

    Raises:
        ConfigError: the file holds something else.
    """
    if path.exists():
        return read_key(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(LENGTH))
    try:
        os.link(whole, path)  # whole or not at all; the first of several runs wins
    except FileExistsError:
        pass
    finally:
        whole.unlink()
    return read_key(path)


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


def check_same_keys(path: Path, keys: tuple[bytes, ...]) -> None:
    """Refuse to go on with other keys than the run was begun with: what was drawn under them would be drawn again.

    Args:
        path: of the fingerprint, which the first call makes; it tells nothing of the keys.
        keys: each of 32 random bytes.

    Raises:
        CheckpointError: the run was begun with other keys.
    """
    found = blake2b(b"".join(keys), digest_size=16, person=_FINGERPRINT).hexdigest()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found + "\n")
    elif path.read_text().strip() != found:
        wanted = f"the keys the run was begun with (fingerprint {path})"
        raise CheckpointError.expected(wanted, "others", "resume with the same --key and secret, or start a new run")
