"""Answers queries with the parties that answer in time, many queries in one forward pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.data.id_index import ABSENT
from cutlayer.data.ids import Digests
from cutlayer.results.scores import as_columns
from cutlayer_serve.audit_log import AuditLog, ids_digest
from cutlayer_serve.peer import Lookup
from cutlayer_serve.peers import Peers
from cutlayer_serve.served_model import Columns, ServedModel
from cutlayer_serve.status import Status

Statuses = npt.NDArray[np.uint8]
RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Query:
    """Rows of one request.

    Attributes:
        caller: Name of the caller, for the audit log.
        ids: Digests of the ids, uint8 (n, 16).
        rows: Row numbers in the active party's own store, int64 (n,), `ABSENT` where it has none.
        columns: Encoded columns of the active party, (n, ...) each; `None` where its own store has them.
    """

    caller: str
    ids: Digests
    rows: RowNumbers
    columns: Columns | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Answer to a query.

    Attributes:
        predicted: Probabilities (n, classes), or values (n,) of a regression, float64; of no meaning for a row to
            which no party contributed.
        status: Status of each party for each row, uint8 (n, parties), in the model's order.
        present: Whether each party contributed, (n, parties).
        whole: Whether every party contributed to every row.
    """

    predicted: npt.NDArray[np.float64]
    status: Statuses
    present: npt.NDArray[np.bool_]
    whole: bool

    def released(self, index: int) -> int:
        """Number of rows that a party's answers released, by its index in the model's order: dropped ones too."""
        return len(self.status) if self.whole else self._count(index, Status.PRESENT, Status.DROPPED)

    def unanswered(self, index: int) -> int:
        """Number of rows that a party was asked for without an answer in time: it may have released them."""
        return 0 if self.whole else self._count(index, Status.LATE, Status.LOST)

    def _count(self, index: int, *which: Status) -> int:
        return int(np.isin(self.status[:, index], which).sum())

    def part(self, start: int, end: int) -> Outcome:
        """The rows from `start` to `end`."""
        present = self.present[start:end]
        whole = self.whole or bool(present.all())
        return Outcome(self.predicted[start:end], self.status[start:end], present, whole)

    @classmethod
    def empty(cls, model: ServedModel) -> Outcome:
        """The answer to a query of no rows."""
        nothing = np.zeros((0, len(model.parties)), dtype=np.uint8)
        return cls(
            np.zeros((0, len(model.outputs)) if model.outputs else 0), nothing, nothing.astype(bool), whole=False
        )

    def among(self, rows: RowNumbers, gone: npt.NDArray[np.bool_], model: ServedModel) -> Outcome:
        """This answer as that to some of the rows of a request.

        The active party does not know the others, or has forgotten them.

        Args:
            rows: Places of the answered rows in the request, int64 (n,).
            gone: Whether each row of the request was forgotten, (m,).
            model: The version.
        """
        count = len(gone)
        unknown = [Status.UNKNOWN if name == model.active else Status.NOT_ASKED for name in model.parties]
        predicted = np.zeros((count, *self.predicted.shape[1:]))
        status = np.tile(np.array(unknown, dtype=np.uint8), (count, 1))
        status[gone] = Status.FORGOTTEN
        predicted[rows], status[rows] = self.predicted, self.status
        present = np.zeros(status.shape, dtype=np.bool_)
        present[rows] = self.present
        return Outcome(predicted, status, present, whole=False)


async def answer(
    model: ServedModel, peers: Peers, queries: Sequence[Query], deadline: float, *, blame: bool = True
) -> list[Outcome]:
    """Answer several queries together, by the deadline.

    Args:
        model: The version that all of them are answered by.
        peers: The passive parties.
        queries: At least one.
        deadline: Time of `time.monotonic` after which no party's answer is waited for.
        blame: Whether a late answer counts against its party.
    """
    ids = np.concatenate([query.ids for query in queries]) if len(queries) > 1 else queries[0].ids
    pending = [asyncio.ensure_future(_look_up(model, peers, name, ids, deadline, blame)) for name in model.passives]
    # The queries leave before this party computes its own part.
    await asyncio.sleep(0)
    active_embedding, status = _own_part(model, queries)
    lookups = dict(zip(model.passives, await asyncio.gather(*pending), strict=True))
    columns = [status if name == model.active else lookups[name].status for name in model.parties]
    statuses = np.stack(columns, axis=1)
    present = effective = statuses == Status.PRESENT
    whole = bool(present.all())
    if not whole:
        effective = model.effective(present)
        statuses = np.where(present & ~effective, np.uint8(Status.DROPPED), statuses)
    embeddings = {name: active_embedding if name == model.active else lookups[name].embedding for name in model.parties}
    predicted = model.answer(embeddings, effective).numpy()
    scores = as_columns(model.task, predicted)
    model.drift.add_scores(scores if whole else scores[effective.all(axis=1)])
    together = Outcome(predicted, statuses, effective, whole)
    outcomes = []
    start = 0
    for query in queries:
        outcomes.append(together.part(start, start + len(query)))
        start += len(query)
    return outcomes


