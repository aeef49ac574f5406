"""A request from its body to its answer, without HTTP: checks, limits, the answer, the audit line."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.config import ServeConfig
from cutlayer.data.id_index import ABSENT
from cutlayer.errors import DataError, RunFolderError
from cutlayer.kernels.rows.patterns import distinct_rows
from cutlayer_serve.answering import Outcome, Query, log_answers
from cutlayer_serve.body import parse_body
from cutlayer_serve.callers import Caller, CallerRefused
from cutlayer_serve.metrics import Metrics
from cutlayer_serve.schema import PredictRequest, checked_columns, digests_of
from cutlayer_serve.served_model import ServedModel
from cutlayer_serve.status import Status
from cutlayer_serve.versions import Versions

logger = logging.getLogger(__name__)

_MAX_DESCRIBED = 256
"""Combinations of statuses whose description a version keeps."""
_FIELDS = {"regression": "value", "binary": "probability"}
Predictions = npt.NDArray[np.float64]


class PredictionService:
    """Answers requests by the current version.

    Args:
        versions: The loaded versions.
        config: Settings of the service.
        metrics: Counts for the page and Prometheus.
    """

    def __init__(self, versions: Versions, config: ServeConfig, metrics: Metrics) -> None:
        self.versions, self.config, self.metrics = versions, config, metrics

    async def predict(self, body: bytes, caller: Caller) -> dict[str, Any]:
        """Answer a request.

        Args:
            body: JSON of a `PredictRequest`.
            caller: Who asks; its limits are checked before anything is asked of a party.

        Returns:
            A `PredictAnswer` as plain values.

        Raises:
            Refused: With the HTTP status and the reason.
        """
        began = time.perf_counter()
        batcher = self.versions.current  # read once: a switch of versions meanwhile does not affect this request
        model = batcher.model
        request = parse_body(PredictRequest, body)
        if len(request.ids) > self.config.http.max_rows:
            raise CallerRefused(
                413, f"expected at most {self.config.http.max_rows:,} ids in a request, got {len(request.ids):,}"
            )
        required = _required(request, model)
        # Before the look-up, which says which ids this party has: a caller that lists possible ids is counted too.
        caller.take(len(request.ids))
        patience = min(request.deadline_ms or self.config.deadline_ms, self.config.deadline_ms) / 1000
        try:
            query, places, gone = self._query(request, model, caller.config.name)
            outcome = await batcher.ask(query, patience) if len(query) else Outcome.empty(model)
        except OSError as fault:
            logger.error("a request was not answered: %s", fault)
            raise CallerRefused(503, "what was released cannot be recorded; nothing is answered until it can") from None
        except RunFolderError as fault:
            logger.error("a request was not answered: %s", fault)
            why = "the run was forgotten, or which rows were forgotten cannot be read"
            raise CallerRefused(503, f"{why}; nothing is answered") from None
        if not outcome.whole:
            ids = request.ids if places is None else [request.ids[place] for place in places]
            _check(ids, model, outcome, required)
        if not np.isfinite(outcome.predicted).all():
            raise CallerRefused(422, "expected numbers that the model can compute with, got ones that overflow")
        if places is not None:
            outcome = outcome.among(places, gone, model)
        self.metrics.answered(model, outcome, time.perf_counter() - began)
        return _answered(request, model, outcome)

    def _query(
        self, request: PredictRequest, model: ServedModel, caller: str
    ) -> tuple[Query, npt.NDArray[np.int64] | None, npt.NDArray[np.bool_]]:
        """The rows to answer, their places in the request (`None`: all of it), and which of it were forgotten."""
        known = model.known(request.ids) if request.columns is None else None
        if known is not None and not (gone := model.gone(known[0])).any():
            return Query(caller, *known), None, gone
        try:
            ids = digests_of(request.ids, model.id_rule)
            request_columns = checked_columns(request)
            columns = None if request_columns is None else model.encoded(request_columns)
        except DataError as fault:
            raise CallerRefused(422, str(fault)[:1000]) from None
        query = Query(caller, ids, model.find(ids), columns)
        gone = unknown = model.gone(ids)
        if model.features is not None and columns is None:
            unknown = query.rows == ABSENT
        if not unknown.any():
            return query, None, gone
        # No party is asked about these. With a line, so that the count of the caller's rows holds over restarts.
        log_answers(self.versions.audit, model, [Query(caller, ids[unknown], query.rows[unknown])], [])
        rest = np.flatnonzero(~unknown)
        given = None if columns is None else (columns[0][rest], columns[1][rest])
        return Query(caller, ids[rest], query.rows[rest], given), rest, gone


def _required(request: PredictRequest, model: ServedModel) -> frozenset[str]:
    unknown = [name for name in request.required if name not in model.passives]
    if unknown:
        raise CallerRefused(422, f"required: expected some of {', '.join(model.passives)}, got {unknown[0]!r}")
    return model.required | {*request.required}


def _check(ids: Sequence[str | int], model: ServedModel, outcome: Outcome, required: frozenset[str]) -> None:
    """Refuse an answer that a limit, a requirement or the absence of everybody forbids.

    Raises:
        Refused: 403 where a party's limit is reached; 503 where a required party did not answer, or no row has a
            prediction and may have one later; 404 where a required party has no row of an id.
    """
    for index, name in enumerate(model.parties):
        status = outcome.status[:, index]
        if (status == Status.CAPPED).any():
            raise CallerRefused(403, f"{name}: {Status.CAPPED.reason}; nothing more of it is released for this version")
        if name in required and (status != Status.PRESENT).any():
            row = int(np.flatnonzero(status != Status.PRESENT)[0])
            why = Status(int(status[row]))
            _refuse_row(f"{name} is required", why, ids[row])
    if not outcome.present.any():
        for id_, statuses in zip(ids, outcome.status, strict=True):
            later = statuses[statuses != Status.UNKNOWN]
            if len(later):
                _refuse_row("no party contributes", Status(int(later[0])), id_)


def _refuse_row(what: str, why: Status, id_: str | int) -> None:
    raise CallerRefused(404 if why is Status.UNKNOWN else 503, f"{what} for id {str(id_)[:40]!r}: {why.reason}")


def _answered(request: PredictRequest, model: ServedModel, outcome: Outcome) -> dict[str, Any]:
    """The answer as plain values: each combination of statuses once, and an index to it in every row."""
    subsets: list[Mapping[str, Any]] = []
    where = np.zeros(len(outcome.status), dtype=np.int64)
    if outcome.whole:
        subsets.append(_subset(model, outcome.status[0]))
    else:
        for pattern, rows in distinct_rows(outcome.status):
            where[rows] = len(subsets)
            subsets.append(_subset(model, pattern))
    predicted, indices = outcome.predicted, where.tolist()
    missing = [] if outcome.whole else np.flatnonzero(~outcome.present.any(axis=1)).tolist()
    return {
        "version": model.version,
        "degraded": any(subset["degraded"] for subset in subsets),
        "predictions": (
            _columns(model, predicted, indices, missing)
            if request.answer == "columns"
            else _rows(request.ids, model, predicted, indices, missing, subsets)
        ),
        "subsets": subsets,
    }


def _rows(
    ids: Sequence[str | int],
    model: ServedModel,
    predicted: Predictions,
    indices: list[int],
    missing: list[int],
    subsets: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """An object for each id; those of `missing` rows without a prediction."""
    if model.task.kind not in _FIELDS:
        field = "probabilities"
        values = [dict(zip(model.outputs, row, strict=True)) for row in predicted.tolist()]
    else:
        field, values = _single(model, predicted)
    rows = zip(ids, values, indices, strict=True)
    names, further = model.task.further_names, model.task.further_values(predicted).tolist()
    answers: list[dict[str, Any]] = [{"id": id_, field: value, "subset": index} for id_, value, index in rows]
    for answer, numbers in zip(answers, further, strict=True) if names else ():
        answer["further"] = dict(zip(names, numbers, strict=True))
    for row in missing:
        answers[row].pop("further", None)
        answers[row] |= {field: None, "reason": subsets[indices[row]]["reason"]}
    return answers


def _columns(model: ServedModel, predicted: Predictions, indices: list[int], missing: list[int]) -> dict[str, Any]:
    """An array for each field, in the order of the ids."""
    if model.task.kind in _FIELDS:
        field, values = _single(model, predicted)
        arrays, fields = [values], dict[str, Any]({field: values})
    else:
        arrays = predicted.T.tolist()
        fields = {"probabilities": dict(zip(model.outputs, arrays, strict=True))}
    if names := model.task.further_names:
        more = model.task.further_values(predicted).T.tolist()
        arrays, fields = [*arrays, *more], {**fields, "further": dict(zip(names, more, strict=True))}
    for row in missing:
        for array in arrays:
            array[row] = None
    return {**fields, "subset": indices}


def _single(model: ServedModel, predicted: Predictions) -> tuple[str, list[Any]]:
    """Name and values of the one number that a task predicts for a row."""
    values: list[Any] = (predicted[:, model.task.positive] if model.task.kind == "binary" else predicted).tolist()
    return _FIELDS[model.task.kind], values


def _subset(model: ServedModel, pattern: npt.NDArray[np.uint8]) -> Mapping[str, Any]:
    """A combination of statuses as an answer describes it; nearly all answers have one of a few."""
    key = pattern.tobytes()
    described = model.described.get(key)
    if described is None:
        described = _described(model, pattern)
        if len(model.described) < _MAX_DESCRIBED:
            model.described[key] = described
    return described


def _described(model: ServedModel, pattern: npt.NDArray[np.uint8]) -> dict[str, Any]:
    subset = model.subset(pattern == Status.PRESENT)
    absent = {name: Status(int(s)).reason for name, s in zip(model.parties, pattern, strict=True) if s}
    described = {"contributed": list(subset.contributed), "absent": absent, "degraded": bool(absent)}
    if subset.contributed:
        return {**described, "expected": _expected(model, subset.utility)}
    if (pattern == Status.FORGOTTEN).all():
        reason = Status.FORGOTTEN.reason
    elif model.features is not None:
        reason = f"{model.active} has no row of this id; give its columns with the request"
    else:
        reason = f"no party contributes: {'; '.join(f'{name}: {why}' for name, why in absent.items())}"
    return {**described, "expected": None, "reason": reason}


def _expected(model: ServedModel, utility: Any) -> Mapping[str, Any] | None:
    if utility is None:
        return None
    value = utility.metrics.get(model.task.metric)
    return {"metric": model.task.metric, "value": value, "low": utility.low, "high": utility.high}
