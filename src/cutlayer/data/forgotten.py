"""The rows that a party has forgotten: whichever table has them again, they are no rows of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cutlayer.data.align import Positions
from cutlayer.data.ids import Digests
from cutlayer.errors import RunFolderError
from cutlayer.kernels.noise.aes import derive, encrypt_blocks
from cutlayer.storage.durable import make_folder, write_whole

FORGOTTEN = "that were forgotten"
"""Reason for which forgotten rows are left out of a table."""
_SIZE = 16


class ForgottenRows:
    """A list of enciphered digests of ids next to a party's secret, without which nobody reads an id from it.

    Args:
        secret: File of the party's long-lived secret. Without a list it need not exist.
    """

    def __init__(self, secret: Path) -> None:
        self._secret, self.path = secret, secret.with_name(f"{secret.name}.forgotten")

    @classmethod
    def beside(cls, trail: Path) -> ForgottenRows:
        """The list of the party that has an egress trail in this folder, which is next to its secret."""
        return cls(trail.with_name(trail.name.rpartition(".trail")[0]))

    def remaining(self, digests: Digests) -> Positions | None:
        """Row numbers that were not forgotten, int64 (m,), ascending; `None` where all remain.

        Args:
            digests: Digests of the ids of a table, uint8 (n, 16).

        Raises:
            RunFolderError: The list is damaged, or of another secret.
        """
        if not self.path.exists():
            return None
        words, listed = self._hashes(digests).view(np.uint64), self._read().view(np.uint64)
        forgotten = np.isin(words[:, 0], listed[:, 0]) & np.isin(words[:, 1], listed[:, 1])
        return np.flatnonzero(~forgotten) if forgotten.any() else None

    def add(self, digests: Digests) -> None:
        """Forget rows, by the digests of their ids, uint8 (n, 16); on disk when this returns.

        Raises:
            RunFolderError: The list is damaged, or of another secret.
        """
        known = self._read() if self.path.exists() else np.zeros((0, _SIZE), np.uint8)
        content = np.unique(np.concatenate([known, self._hashes(digests)]), axis=0).tobytes()
        make_folder(self.path.parent)
        write_whole(self.path, self._tag(content) + content)

    def _hashes(self, digests: Digests) -> Digests:
        return encrypt_blocks(derive(self._secret.read_bytes(), b"forgotten rows"), digests)

    def _tag(self, content: bytes) -> bytes:
        return derive(self._secret.read_bytes(), b"list of forgotten rows", content, size=_SIZE)

    def _read(self) -> Digests:
        """Raise unless the list is whole: by a part of it, rows would come back."""
        content = self.path.read_bytes()
        if not self._secret.exists() or content[:_SIZE] != self._tag(content[_SIZE:]):
            raise RunFolderError.expected(f"the forgotten rows in {self.path}", "other content", "restore the file")
        return np.frombuffer(content[_SIZE:], np.uint8).reshape(-1, _SIZE)
