"""The grades that a party has released in all of its jobs: a reader of several grades of a row can combine them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.data.ids import Digests
from cutlayer.data.row_values import ValuesOf, ValueWords, single_words
from cutlayer.errors import CheckpointError
from cutlayer.parties.carried_together import GradedRows
from cutlayer.parties.grade_turns import Release, both_of, grades_in_turn, indices_among, row_words, rows_at
from cutlayer.storage.durable import locked, make_folder, write_whole
from cutlayer.storage.json_values import parse_json
from cutlayer.storage.tensor_file import read_tensors, write_tensors

_FILE = re.compile(r"[0-9]{6}-\w+")
"""Names of the files; others, such as copies, are none of them."""
_LIMITS_FILE = "limits.json"


class _Header(NamedTuple):
    """Of a release: digest of its job, number of grades, privacy of a draw, columns with known values, and its fits."""

    job: str
    bands: int
    epsilon: float | None
    columns: tuple[str, ...] = ()
    fits: frozenset[str] = frozenset()


class JoinKeys(NamedTuple):
    """Rows by which releases are joined.

    Attributes:
        digests: Digests of their ids, as `PartyTable.grade_digests`, uint8 (n, 16).
        columns: Columns whose values are noted.
        values: Words of their values by columns.
    """

    digests: Digests
    columns: tuple[str, ...] = ()
    values: ValuesOf = lambda _: None


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

    def record(self, name: str, job: str, rows: JoinKeys, graded: GradedRows, fit: str = "") -> None:
        """Note a release before it is sent; on disk when this returns.

        Args:
            name: Name of its draws, the same in a run that is begun again.
            job: Digest of the job.
            rows: Its rows; none where a release was refused.
            graded: Its grades.
            fit: Name of the fit that they are of, under its conditions; those of earlier notes stay.
        """
        words, files = _words(rows.digests), self._files()
        header = _Header(job, graded.bands, graded.epsilon, tuple(rows.columns), frozenset([fit] if fit else []))
        known = [path for path in files if _name_of(path) == name]
        if known and not len(words):
            return
        values = rows.values(rows.columns)
        none = np.zeros_like(words)
        release = Release(words, graded.grades, none if values is None else values, none)
        release = rows_at(release, np.argsort(words, kind="stable"))
        if known:
            # Of fewer rows than before, as in a pilot of the same draws: what was released stays released.
            before, noted = _read(known[0])
            header, release = header._replace(fits=header.fits | noted.fits), both_of(before, release)
            if header == noted and all(map(np.array_equal, before, release)):
                return
        number = max((int(path.name.partition("-")[0]) for path in files), default=0) + 1
        path = known[0] if known else self.folder / f"{number:06d}-{name}.safetensors"
        _write(path, release, header)

    def has_same(self, name: str, digests: Digests, graded: GradedRows, fit: str = "") -> bool:
        """Whether a release is noted with all of some rows and their grades: again, it says nothing new.

        Whatever was released since was within limits together with it. With the name of a fit it is one of that.
        """
        if (path := self._named(name)) is None:
            return False
        known, header = _read(path)
        if fit and fit not in header.fits:
            return False
        return bool(np.isin(row_words(_words(digests), graded.grades), row_words(known.ids, known.grades)).all())

    def epsilons(self, fit: str) -> set[float | None]:
        """The epsilons at which grades of a fit were released."""
        headers = (_read(path)[1] for path in self._files())
        return {header.epsilon for header in headers if fit in header.fits}

    def note_limits(self, name: str, limits: Mapping[str, float]) -> None:
        """Note the limits that the party's private file has by now for predictions by a release, under `locked`."""
        others = {other: noted for other, noted in self._noted_limits().items() if self.has(other)}
        write_whole(self.folder / _LIMITS_FILE, json.dumps({**others, name: dict(limits)}))

    def limits(self, name: str) -> list[Mapping[str, float]]:
        """The limits that were noted last for a release; none where none were."""
        return [noted] if (noted := self._noted_limits().get(name)) is not None else []

    def _noted_limits(self) -> dict[str, dict[str, float]]:
        path = self.folder / _LIMITS_FILE
        try:
            noted = parse_json(path.read_bytes()) if path.exists() else {}
            return {name: {str(key): float(value) for key, value in each.items()} for name, each in noted.items()}
        except (OSError, ValueError, AttributeError, TypeError) as damage:
            remedy = "restore it from a backup, or remove it: the limits of the run alone then hold without the file's"
            raise CheckpointError(f"{path} cannot be read ({damage}); {remedy}") from None

    def drop(self, name: str) -> None:
        """Remove a release that was noted, and is not made."""
        if (path := self._named(name)) is not None:
            path.unlink()

    def has(self, name: str) -> bool:
        """Whether a release is noted, by the name of its draws."""
        return self._named(name) is not None

    def _named(self, name: str) -> Path | None:
        return next((path for path in self._files() if _name_of(path) == name), None)

    def other_releases(
        self, name: str, rows: JoinKeys, grades: npt.NDArray[np.int64] | None = None
    ) -> tuple[list[GradedRows], dict[str, float | None]]:
        """All other grades of rows, those of the oldest release first, and the epsilon of every release by its name.

        A row is that of an earlier release with the same id. Where there is none, as the ids there are another column,
        it is the one with the same values, if no other row has these, here or there. Several grades that a row had in
        one release, since its columns changed between predictions, are as many releases: see `grades_in_turn`.

        Args:
            name: Name of the draws of a release.
            rows: The rows.
            grades: Their grades in it, int64 (n,), of which only different ones are others; without them none of that
                release is.

        Raises:
            CheckpointError: A file is damaged.
        """
        words, found, values = _words(rows.digests), list[GradedRows](), cache(rows.values)
        names: dict[str, float | None] = {}
        order = np.argsort(words)  # a search for ascending words takes a fifth of the time
        for path in self._files():
            release, header = _read(path)
            names[other := _name_of(path)] = header.epsilon
            own = grades if other == name else None
            if (other == name and own is None) or not len(release.ids):
                continue
            at = np.empty_like(words)
            at[order] = indices_among(words[order], release.ids)
            if header.columns and (at < 0).any() and (at >= 0).sum() < len(release.ids):
                at = _match_by_values(at, values(header.columns), release.values)
            found += grades_in_turn(release, header.bands, header.epsilon, at, own)
        return found, names

    def has_rows(self, digests: Digests) -> npt.NDArray[np.bool_]:
        """Whether a release has each of some rows, (n,), by the digests of their ids, uint8 (n, 16)."""
        found = np.zeros(len(digests), np.bool_)
        for path in self._files():
            found |= indices_among(_words(digests), _read(path)[0].ids) >= 0
        return found

    def forget(self, digests: Digests) -> None:
        """Remove rows from all releases, by the digests of their ids, uint8 (n, 16)."""
        gone = np.sort(_words(digests))
        with self._locked_if_there():
            for path in self._files():
                release, header = _read(path)
                stay = indices_among(release.ids, gone) < 0
                if not stay.all():
                    later = indices_among(release.earlier_ids, gone) < 0
                    earlier = (each[later] for each in release[4:])
                    _write(path, Release(*rows_at(release, stay)[:4], *earlier), header)

    def forget_job(self, job: str) -> None:
        """Remove the releases of a job, by its digest."""
        with self._locked_if_there():
            for path in self._files():
                if _read(path)[1].job == job:
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


