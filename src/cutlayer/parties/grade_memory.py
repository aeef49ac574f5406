"""The grades that a party has released in all of its jobs: who reads several of a row reads them together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.data.ids import Digests
from cutlayer.errors import CheckpointError
from cutlayer.parties.carried_together import Graded
from cutlayer.storage.durable import locked, make_folder
from cutlayer.storage.tensor_file import read_tensors, write_tensors

_FILE = re.compile(r"[0-9]{6}-\w+")
"""Names of the files; others, such as copies, are none of them."""


class _Header(NamedTuple):
    """Digest of the job of a release, number of its grades, and privacy of a draw."""

    job: str
    bands: int
    epsilon: float | None


class GradeMemory:
    """A folder beside a party's secret, with a file for each release: rows, and their grades before they are drawn.

    It is for its owner alone, as the columns are that grades follow from.

    Args:
        folder: The folder, made by the first release.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the memory, so that no other job of this party releases grades between a check and its note."""
        make_folder(self.folder)
        with locked(self.folder / "lock", "a check of grades", wait=True):
            yield

    def keep(self, name: str, job: str, digests: Digests, graded: Graded) -> None:
        """Note a release before it is sent; on disk when this returns.

        Args:
            name: Name of its draws, the same in a run that is begun again.
            job: Digest of the job.
            digests: Digests of the ids, as `PartyTable.graded`, uint8 (n, 16); none where a release was refused.
            graded: Its grades.
        """
        words, files = _words(digests), self._files()
        order = np.argsort(words, kind="stable")
        words, grades = words[order], graded.grades[order]
        known = [path for path in files if _name_of(path) == name]
        if known and not len(words):
            return
        if known:
            # Of fewer rows than before, as in a pilot of the same draws: what was released stays released.
            before, graded_before, _ = _read(known[0])
            others = _among(before, words) < 0
            words, grades = np.r_[before[others], words], np.r_[graded_before[others], grades]
        order = np.argsort(words, kind="stable")
        number = max((int(path.name.partition("-")[0]) for path in files), default=0) + 1
        path = known[0] if known else self.folder / f"{number:06d}-{name}.safetensors"
        header = _Header(job, graded.bands, graded.epsilon)
        _write(path, words[order], grades[order], header)

    def has(self, name: str) -> bool:
        """Whether a release was noted."""
        return any(_name_of(path) == name for path in self._files())

    def others(self, name: str, digests: Digests) -> tuple[list[Graded], dict[str, float | None]]:
        """The grades of rows in all releases but one, the oldest first, and the epsilon of every release by its name.

        Args:
            name: Name of the draws of that release.
            digests: Digests of the ids of the rows, uint8 (n, 16).

        Raises:
            CheckpointError: A file is damaged.
        """
        words, found = _words(digests), list[Graded]()
        names: dict[str, float | None] = {}
        for path in self._files():
            known, grades, header = _read(path)
            names[other := _name_of(path)] = header.epsilon
            if other == name or not len(known):
                continue
            at = _among(words, known)
            of_rows = np.where(at >= 0, grades[at], -1)
            if (of_rows >= 0).any():
                found.append(Graded(of_rows, header.bands, header.epsilon))
        return found, names

    def forget(self, digests: Digests) -> None:
        """Remove rows from all releases, by the digests of their ids, uint8 (n, 16)."""
        gone = _words(digests)
        with self._locked_if_there():
            for path in self._files():
                words, grades, header = _read(path)
                stay = _among(words, np.sort(gone)) < 0
                if not stay.all():
                    _write(path, words[stay], grades[stay], header)

    def forget_job(self, job: str) -> None:
        """Remove the releases of a job, by its digest."""
        with self._locked_if_there():
            for path in self._files():
                if _read(path)[2].job == job:
                    path.unlink()

    def _locked_if_there(self) -> AbstractContextManager[None]:
        return self.locked() if self.folder.is_dir() else nullcontext()

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.safetensors") if _FILE.fullmatch(path.stem))


def _name_of(path: Path) -> str:
    return path.stem.partition("-")[2]


def _words(digests: Digests) -> npt.NDArray[np.int64]:
    """The last 8 bytes of each digest (n, 16), int64 (n,)."""
    return np.ascontiguousarray(digests[:, 8:]).view("<i8")[:, 0].astype(np.int64)


def _among(words: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each of some words is among others, which are ascending, int64 (n,); -1 for those that are not."""
    if not len(known):
        return np.full(len(words), -1)
    at = np.minimum(np.searchsorted(known, words), len(known) - 1)
    return np.where(known[at] == words, at, -1)


def _write(path: Path, words: npt.NDArray[np.int64], grades: npt.NDArray[np.int64], header: _Header) -> None:
    tensors = {"ids": torch.from_numpy(words), "grades": torch.from_numpy(grades.astype(np.uint8))}
    epsilon = "" if header.epsilon is None else header.epsilon.hex()
    write_tensors(path, tensors, {"job": header.job, "bands": f"{header.bands}", "epsilon": epsilon})


def _read(path: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], _Header]:
    try:
        tensors, header = read_tensors(path)
        epsilon = float.fromhex(header["epsilon"]) if header["epsilon"] else None
        read = _Header(header["job"], int(header["bands"]), epsilon)
        return tensors["ids"].numpy(), tensors["grades"].numpy().astype(np.int64), read
    except (OSError, ValueError, KeyError, OverflowError) as damage:
        remedy = "restore it from a backup, or remove it: its release then counts as one whose grades are not known"
        raise CheckpointError(f"{path} is damaged ({damage}); {remedy}") from None
