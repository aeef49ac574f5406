"""The rows that a party has forgotten: whichever table has them again, they are no rows of it."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cutlayer.data.id_index import ABSENT, IdIndex
from cutlayer.data.ids import Digests
from cutlayer.errors import RunFolderError
from cutlayer.kernels.noise.aes import derive, encrypt_blocks
from cutlayer.storage.durable import make_folder, write_whole

FORGOTTEN_REASON = "that were forgotten"
"""Reason for which forgotten rows are left out of a table."""
ROW_FORGOTTEN_REASON = "the row was forgotten"
"""Reason for which a row that somebody asks for has no answer."""
_SIZE = 16


class ForgottenRows:
    """A list of enciphered digests of ids next to a party's secret, without which nobody reads an id from it.

    It is read again whenever the file was replaced, so that a service sees what is forgotten while it runs.

    Args:
        secret: File of the party's long-lived secret. Without a list it need not exist.
    """

    def __init__(self, secret: Path) -> None:
        self._secret, self.path = secret, secret.with_name(f"{secret.name}.forgotten")
        self._known: tuple[tuple[int, ...], IdIndex] | None = None

    @classmethod
    def for_trail(cls, trail: Path) -> ForgottenRows:
        """The list of the party that has an egress trail in this folder, which is next to its secret."""
        return cls(trail.with_name(trail.name.rpartition(".trail")[0]))

    def contains(self, digests: Digests, rule: str) -> npt.NDArray[np.bool_]:
        """Whether each row was forgotten, (n,).

        Args:
            digests: Digests of the ids, uint8 (n, 16).
            rule: Rule by which they are compared, as `IdConfig.rule` of one key states it.

        Raises:
            RunFolderError: The list is damaged, or of another secret.
        """
        index = self._index()
        if index is None or not len(digests):
            return np.zeros(len(digests), dtype=np.bool_)
        return np.asarray(index.find(self._enciphered(digests, rule)) != ABSENT)

    def add(self, digests: Iterable[tuple[str, Digests]]) -> None:
        """Forget rows, by the digests of their ids, uint8 (n, 16), and the rule of each; on disk when this returns.

        Raises:
            RunFolderError: The list is damaged, or of another secret.
        """
        known = self._read() if self.path.exists() else np.zeros((0, _SIZE), np.uint8)
        new = [self._enciphered(each, rule) for rule, each in digests if len(each)]
        content = np.unique(np.concatenate([known, *new]), axis=0).tobytes()
        make_folder(self.path.parent)
        write_whole(self.path, self._tag(content) + content)

    def _index(self) -> IdIndex | None:
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(now.st_mode):  # a pipe would have its reader wait for ever
            raise RunFolderError.expected(f"the forgotten rows in {self.path}", "no file", "remove it")
        stamp = (now.st_ino, now.st_mtime_ns, now.st_size)
        if self._known is None or self._known[0] != stamp:
            self._known = stamp, IdIndex(self._read())
        return self._known[1]

    def _enciphered(self, digests: Digests, rule: str) -> Digests:
        return encrypt_blocks(derive(self._secret.read_bytes(), b"forgotten rows", rule.encode()), digests)

    def _tag(self, content: bytes) -> bytes:
        return derive(self._secret.read_bytes(), b"list of forgotten rows", content, size=_SIZE)

    def _read(self) -> Digests:
        """Raise unless the list is whole: by a part of it, rows would come back."""
        content = self.path.read_bytes()
        if not self._secret.exists() or content[:_SIZE] != self._tag(content[_SIZE:]):
            raise RunFolderError.expected(f"the forgotten rows in {self.path}", "other content", "restore the file")
        return np.frombuffer(content[_SIZE:], np.uint8).reshape(-1, _SIZE)
