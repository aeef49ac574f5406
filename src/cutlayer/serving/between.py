"""Predictions between organisations: each has its own part of the model and its own table of new rows.

The rows are aligned as in training. Then the active party asks for them batch by batch, and each passive party releases
every row once, through its protections, in the order that it computes itself.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from cutlayer.alignment.held_rows import HeldRows
from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.receiving import receive, send_done
from cutlayer.config import FeaturesConfig, Job, LimitsConfig
from cutlayer.config.phases import grades_rows
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.forgotten import ForgottenRows
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.errors import ProtocolError
from cutlayer.parties.agreement.handshake import (
    SavedPoints,
    agree_active,
    agree_passive,
)
from cutlayer.parties.agreement.order import agree_order_active, agree_order_passive
from cutlayer.parties.guards.numbers import check_own
from cutlayer.parties.messages import checked_embedding
from cutlayer.parties.session.local import EVALUATION_ROWS, packing_of
from cutlayer.serving.answers import Embed, PredictedRows, answer_rows
from cutlayer.serving.models import PartyModel, RowEmbedder, further_models
from cutlayer.serving.party_drift import PartyDrift
from cutlayer.serving.predicted_grades import note_grades
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.storage.row_arrays import gathered_rows
from cutlayer.storage.row_tensors import empty_rows, rows_of
from cutlayer.training.folder import RunFolder

REQUEST_PART = "new rows"
"""The part of the rows that a request of a prediction names."""


@dataclass(frozen=True)
class PredictionSide:
    """A party's own side of a prediction.

    Attributes:
        job: Job of the run, with the private part that the party was trained with.
        model: The party's part of the model.
        table: The party's new rows.
        limits: Bounds on the numbers that the party sends and accepts.
        alignment: How the rows are aligned.
        drift: Drift of what this party sees, counted as the rows are predicted.
        max_drift: Maximum drift of its columns, beyond which it neither asks nor releases; `None` for no limit.
        further: The label owner's model of each further label.
    """

    job: Job
    model: PartyModel
    table: PartyTable
    drift: PartyDrift
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    alignment: Alignment = field(default_factory=Alignment)
    max_drift: float | None = None
    further: Mapping[str, PartyModel] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        job: Job,
        folder: RunFolder,
        party: str,
        table: object,
        limits: LimitsConfig,
        max_drift: float | None = None,
        forgotten: ForgottenRows | None = None,
    ) -> PredictionSide:
        """Load a party's part of a run, and open its table of new rows.

        Args:
            job: Job of the run.
            folder: The party's own folder of the run.
            party: Name of the party.
            table: A `TableConfig`, or a table in memory.
            limits: Bounds on the numbers that it sends and accepts.
            max_drift: Maximum drift of its columns; `None` for no limit.
            forgotten: Rows that it has forgotten, of which nothing is predicted or released.

        Raises:
            RunFolderError: The folder does not have the part of a finished run.
            DataError: The table cannot be used.
        """
        model = PartyModel.load(job, folder, party)
        features = FeaturesConfig(include="none") if model.encoder is None else None
        private = job.parties[party]
        rows = PartyTable(
            party,
            table,
            id=private.id,
            features=features,
            encoder=model.encoder,
            partner_ids=private.partner_ids,
            forgotten=forgotten,
            limited=private.limited_columns,
        )
        further = further_models(job, folder) if party == job.active else {}
        drift, alignment = PartyDrift.of(job, folder, party), Alignment(job.alignment, Purpose.PREDICT)
        return cls(job, model, rows, drift, limits, alignment, max_drift, further)

    @property
    def name(self) -> str:
        """Name of the party."""
        return self.model.record.party

    @property
    def width(self) -> int:
        """Number of columns of its embedding; 0 where it has no features."""
        return 0 if self.model.bottom is None else self.model.bottom.width

    def store(self, positions: np.ndarray) -> Store:
        """Encoded rows, in the common order, of which the drift is counted.

        Args:
            positions: Row numbers in the table, int64 (m,).

        Raises:
            DriftExceeded: They have drifted beyond the limit.
        """
        store = self.table.encode_all().take(torch.from_numpy(positions))
        self.drift.add_store(store)
        self.drift.check_columns(self.max_drift)
        return store


def serve_requests(side: PredictionSide, serving: PredictionReleases, port: Port) -> Generator[Port, Message, int]:
    """The passive side: align, then release every common row once; returns the number of rows.

    Args:
        side: The party's own side.
        serving: Releases of the party.
        port: Port to the active party.

    Raises:
        ConfigError, BudgetExceeded: No prediction is left; nothing is sent then.
        DriftExceeded: The rows have drifted beyond the limit; nothing was released. The refusal of grades is counted.
        ProtocolError: The active party has a part of another training, or asks for anything but the next batch.
    """
    serving.check()
    aligned = yield from agree_passive(side.job, side.table, port, SavedPoints(), side.limits, side.alignment)
    bottom = side.model.bottom_model
    yield from agree_order_passive(port, aligned.row_ids(side.table), bottom.width)
    yield from _compare_trainings(side, [port], bottom.width)
    with serving.refusing():
        store = side.store(aligned.positions)
    own = gathered_rows(side.table.digests, aligned.positions)
    graded = grades_rows(side.job, side.name) and side.table.id_kind != "row"
    embed = RowEmbedder(bottom, store, side.table.grade_digests(own) if graded else None)
    embed.values, embed.numbers = side.table.value_reader(own), aligned.positions
    with serving.refusing():
        note_grades(side.job, serving.folder, side.name, side.model.encoder, embed, side.table)
    port.compression = packing_of(side.job, side.name) if grades_rows(side.job, side.name) else None
    with serving.prediction() as prediction:
        # By this party's own numbers, never by those of a request: each row is in one batch.
        for number, rows in enumerate(evaluation_batches(torch.arange(store.rows), EVALUATION_ROWS)):
            request = yield from receive(port, Kind.REQUEST, -1, number, rows_digest(rows))
            if (request.fields["part"], request.fields["batch"]) != (REQUEST_PART, number):
                wanted = f"a request for batch {number} of {REQUEST_PART} from {port.peer}"
                raise ProtocolError.expected(wanted, "another")
            with torch.no_grad():
                check_own(embed(rows), side.limits.embedding_norm, side.name, f"embedding of batch {number}")
            released = prediction.release(embed, rows)
            side.drift.add_release(side.name, released)
            port.send(Kind.EVALUATION, step=number, rows=request.rows, tensors={"embedding": released})
    yield from receive(port, Kind.CLOSE)
    send_done(port)
    return store.rows


def request_predictions(
    side: PredictionSide, ports: Mapping[str, Port], absent: Sequence[str] = ()
) -> Generator[Port, Message, PredictedRows]:
    """The active side: align, then ask for every common row, and answer with the top model.

    Args:
        side: The party's own side.
        ports: Ports to the passive parties that are not absent, by name in the job's order.
        absent: Passive parties without which the rows are predicted.

    Raises:
        ProtocolError: A passive party has a part of another training, or sends anything but the embeddings asked for.
        DriftExceeded: The party's own columns have drifted beyond the limit; nothing was asked for.
    """
    top, widths = side.model.top_model, side.model.record.widths
    aligned = yield from agree_active(side.job, side.table, side.name, ports, [], side.limits, side.alignment)
    held = aligned.aligned.held
    count = len(aligned.positions)
    order = np.argsort(aligned.positions)  # of the party's own table
    own = None if side.model.bottom is None else side.store(aligned.positions[order])
    yield from agree_order_active(side.job, ports, aligned.row_ids(side.table), held)
    yield from _compare_trainings(side, [*ports.values()], 0, widths)
    for name, port in ports.items():
        port.compression = packing_of(side.job, name) if grades_rows(side.job, name) else None
    asked = {name: evaluation_batches(torch.arange(held.count(name, count)), EVALUATION_ROWS) for name in ports}
    released = {name: empty_rows(held.count(name, count), torch.empty(0, widths[name])) for name in ports}
    for number in range(max(map(len, asked.values()), default=0)):
        batches = {name: batches[number] for name, batches in asked.items() if number < len(batches)}
        for name, rows in batches.items():
            stated: dict[str, int | str] = {"part": REQUEST_PART, "batch": number}
            ports[name].send(Kind.REQUEST, step=number, rows=rows_digest(rows), fields=stated)
        for name, rows in batches.items():
            message = yield from receive(ports[name], Kind.EVALUATION, -1, number, rows_digest(rows))
            released[name][rows] = checked_embedding(message, len(rows), widths[name], side.limits.embedding_norm)
            side.drift.add_release(name, released[name][rows])
    send_done(*ports.values())
    for port in ports.values():
        yield from receive(port, Kind.CLOSE)
    missing = math.nan if side.job.fits_top else 0.0
    # After the last message: which kind of model the labels chose would show in the time of one that waits for it.
    held = HeldRows({name: numbers[order] for name, numbers in held.by_party.items() if name in ports})
    embeddings: dict[str, Embed] = {}
    for name, part in released.items():
        in_order = part if name in held.by_party else rows_of(part, torch.from_numpy(order))
        embeddings[name] = partial(rows_of, held.scattered(name, in_order, missing))
    if side.model.bottom is not None and own is not None:
        embeddings[side.name] = RowEmbedder(side.model.bottom, own)
    predicted = answer_rows(
        top, widths, embeddings, held, side.table.ids(aligned.positions[order]), absent, side.further
    )
    side.drift.add_predicted(side.model.task, predicted)
    return predicted


def _compare_trainings(
    side: PredictionSide, ports: Sequence[Port], width: int, widths: Mapping[str, int] | None = None
) -> Generator[Port, Message, None]:
    """Compare the training that each party's part is of: parts of different ones give numbers without a meaning.

    Raises:
        ProtocolError: Another training, or another width than in it.
    """
    for port in ports:
        port.send(Kind.OFFER, fields={"version": side.model.record.training_with(port.peer), "width": width})
    for port in ports:
        training = side.model.record.training_with(port.peer)
        theirs = yield from receive(port, Kind.OFFER)
        if theirs.fields["version"] != training:
            wanted = f"a part of training {training} at {port.peer}, as here"
            raise ProtocolError.expected(wanted, f"one of {theirs.fields['version']}", "name the folders of one run")
        if widths is not None and theirs.fields["width"] != widths[port.peer]:
            wanted = f"embeddings of {widths[port.peer]} columns from {port.peer}, as in training"
            raise ProtocolError.expected(wanted, theirs.fields["width"])
