"""Functions from a batch of rows to a batch of rows, of which an engine sends copies to its workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self, TypeVar

import pyarrow as pa

from cutlayer.consent import allowed
from cutlayer_batches.parts import OwnPart, PredictingPart, ReleasingPart, part_at

Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)


@dataclass(frozen=True)
class BatchFunction(ABC):
    """A function of a batch; each process that calls it loads the party's part of the run, once.

    Attributes:
        run: Path of the party's run folder, which every worker can read.
        party: Name of the party.
        training: Id of the training, which a folder that was replaced meanwhile does not have.
        local: Path of the private file, which allows the modules of the user's own models; `None` without any.
        key: Path of the key of a run that was made with `--key`; `None` for any other run.
    """

    run: str
    party: str
    training: str
    local: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, run: Path | str, party: str, local: Path | str | None, key: Path | str | None) -> Self:
        """The function of a run folder, which is opened here once, so that errors come before workers start."""
        paths = [None if path is None else str(Path(path).resolve()) for path in (run, local, key)]
        with _allowed(paths[1]):
            *_, model = part_at(Path(str(paths[0])), party)
            made = cls(str(paths[0]), party, model.record.training, paths[1], paths[2])
            _loaded(made)
        return made

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches that it returns."""
        return _loaded(self).schema

    def __call__(self, batch: Batch) -> Batch:
        """Apply it to a batch, a `pyarrow.RecordBatch` or a `pyarrow.Table`; returns one of the same class.

        Raises:
            DataError: A column is absent or of another kind, or an id is missing or repeats in the batch.
            CutlayerError: The run folder cannot be used, or is of another training than the function.
        """
        rows = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        with _allowed(self.local):
            made = _loaded(self).apply(rows)
        if isinstance(batch, pa.Table):
            return made
        (whole,) = made.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=made.schema)]
        return whole

    def each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply it to every batch of an iterator, which is what `mapInArrow` of Spark calls."""
        return map(self, batches)

    @abstractmethod
    def load(self) -> OwnPart:
        """Open the party's part of the run."""


@contextmanager
def _allowed(local: str | None) -> Iterator[None]:
    """Consent of the private file to the user's own models."""
    if local is None:
        yield
        return
    with allowed(*_modules(local)):
        yield


@lru_cache(maxsize=4)
def _modules(local: str) -> tuple[str, ...]:
    from cutlayer.config.load import load_private_part

    return load_private_part(Path(local)).allow_models


@lru_cache(maxsize=4)
def _loaded(function: BatchFunction) -> OwnPart:
    return function.load()


class Releaser(BatchFunction):
    """A passive party's release of the rows of a batch; see `releaser`."""

    def load(self) -> ReleasingPart:
        """Open the part that releases."""
        return ReleasingPart.open(Path(self.run), self.party, self.training, self.key)


class Predictor(BatchFunction):
    """The label owner's predictions of the rows of a batch; see `predictor`."""

    def load(self) -> PredictingPart:
        """Open the part that predicts."""
        return PredictingPart.open(Path(self.run), self.party, self.training)


class Identifier(BatchFunction):
    """Adds the id by which rows are compared; see `identifier`."""

    def load(self) -> OwnPart:
        """Open the part, of which the rules of the ids are read."""
        return OwnPart.open(Path(self.run), self.party, self.training)


def releaser(
    run: Path | str, party: str, *, local: Path | str | None = None, key: Path | str | None = None
) -> Releaser:
    """A passive party's release of rows as a function of a batch.

    The batch has the party's id columns and features, as its table has them. The result has `id`, the text by which ids
    are compared, and `grade of PARTY`, int8 from 0, or `release 0 of PARTY` and so on, float32. A row has the same
    release in every batch, on every worker, in a repetition, and by `cutlayer release --run`: grades are drawn by the
    secret and the id.

    Nothing is counted here, and every row that it is given is released: see `release`, which counts.

    Args:
        run: The party's run folder, which every worker must be able to read; it holds the key of the draws.
        party: Name of the party.
        local: The private file, where it allows the user's own models.
        key: The key of a run that was made with `--key`.

    Raises:
        ConfigError: Releases of the party depend on more than the row: noise that is drawn for each prediction and
            counted, row numbers as ids, or several keys.
        RunFolderError: The folder does not have the party's part of a finished run.

    Guarantee: that of the party's protections in the run. For `grade_dp` it is one draw of a row, however often the row
    is released; it holds for each id's first columns.
    """
    return Releaser.of(run, party, local, key)


def predictor(run: Path | str, party: str, *, local: Path | str | None = None) -> Predictor:
    """The label owner's predictions as a function of a batch of its own columns beside those of the releases.

    A row without a partner has null in the columns of that partner, as a left join makes it. The result has `id` as the
    table has it, and the columns of `cutlayer predict`, with the names of the parties that contributed as one text.

    Args:
        run: The label owner's run folder, which every worker must be able to read.
        party: Name of the label owner.
        local: The private file, where it allows the user's own models.

    Raises:
        ConfigError: The party is not the label owner, or rows have no id column or several keys.
        RunFolderError: The folder does not have the party's part of a finished run.

    Guarantee: none is needed: nothing leaves the label owner.
    """
    return Predictor.of(run, party, local, None)


def identifier(run: Path | str, party: str) -> Identifier:
    """A function that adds `release_id` to a batch: the text by which ids are compared, to join releases by.

    Args:
        run: The party's run folder.
        party: Name of the party.

    Raises:
        ConfigError: Rows have no id column or several keys.
        RunFolderError: The folder does not have the party's part of a finished run.
    """
    return Identifier.of(run, party, None, None)