def log_answers(audit: AuditLog, model: ServedModel, queries: Sequence[Query], outcomes: Sequence[Outcome]) -> None:
    """Write a line for each query of what the parties released for it, before any of them is answered.

    Args:
        audit: The log.
        model: The version that answers.
        queries: The queries.
        outcomes: Their answers; none where nothing was asked of a party.

    Raises:
        OSError: The disk is full; no answer may leave then.
    """
    entries = []
    for query, outcome in zip_longest(queries, outcomes):
        counts = {
            what: {name: 0 if outcome is None else count(outcome, index) for index, name in model.passive_indices}
            for what, count in (("released", Outcome.released), ("unanswered", Outcome.unanswered))
        }
        entries.append(
            {
                "caller": query.caller,
                "version": model.version,
                "rows": len(query),
                "ids": ids_digest(query.ids),
                **counts,
            }
        )
    audit.write_all(entries)


async def _look_up(model: ServedModel, peers: Peers, name: str, ids: Digests, deadline: float, blame: bool) -> Lookup:
    peer = peers.get(name, model.tags[name])
    if peer is None:
        return Lookup.nothing(len(ids), model.widths[name], Status.DISCONNECTED)
    lookup = await peer.look_up(ids, deadline, blame=blame)
    present, embedding = lookup.status == Status.PRESENT, lookup.embedding
    if not present.all():
        ids, embedding = ids[present], embedding[torch.from_numpy(present)]
    model.drift.add_release(name, embedding)
    sample = model.samples.get(name)
    if sample is not None and len(ids):
        sample.add(ids, embedding)
    return lookup


def _own_part(model: ServedModel, queries: Sequence[Query]) -> tuple[Tensor, Statuses]:
    """Embedding (n, width) and status (n,) of the active party; nothing where it has no features."""
    rows = np.concatenate([query.rows for query in queries])
    if model.active not in model.parties:
        return torch.zeros(len(rows), 0), np.zeros(len(rows), dtype=np.uint8)
    codes, numbers = model.own_columns(rows)
    known = rows != ABSENT
    start = 0
    for query in queries:
        end = start + len(query)
        if query.columns is not None:
            codes[start:end], numbers[start:end] = query.columns
            known[start:end] = True
        start = end
    if known.all():
        model.drift.add_columns(codes, numbers)
        return model.embed((codes, numbers)), np.full(len(rows), Status.PRESENT, dtype=np.uint8)
    model.drift.add_columns(codes[torch.from_numpy(known)], numbers[torch.from_numpy(known)])
    embedding = model.embed((codes, numbers)).masked_fill(torch.from_numpy(~known)[:, None], 0.0)
    return embedding, np.where(known, Status.PRESENT, Status.UNKNOWN).astype(np.uint8)


class Batcher:
    """Collects queries of one version for a short time, so that they cross and are computed together.

    A query is sent at once if nothing is under way; otherwise it waits for others, at most the given time and number
    of rows.

    Args:
        model: The version.
        peers: The passive parties.
        seconds: Maximum wait.
        rows: Number of rows that are sent without a wait.
        patience: The service's own deadline in seconds; a party that misses a shorter one is not to blame.
        audit: Log of the answers.
    """

    def __init__(
        self, model: ServedModel, peers: Peers, seconds: float, rows: int, patience: float, audit: AuditLog
    ) -> None:
        self.model = model
        self.peers = peers
        self._seconds = seconds
        self._rows = rows
        self._patience = patience
        self._audit = audit
        self._groups: dict[float, _Group] = {}
        self._under_way = 0
        self._running = set[asyncio.Task[None]]()
        self.batches = 0
        self.batched_rows = 0

    async def ask(self, query: Query, patience: float) -> Outcome:
        """Answer a query, together with others.

        Args:
            query: The query.
            patience: Seconds that its answer may take.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        group = self._groups.get(patience)
        if group is None:
            wait = self._seconds if self._under_way else 0.0
            timer = loop.call_later(wait, self._send, patience)
            group = self._groups[patience] = _Group(
                [], [], time.monotonic() + patience, timer, patience >= self._patience
            )
        group.queries.append(query)
        group.futures.append(future)
        group.rows += len(query)
        if group.rows >= self._rows:
            self._send(patience)
        return await future

    def _send(self, patience: float) -> None:
        group = self._groups.pop(patience, None)
        if group is not None:
            group.timer.cancel()
            self._under_way += 1
            task = asyncio.ensure_future(self._answer(group))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _answer(self, group: _Group) -> None:
        try:
            self.batches += 1
            self.batched_rows += group.rows
            outcomes = await answer(self.model, self.peers, group.queries, group.deadline, blame=group.whole)
            log_answers(self._audit, self.model, group.queries, outcomes)
        except Exception as failure:  # every query of the batch gets it, and the service goes on
            for future in group.futures:
                if not future.done():
                    future.set_exception(failure)
            return
        finally:
            self._under_way -= 1
        for future, outcome in zip(group.futures, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)


@dataclass(eq=False)
class _Group:
    """Queries that wait together."""

    queries: list[Query]
    futures: list[asyncio.Future[Outcome]]
    deadline: float
    timer: asyncio.TimerHandle
    whole: bool
    rows: int = 0
