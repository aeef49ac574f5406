"""A limit on what a table may be once it is fetched or unpacked: a short file may unpack to any size."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO

from cutlayer.data.engine import raise_if_stopped
from cutlayer.data.faults import fault
from cutlayer.data.typed_table import TABLE_MEMORY

SHARE = 64
"""Bytes of a table that is fetched or unpacked, over `memory`."""
LIMIT = SHARE * TABLE_MEMORY
_BLOCK = 1 << 20


class SizeLimit:
    """Counts bytes as they are unpacked or fetched, before they take room.

    Args:
        where: Whose table and which file, for messages.
        most: Bytes that it may have.
    """

    def __init__(self, where: str, most: int) -> None:
        self._where = where
        self._most = most
        self._size = 0

    def add(self, size: int) -> None:
        """Count further bytes.

        Raises:
            DataError: They are too many.
        """
        raise_if_stopped()
        self._size += size
        if self._size > self._most:
            wanted = f"at most {self._most / 1e6:,.0f} MB once it is fetched and unpacked"
            raise fault(self._where, wanted, "more", "raise the party's memory, in proportion to which that is")

    def copy(self, packed: IO[bytes], plain: Path) -> None:
        """Write what is read; see `add`."""
        with plain.open("wb") as file:
            while block := packed.read(_BLOCK):
                self.add(len(block))
                file.write(block)

    def add_archive(self, path: Path) -> None:
        """Count what a zip archive states that its files have, and nothing of another file; see `add`."""
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                self.add(sum(each.file_size for each in archive.infolist()))