def _match_by_values(at: npt.NDArray[np.int64], values: ValueWords | None, known: ValueWords) -> npt.NDArray[np.int64]:
    """Rows of a release as `indices_among`, those that no id finds by their values."""
    if values is None:
        return at
    free = np.ones(len(known), np.bool_)
    free[at[at >= 0]] = False
    mine, theirs = np.flatnonzero(at < 0), np.flatnonzero(free)
    mine = mine[indices_among(values[mine], single_words(values)) >= 0]
    theirs = theirs[indices_among(known[theirs], np.sort(values[mine])) >= 0]
    theirs = theirs[indices_among(known[theirs], single_words(known)) >= 0]
    theirs = theirs[np.argsort(known[theirs])]
    found = indices_among(values[mine], known[theirs])
    joined = at.copy()
    joined[mine[found >= 0]] = theirs[found[found >= 0]]
    return joined


def _write(path: Path, release: Release, header: _Header) -> None:
    tensors = {"ids": release.ids, "grades": release.grades.astype(np.uint8), "values": release.values}
    if release.turn:
        grades, turns = (each.astype(np.uint8) for each in release[5:])
        tensors |= {"noted": release.noted.astype(np.uint8)}
        tensors |= {"earlier_ids": release.earlier_ids, "earlier_grades": grades, "earlier_turns": turns}
    epsilon = "" if header.epsilon is None else header.epsilon.hex()
    stated = {"job": header.job, "bands": f"{header.bands}", "epsilon": epsilon, "columns": json.dumps(header.columns)}
    stated |= {"fit": " ".join(sorted(header.fits))} if header.fits else {}
    write_tensors(path, {name: torch.from_numpy(each) for name, each in tensors.items()}, stated)


def _read(path: Path) -> tuple[Release, _Header]:
    try:
        tensors, header = read_tensors(path)
        epsilon = float.fromhex(header["epsilon"]) if header["epsilon"] else None
        columns = tuple(parse_json(header["columns"]))
        read = _Header(header["job"], int(header["bands"]), epsilon, columns, frozenset(header.get("fit", "").split()))
        numbers = {name: tensor.numpy().astype(np.int64) for name, tensor in tensors.items()}
        if "noted" not in numbers:  # of no change, or of an earlier version
            numbers["noted"] = np.full_like(numbers["ids"], numbers.get("earlier_turns", np.zeros(1)).max())
        return Release(**numbers), read
    except (OSError, ValueError, KeyError, OverflowError, TypeError) as damage:
        remedy = "restore it from a backup, or remove it: its release then counts as one whose grades are not known"
        raise CheckpointError(f"{path} cannot be read ({damage}); {remedy}") from None
