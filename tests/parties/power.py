"""A disk that loses power: what survives of a folder at every moment of a run.

Only what was synced is certain to survive. A file holds what it held at its last sync, and a folder lists what it
listed at its last sync. A real file system may write names earlier than that, so there are two images of each moment:
one with the synced names, one with the names of that moment; in both, content that was never synced is lost.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Image = tuple[tuple[str, bytes | None], ...]
"""Every path below the root in order, with its content; `None` for a folder."""


class Disk:
    """Watches the files below a folder.

    Args:
        root: of the disk; whatever happens below it is recorded.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.images: dict[Image, str] = {}
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._resources: list[int] = []  # an open file keeps its number, so that no later file can take it over

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take images while the block runs: at every sync, rename, link and removal."""
        with pytest.MonkeyPatch.context() as patched:
            for name in ("fsync", "fdatasync"):
                patched.setattr(os, name, self._syncing(getattr(os, name)))
            patched.setattr(sqlite3, "connect", self._committing(sqlite3.connect))
            for name in ("replace", "rename", "link", "unlink", "mkdir"):
                patched.setattr(os, name, self._naming(getattr(os, name)))
            try:
                yield
            finally:
                for descriptor in self._resources:
                    os.close(descriptor)

    def synced(self) -> Image:
        """What certainly survives now."""
        return tuple(self._below(self.root.stat().st_ino, "", self._now(), self._names.get))

    def _now(self) -> dict[int, Path]:
        return {path.stat().st_ino: path for path in (self.root, *self.root.rglob("*"))}

    def _syncing(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(descriptor: int) -> None:
            sync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if not path.is_relative_to(self.root):
                return
            self._resources.append(os.open(path, os.O_RDONLY))
            found = os.fstat(descriptor)
            if stat.S_ISDIR(found.st_mode):
                self._names[found.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
            else:
                self._content[found.st_ino] = path.read_bytes()
            self._take(f"sync {path.name}")

        return synced

    def _committing(self, connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        """SQLite syncs without Python: with `synchronous = EXTRA` file and folder are on disk after each commit."""
        disk = self

        class Watched(sqlite3.Connection):
            path: Path

            def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
                cursor = super().execute(sql, *args)
                if sql == "COMMIT":
                    disk._committed(self.path)
                return cursor

            def executescript(self, script: str) -> sqlite3.Cursor:
                cursor = super().executescript(script)
                disk._committed(self.path)
                return cursor

        def connecting(path: Path, **options: Any) -> sqlite3.Connection:
            connection: Watched = connect(path, factory=Watched, **options)  # type: ignore[assignment]
            connection.path = Path(path)
            return connection

        return connecting

    def _committed(self, path: Path) -> None:
        if not path.is_relative_to(self.root):
            return
        self._resources.append(os.open(path, os.O_RDONLY))
        self._content[path.stat().st_ino] = path.read_bytes()
        self._names[path.parent.stat().st_ino] = _listed(path.parent)
        self._take(f"commit {path.name}")

    def _naming(self, work: Callable[..., None]) -> Callable[..., None]:
        def named(path: Any, *args: Any, **options: Any) -> None:
            work(path, *args, **options)
            if Path(path).is_relative_to(self.root):
                self._take(f"{work.__name__} {Path(path).name}")

        return named

    def _take(self, moment: str) -> None:
        now = self._now()
        eager = tuple(self._below(self.root.stat().st_ino, "", now, lambda folder: _listed(now[folder])))
        self.images.setdefault(self.synced(), f"{moment}, synced names")
        self.images.setdefault(eager, f"{moment}, all names")

    def _below(
        self, folder: int, prefix: str, now: dict[int, Path], names: Callable[[int], dict[str, int] | None]
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, number in sorted((names(folder) or {}).items()):
            if number in self._names or (number in now and now[number].is_dir()):
                yield f"{prefix}{name}", None
                yield from self._below(number, f"{prefix}{name}/", now, names)
            else:
                yield f"{prefix}{name}", self._content.get(number, b"")


def _listed(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}


def written_out(image: Image, root: Path) -> Path:
    """Make a disk that holds an image."""
    root.mkdir(parents=True)
    for name, content in image:
        if content is None:
            (root / name).mkdir(mode=0o700)
        else:
            (root / name).write_bytes(content)
            (root / name).chmod(0o600)
    return root
