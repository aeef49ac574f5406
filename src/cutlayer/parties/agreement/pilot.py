"""The rows of a pilot: the few that a partner releases before anybody decides on the full run.

The partner chooses them, by a key of its secret: those of the common rows whose ids have the smallest keyed hashes. All
pilots of a partner share that order, so that another one on the same rows releases the same, or some more, and no
other. The label owner is sent the key, and computes the same rows.
"""

from __future__ import annotations

import numpy as np

from cutlayer.data.align import Positions
from cutlayer.data.ids import Digests, keyed_hashes
from cutlayer.errors import DataError, ProtocolError
from cutlayer.kernels.noise.aes import derive

_KEY_BYTES = 32


def pilot_key(secret: bytes) -> bytes:
    """The key of all pilots of a partner, 32 bytes.

    It depends on nothing that a label owner states: by another name it would be shown other rows.
    """
    return derive(secret, b"pilot rows", size=_KEY_BYTES)


def pilot_rows(digests: Digests, key: bytes, count: int) -> Positions:
    """The rows of a pilot among those that both parties have, int64 (m,), ascending.

    Args:
        digests: Digests of the ids of these rows, uint8 (n, 16).
        key: Key of the partner's pilots.
        count: Number of rows.

    Raises:
        DataError: There are fewer common rows.
    """
    if len(digests) < count:
        wanted = f"{count:,} common rows or more, for a pilot of so many"
        raise DataError.expected(wanted, f"{len(digests):,}", "take fewer rows for the pilot")
    hashes = keyed_hashes(digests, key, 8).view("<u8")[:, 0]
    return np.sort(np.argsort(hashes, kind="stable")[:count])


def read_key(text: str, peer: str) -> bytes:
    """The key that a partner stated, in hexadecimal digits.

    Raises:
        ProtocolError: It is none.
    """
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES or not text.isalnum():
        raise ProtocolError.expected(f"the key of the pilot's rows from {peer}", ascii(text)[:80])
    return key
