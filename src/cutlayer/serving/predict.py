"""Predictions of a trained model for many rows, all parties here, written to a file in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.config import Job, near_miss
from cutlayer.data.batches import evaluation_batches
from cutlayer.errors import AlignmentError, ConfigError, DataError
from cutlayer.kernels.patterns import patterns
from cutlayer.parties.held_rows import held_of_run
from cutlayer.parties.local import EVALUATION_ROWS
from cutlayer.parties.split import split_of_run
from cutlayer.results.scores import ScoreWriter, check_scores_path, score_file, scores_of
from cutlayer.serving.aligned import MAX_WINDOW, AlignedRows, Window
from cutlayer.serving.models import Models, embedding_of
from cutlayer.serving.new_rows import NewRows
from cutlayer.serving.release import OpenPrediction, servings
from cutlayer.training.folder import RunFolder
from cutlayer.training.recorder import read_truth
from cutlayer.training.test_predictions import check_other_file, reported_ids
from cutlayer.training.trained import stores_of


@dataclass(frozen=True)
class Request:
    """What to predict.

    Attributes:
        tables: New rows by party, each a `TableConfig` or a table in memory; the run's test rows where empty.
        absent: Passive parties that do not answer.
        partial: Whether rows that a passive party does not have are predicted without it, as those of a job with
            `rows: all` always are.
        key: Key that replaced all keys of the run, 32 bytes; `None` where each party has its own.
    """

    tables: Mapping[str, object] = field(default_factory=dict)
    absent: Collection[str] = ()
    partial: bool = False
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Predicted:
    """What a prediction left.

    Attributes:
        out: Path of the file.
        rows: Number of predicted rows.
        contributed: Number of rows that each party with features contributed to, by name in the job's order.
        absent: Passive parties that were left out.
        lacking: Number of rows of the first table that each other party does not have.
        predictions: Predictions of each party whose releases are counted: made so far, this one included, and planned.
    """

    out: Path
    rows: int
    contributed: Mapping[str, int]
    absent: tuple[str, ...]
    lacking: Mapping[str, int]
    predictions: Mapping[str, tuple[int, int]]


def predict(job: Job, folder: RunFolder, out: Path, request: Request) -> Predicted:
    """Predict rows with the models of a finished run, and write one row per id.

    All rows are read, encoded with the encoders of the training, and aligned before anything is released. Then every
    passive party releases each row once, through its protections; that is counted as one prediction of the party.

    Args:
        job: Job of the run, with the private parts of all parties.
        folder: Folder of the run, with the parts of all parties.
        out: Path of the Parquet or CSV file to write, by its ending; temporary files are made next to it.
        request: What to predict.

    Raises:
        CutlayerError: Bad input, or a party has no prediction left; nothing is written then, and as long as the rows
            are being read, nothing is released.
    """
    check_scores_path(out)
    check_other_file(folder, out)
    models = Models.load(job, folder)
    absent = models.absent(request.absent)
    with _open_rows(job, folder, models, absent, out.parent, request) as rows:
        passives = [name for name in rows.features if name in job.passives]
        serving = servings(job, folder, {name: models.widths[name] for name in passives}, request.key)
        with ExitStack() as stack, score_file(out, models.task, rows.ids, [*models.encoders]) as writer:
            open_predictions = {name: stack.enter_context(party.prediction()) for name, party in serving.items()}
            _write(models, rows, open_predictions, writer)
            if not writer.rows:
                raise AlignmentError.expected("rows that all parties have", "none", "or predict without some of them")
        predictions = {
            name: (party.predictions_made, party.plan.serving) for name, party in serving.items() if party.counted
        }
        lacking = {name: count for name, count in rows.lacking.items() if count}
        return Predicted(out, writer.rows, writer.counts, absent, lacking, predictions)


@dataclass(frozen=True)
class _OpenRows:
    """Aligned rows to predict, ready to be read."""

    ids: pa.DataType
    features: Sequence[str]
    lacking: Mapping[str, int]
    windows: Iterator[Window]


@contextmanager
def _open_rows(
    job: Job, folder: RunFolder, models: Models, absent: Sequence[str], scratch: Path, request: Request
) -> Iterator[_OpenRows]:
    needed = [name for name in models.encoders if name not in absent]
    if not request.tables:
        yield _test_rows(job, folder, needed)
        return
    tables = _tables(job, models, needed, absent, request)
    with tempfile.TemporaryDirectory(prefix=".cutlayer-", dir=scratch) as path:
        aligned = AlignedRows(tables, Path(path), partial=request.partial or job.rows == "all")
        aligned.prepare()
        yield _OpenRows(aligned.ids, aligned.features, aligned.lacking, aligned.windows())


def _tables(
    job: Job, models: Models, needed: Sequence[str], absent: Sequence[str], request: Request
) -> dict[str, NewRows]:
    """The tables of the parties that answer; that of the active party is the first, if it has one.

    Raises:
        ConfigError: A table of an unknown or absent party.
        DataError: A party has features, and no table.
    """
    tables = request.tables
    for name in tables:
        if name not in job.parties:
            raise ConfigError(f"no party is called {name!r}{near_miss(name, [*job.parties])}")
        if name in absent:
            raise ConfigError.expected(f"no table of {name}, which is absent", "one", "leave one of the two out")
    missing = [name for name in needed if name not in tables]
    if missing:
        remedy = "" if missing == [job.active] else "or name who is absent"
        raise DataError.expected(f"a table of {', '.join(needed)}", f"none of {', '.join(missing)}", remedy)
    names = sorted(
        (name for name in tables if name in needed or name == job.active), key=lambda name: name != job.active
    )
    return {name: NewRows(name, tables[name], job.parties[name].id, models.encoders.get(name)) for name in names}


def _test_rows(job: Job, folder: RunFolder, needed: Sequence[str]) -> _OpenRows:
    """The rows that the run is measured on, as they were encoded for it."""
    ids = reported_ids(folder)
    held = held_of_run(job, folder.path)
    truth, _ = read_truth(folder.transcript(job.active))
    stores = {name: store for name, store in stores_of(job, folder, held).items() if name in needed}
    split = split_of_run(job, folder.path, job.active, len(truth))
    chosen = split.part("test" if len(split.test) else "validation")

    def windows() -> Iterator[Window]:
        first = 0
        for rows in torch.split(chosen, MAX_WINDOW):
            present = dict.fromkeys(needed, np.ones(len(rows), dtype=bool))
            present |= {name: mask.numpy() for name, mask in held.present(rows).items() if name in needed}
            columns = {name: store.take(rows) for name, store in stores.items()}
            yield Window(ids.slice(first, len(rows)).combine_chunks(), columns, present)
            first += len(rows)

    return _OpenRows(ids.type, needed, {}, windows())


def _write(
    models: Models, rows: _OpenRows, open_predictions: Mapping[str, OpenPrediction], writer: ScoreWriter
) -> None:
    first = 0
    for window in rows.windows:
        embeddings = {
            name: _embeddings(models, name, window, first, open_predictions.get(name)) for name in models.bottoms
        }
        present = {name: window.present.get(name, np.zeros(len(window), dtype=bool)) for name in models.bottoms}
        logits = answer_rows(models, embeddings, present)
        writer.write(window.ids, scores_of(models.task, logits), present)
        first += len(window)


def _embeddings(models: Models, name: str, window: Window, first: int, prediction: OpenPrediction | None) -> Tensor:
    """Embeddings (n, width) of a window at the active party; zeros for rows that the party does not have."""
    bottom = models.bottoms[name]
    embedding = torch.zeros(1, bottom.width).expand(len(window), -1)
    if name not in window.stores:
        return embedding
    embed, present = embedding_of(bottom, window.stores[name], first), torch.from_numpy(window.present[name])
    rows = torch.nonzero(present)[:, 0] + first
    with torch.no_grad():
        if prediction is not None:
            released = prediction.release(embed, rows)
        else:
            released = torch.cat([embed(batch) for batch in evaluation_batches(rows, EVALUATION_ROWS)])
    return released if bool(present.all()) else embedding.clone().index_copy_(0, rows - first, released)


def answer_rows(models: Models, embeddings: Mapping[str, Tensor], present: Mapping[str, np.ndarray]) -> Tensor:
    """Logits (n, outputs) of rows that differ in the parties that are absent.

    Args:
        models: Trained models of all parties.
        embeddings: Embeddings (n, width) of all parties that have features, in the job's order.
        present: Which rows each of these parties contributes to, bool (n,).
    """
    names = [*embeddings]
    contributing = np.column_stack([present[name] for name in names])
    logits: Tensor | None = None
    for pattern, indices in patterns(contributing) if len(contributing) else ():
        absent = [name for name, contributes in zip(names, pattern.tolist(), strict=True) if not contributes]
        for batch in evaluation_batches(torch.from_numpy(indices), EVALUATION_ROWS):
            part = models.answer({name: embedding[batch] for name, embedding in embeddings.items()}, absent)
            logits = part.new_empty(len(contributing), part.shape[1]) if logits is None else logits
            logits[batch] = part
    if logits is None:
        raise DataError.expected("a row to predict", "none")
    return logits
