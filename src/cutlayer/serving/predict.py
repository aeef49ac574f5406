"""Predictions of a finished run in one process, whose tables and encoded rows need not fit into memory.

Rows are aligned by id before anything of them is released, in the order of the active party's table. Each party
releases every row once, in batches of that order: that is what one count of a prediction means (`PredictionReleases`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.alignment.held_rows import HeldRows, held_of_run
from cutlayer.config import Job, TableConfig, near_miss
from cutlayer.config.ids import ROW_NUMBER
from cutlayer.config.phases import grades_rows
from cutlayer.config.reaches import source_path
from cutlayer.data.align import Positions
from cutlayer.data.ids import canonical_ids, digests_of
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.errors import AlignmentError, ConfigError, DataError
from cutlayer.parties.agreement.split import split_of_run
from cutlayer.results.scores import Destination, check_scores_output
from cutlayer.serving.answers import answer_rows
from cutlayer.serving.models import RowEmbedder, TrainedModels, further_models
from cutlayer.serving.new_rows import RowsToPredict, in_order_of_use, new_rows, new_table
from cutlayer.serving.party_drift import DriftStatistic, PartyDrift, measured_drift
from cutlayer.serving.predicted_grades import note_grades
from cutlayer.serving.prediction_release import OpenPrediction, PredictionReleases, prediction_releases
from cutlayer.serving.provenance import write_provenance
from cutlayer.storage.row_arrays import gathered_rows
from cutlayer.storage.row_tensors import empty_rows
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import reported_ids
from cutlayer.training.keys import forgotten_rows
from cutlayer.training.recorder import read_truth
from cutlayer.training.trained import released_ids


@dataclass(frozen=True)
class PredictionRequest:
    """A request for predictions.

    Attributes:
        tables: New rows by party, each a `TableConfig` or a table in memory; the run's test rows where empty.
        absent: Passive parties that do not answer.
        partial: Whether rows that a passive party does not have are predicted without it, as those of a job with
            `rows: all` always are.
        key: Key that replaced all keys of the run, 32 bytes; `None` where each party has its own.
        overwrite: Whether the predictions may replace a file; never one that is read or belongs to the run.
        max_drift: Maximum drift of each party's columns, beyond which nothing is released; `None` for no limit.
    """

    tables: Mapping[str, object] = field(default_factory=dict)
    absent: Collection[str] = ()
    partial: bool = False
    key: bytes | None = field(default=None, repr=False)
    overwrite: bool = False
    max_drift: float | None = None


@dataclass(frozen=True)
class PredictionResult:
    """Result of a prediction.

    Attributes:
        out: The file or table.
        rows: Number of predicted rows.
        contributed: Number of rows that each party with features contributed to, by name in the job's order.
        absent: Passive parties that were left out.
        lacking: Number of rows of the first table that each other party does not have.
        predictions: Predictions of each party whose releases are counted: made so far, this one included, and planned.
        warnings: Sentences on columns that are hardly those of the training.
        drift: Of each party's columns, of what the active party received, and of the scores; the greatest first.
        forgotten: Number of rows of each party that were forgotten and are left out, where there are some.
    """

    out: Destination
    rows: int
    contributed: Mapping[str, int]
    absent: tuple[str, ...]
    lacking: Mapping[str, int]
    predictions: Mapping[str, tuple[int, int]]
    warnings: tuple[str, ...] = ()
    drift: tuple[DriftStatistic, ...] = ()
    forgotten: Mapping[str, int] = field(default_factory=dict)


def predict(job: Job, folder: RunFolder, out: Destination, request: PredictionRequest) -> PredictionResult:
    """Predict rows with the models of a finished run, and write one row per id.

    All rows are read, encoded with the encoders of the training, and aligned before anything is released. Then every
    passive party releases each row once, through its protections; that is counted as one prediction of the party.

    Args:
        job: Job of the run, with the private parts of all parties.
        folder: Folder of the run, with the parts of all parties.
        out: Path of the Parquet or CSV file to write, by its ending, with temporary files next to it; or a table of a
            database.
        request: What to predict.

    Raises:
        RunFolderError: A file is at `out` that must not be replaced.
        DriftExceeded: The columns of a party have drifted beyond `request.max_drift`.
        CutlayerError: Bad input, or a party has no prediction left; nothing is written then, and as long as the rows
            are being read, nothing is released.

    Warns:
        ArrivalWarning: A column is hardly that of the training: its values are unseen, missing, or of another kind.
    """
    read = (*request.tables.values(), *(party.table for party in job.parties.values()))
    kept = folder.path, *(source_path(table.path) for table in read if isinstance(table, TableConfig))
    check_scores_output(out, kept, overwrite=request.overwrite)
    models = TrainedModels.load(job, folder)
    further = further_models(job, folder)
    absent = models.absent_parties(request.absent)
    needed = [name for name in models.encoders if name not in absent]
    beside = out.parent if isinstance(out, Path) else None
    with tempfile.TemporaryDirectory(prefix=".cutlayer-", dir=beside) as scratch:
        if request.tables:
            some = request.partial or job.rows == "all"
            tables = _tables(job, folder, models, needed, absent, request)
            graded = [name for name in job.passives if grades_rows(job, name)]
            rows = new_rows(tables, needed, Path(scratch), graded=graded, partial=some)
            # Of others the rows are encoded by now.
            tables = {name: table for name, table in tables.items() if name in graded}
        else:
            rows, tables = _test_rows(job, folder, needed), {}
        widths = {name: models.widths[name] for name in rows.stores if name in job.passives}
        serving = prediction_releases(job, folder, widths, request.key)
        drifts = _column_drifts(job, folder, rows.stores, request.max_drift, serving)
        received = drifts[job.active]
        missing = math.nan if job.fits_top else 0.0
        embedders = {
            name: RowEmbedder(models.bottoms[name], store, rows.digests.get(name))
            for name, store in rows.stores.items()
        }
        for name, party in serving.items():
            embedders[name].values = rows.values.get(name, embedders[name].values)
            with party.refusing():
                note_grades(job, folder, name, models.encoders[name], embedders[name], tables.get(name), of_run=True)
        with ExitStack() as opened:
            open_predictions = {name: opened.enter_context(party.prediction()) for name, party in serving.items()}
            embeddings = {
                name: _Embeddings(
                    embed,
                    rows.held.by_party.get(name),
                    missing,
                    open_predictions.get(name),
                    partial(received.add_release, name),
                )
                for name, embed in embedders.items()
            }
            answered = answer_rows(models.top, models.widths, embeddings, rows.held, rows.ids, absent, further)
        received.add_predicted(models.task, answered)
        contributed = answered.write(out, models.task, rows.warnings)
    number, notes = len(rows.ids), rows.warnings
    write_provenance(out, job, folder, models.task, rows=number, contributed=contributed, absent=absent, warnings=notes)
    predictions = {
        name: (party.predictions_made, party.plan.serving) for name, party in serving.items() if party.counted
    }
    lacking = {name: count for name, count in rows.lacking.items() if count}
    drift = measured_drift(drifts.values())
    return PredictionResult(
        out, len(rows.ids), contributed, absent, lacking, predictions, rows.warnings, drift, rows.forgotten
    )


def _column_drifts(
    job: Job,
    folder: RunFolder,
    stores: Mapping[str, Store],
    limit: float | None,
    serving: Mapping[str, PredictionReleases],
) -> dict[str, PartyDrift]:
    """Drift at each party, with its columns counted; that of what crosses is to be counted at the active party alone.

    A refusal by the columns of a party that releases rows is counted there.

    Raises:
        DriftExceeded: The columns of a party have drifted beyond the limit.
    """
    drifts = {name: PartyDrift.of(job, folder, name) for name in {job.active: None, **stores}}
    for name, store in stores.items():
        drifts[name].add_store(store)
        with serving[name].refusing() if name in serving else nullcontext():
            drifts[name].check_columns(limit)
    return drifts


class _Embeddings:
    """Embeddings of a party at the active party; each of its rows is released when it is first needed.

    Args:
        embed: Bottom model on the rows of the party, which are in the order in which they are needed.
        numbers: Which of them belongs to each row to predict, int64 (n,), -1 for none; `None` where all do, in order.
        missing: What stands for the embedding of a row that the party lacks.
        prediction: Releases them through the party's protections; `None` where nothing leaves the party.
        seen: Called with what was released.
    """

    def __init__(
        self,
        embed: RowEmbedder,
        numbers: Positions | None,
        missing: float,
        prediction: OpenPrediction | None,
        seen: Callable[[Tensor], None],
    ) -> None:
        bottom, store = embed.bottom, embed.store
        self._embed, self._width = embed, bottom.width
        self._missing = missing
        self._numbers = None if numbers is None else torch.from_numpy(numbers)
        self._prediction, self._seen = prediction, seen
        self._next = 0
        repeat = self._numbers is not None and int((self._numbers >= 0).sum()) > store.rows
        self._released = empty_rows(store.rows, torch.empty(0, bottom.width)) if repeat else None

    def __call__(self, rows: Tensor) -> Tensor:
        """Embeddings (m, width) of some rows to predict, int64 (m,)."""
        own = rows if self._numbers is None else self._numbers[rows]
        new = torch.arange(self._next, max(self._next, int(own.max()) + 1))
        self._next += len(new)
        made = self._embed(new) if self._prediction is None else self._prediction.release(self._embed, new)
        self._seen(made)
        there = own >= 0
        if self._released is not None:  # several rows to predict have one row of the party, which is released once
            self._released[new] = made
            made = self._released[own[there]]
        if bool(there.all()):
            return made
        return made.new_full((len(rows), self._width), self._missing).index_copy_(0, torch.nonzero(there)[:, 0], made)


def _tables(
    job: Job,
    folder: RunFolder,
    models: TrainedModels,
    needed: Sequence[str],
    absent: Sequence[str],
    request: PredictionRequest,
) -> dict[str, PartyTable]:
    """The tables of the parties that answer; that of the active party is the first, if it has one.

    Raises:
        ConfigError: A table is of no party, or of an absent one.
        DataError: A table is missing or cannot be used.
    """
    tables = request.tables
    for name in tables:
        if name not in job.parties:
            raise ConfigError(f"no party is called {name!r}{near_miss(name, [*job.parties])}")
        if name in absent:
            raise ConfigError.expected(f"no table of {name}, which is absent", "one", "leave one of the two out")
    # With ids for partners the rows of the active party alone say which of theirs belong together.
    every = {**dict.fromkeys([job.active] if job.parties[job.active].partner_ids else []), **dict.fromkeys(needed)}
    missing = [name for name in every if name not in tables]
    if missing:
        remedy = "" if missing == [job.active] else "give each with --data, or name who does not answer with --absent"
        raise DataError.expected(f"a table of {', '.join(every)}", f"none of {', '.join(missing)}", remedy)
    names = sorted(
        (name for name in tables if name in needed or name == job.active), key=lambda name: name != job.active
    )
    return {
        name: new_table(
            name,
            tables[name],
            job.parties[name].id,
            models.encoders.get(name),
            forgotten_rows(folder.path, name),
            job.parties[name].partner_ids,
            job.parties[name].limited_columns,
        )
        for name in names
    }


def _test_rows(job: Job, folder: RunFolder, needed: Sequence[str]) -> RowsToPredict:
    """The rows that the run is measured on, as they were encoded for it."""
    held = held_of_run(job, folder.path)
    truth, _ = read_truth(folder.transcript(job.active))
    split = split_of_run(job, folder.path, job.active, len(truth))
    chosen, ids = split.part("test" if len(split.test) else "validation"), reported_ids(folder)
    # Of an older copy of the folder: the run would have gone with them.
    gone = _forgotten(job, folder, ids, held, chosen)
    chosen, ids = chosen[torch.from_numpy(~gone)], ids.filter(pa.array(~gone))
    stores, places, digests = {}, {}, {}
    for name in needed:
        used, numbers = in_order_of_use(held.own_numbers(name, chosen).numpy())
        stores[name] = Store.open(folder.data(name)).numbered(torch.from_numpy(used))
        if grades_rows(job, name):
            digests[name] = gathered_rows(released_ids(job, folder, name), used)
        if len(used) < len(chosen):
            places[name] = numbers
    forgotten = {job.active: int(gone.sum())} if gone.any() else {}
    return RowsToPredict(ids, stores, HeldRows(places), {}, digests, forgotten=forgotten)


def _forgotten(
    job: Job, folder: RunFolder, ids: pa.ChunkedArray, held: HeldRows, rows: Tensor
) -> npt.NDArray[np.bool_]:
    """Which rows any party has forgotten, (n,), by the ids (n,) of the active party; `rows` are their numbers.

    Raises:
        ConfigError: They are of several columns, which the run has as one text.
        AlignmentError: All are.
    """
    gone, rule = np.zeros(len(ids), dtype=np.bool_), job.parties[job.active].id
    for name in job.parties:
        forgotten = forgotten_rows(folder.path, name)
        if forgotten is None or not forgotten.path.exists() or rule is None or rule.column == ROW_NUMBER:
            continue
        if name in held.ids:
            numbers = held.own_numbers(name, rows).numpy()
            of_party = job.parties[job.active].partner_ids.get(name, rule)
            gone |= (numbers >= 0) & forgotten.contains(held.ids[name], of_party.rule)[numbers]
            continue
        if len(rule.columns) > 1:
            raise ConfigError.expected("tables to predict (--data), since rows were forgotten", "none")
        gone |= forgotten.contains(digests_of(canonical_ids(ids, "ids", rule.rules[0])), rule.rule)
    if len(gone) and gone.all():
        raise AlignmentError.expected("a test row that was not forgotten", "none", "run the job again")
    return gone
