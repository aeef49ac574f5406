"""The mark of a forgetting that has begun and not ended: until then nobody opens a run that it is about."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.errors import RunFolderError
from cutlayer.storage.checksum import seal, unseal
from cutlayer.storage.durable import make_folder, write_whole
from cutlayer.storage.json_values import parse_json

_SUFFIX = ".forgetting"


class Forgetting(FrozenModel):
    """What is being forgotten.

    Attributes:
        path: File of the mark, beside the run folders.
        what: Whose rows, in words.
        salt: Random digits, without which nobody compares the digest with guesses of ids.
        rows: Salted SHA-256 of the digests of the rows' ids.
        runs: Names of the run folders.
        deleted: Names of what was deleted; `None` until all is.
    """

    path: Path = Field(exclude=True)
    what: str
    salt: str
    rows: str
    runs: tuple[str, ...]
    deleted: tuple[str, ...] | None = None

    @staticmethod
    def _path(base: Path) -> Path:
        return base.with_name(f"{base.name}{_SUFFIX}")

    @classmethod
    def has_begun(cls, base: Path) -> bool:
        """Whether a forgetting has begun, and not ended."""
        return cls._path(base).exists()

    @classmethod
    def begin(cls, base: Path, what: str, rows: bytes, runs: Iterable[str]) -> Forgetting:
        """Set the mark, on disk when this returns; one of the same rows is continued.

        Args:
            base: Path of the run folders, without their version.
            what: As the attribute.
            rows: Digests of the rows' ids, one after another; empty for all rows of a party.
            runs: Names of the run folders that are there.

        Raises:
            RunFolderError: Another forgetting has begun, and has not ended.
        """
        path = cls._path(base)
        begun = cls._read(path) if path.exists() else None
        salt = begun.salt if begun else secrets.token_hex(32)
        digest = hashlib.sha256(salt.encode() + rows).hexdigest()
        if begun is not None and (begun.what, begun.rows) != (what, digest):
            wanted = f"the rows of the forgetting that began ({begun.what})"
            raise RunFolderError.expected(wanted, "others", "end that one first, by its own command")
        if begun is not None and begun.deleted is not None:
            return begun
        names = {*runs, *(begun.runs if begun else ())}
        make_folder(path.parent)
        return cls(path=path, what=what, salt=salt, rows=digest, runs=tuple(sorted(names)))._written()

    def with_deleted(self, names: Iterable[str]) -> Forgetting:
        """The mark once all is deleted, on disk when this returns: what is there afterwards is new."""
        return self.model_copy(update={"deleted": tuple(sorted({*self.runs, *names}))})._written()

    def _written(self) -> Forgetting:
        write_whole(self.path, self.model_dump_json())
        return self

    def end(self) -> None:
        """Remove the mark."""
        self.path.unlink()

    @classmethod
    def _read(cls, path: Path) -> Forgetting:
        try:
            return cls(**{**parse_json(path.read_bytes()), "path": path})
        except (OSError, ValueError, TypeError):
            wanted = f"the mark of a forgetting in {path}"
            raise RunFolderError.expected(wanted, "other content", "restore it") from None


class ForgottenRuns:
    """How often rows of a job were forgotten: a copy of a run from before that comes back is used for nothing.

    The list is beside a party's secret, and each run folder has the number of when its training began.

    Args:
        secret: File of the party's long-lived secret.
    """

    def __init__(self, secret: Path) -> None:
        self.path = secret.with_name(f"{secret.name}.forgotten_runs")

    def count(self, job: str) -> int:
        """How often rows of a job were forgotten, by its digest.

        Raises:
            RunFolderError: The list is damaged.
        """
        return self._read().get(job, 0)

    def add(self, job: str) -> None:
        """Note that rows of a job are forgotten, by its digest; on disk when this returns."""
        make_folder(self.path.parent)
        write_whole(self.path, seal({**self._read(), job: self.count(job) + 1}))

    def _read(self) -> dict[str, int]:
        try:
            return {str(job): int(line) for job, line in unseal(self.path.read_bytes()).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError):
            raise RunFolderError.expected(f"the forgotten runs in {self.path}", "other content", "restore it") from None


def check_not_forgetting(run: Path) -> None:
    """Refuse a run folder of which something is being forgotten.

    Raises:
        RunFolderError: A forgetting that concerns it was begun, and has not ended.
    """
    place = run.absolute()
    for path in place.parent.glob(f"*{_SUFFIX}"):
        if place.name in Forgetting._read(path).runs:
            wanted, remedy = f"a run of which nothing is being forgotten at {run}", "repeat cutlayer forget: it goes on"
            raise RunFolderError.expected(wanted, f"one that {path} names", remedy)
