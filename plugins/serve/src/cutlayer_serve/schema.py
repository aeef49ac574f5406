"""Requests and answers of the HTTP service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from cutlayer.config import FrozenModel
from cutlayer.config.ids import Rule
from cutlayer.data.ids import DIGEST_BYTES, STRIP_REMEDY, Digests, canonical_ids, joined_digests
from cutlayer.data.ids import digests_of as table_digests
from cutlayer.errors import DataError

# Whole numbers first: of ids that are numbers no text is tried, which takes a third of the time.
Id = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)] | Annotated[StrictStr, Field(min_length=1, max_length=256)]
Value = (
    StrictBool
    | Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
    | StrictFloat
    | Annotated[StrictStr, Field(max_length=4096)]
    | None
)


class PredictRequest(FrozenModel):
    """Rows to predict.

    Attributes:
        ids: Ids of the rows, each once; text or whole numbers.
        columns: Values of the active party's own columns by name, as many as ids; without them its own store is read.
        required: Passive parties without whom no answer is wanted, besides those that the service requires.
        answer: `rows` answers with an object for each id, `columns` with an array for each field, a third as long.
        deadline_ms: Time that the answer may take, in milliseconds; at most that of the service.
    """

    ids: Annotated[tuple[Id, ...], Field(min_length=1)]
    columns: Mapping[Annotated[str, Field(max_length=256)], tuple[Value, ...]] | None = None
    required: tuple[Annotated[str, Field(max_length=64)], ...] = ()
    answer: Literal["rows", "columns"] = "rows"
    deadline_ms: float | None = Field(default=None, ge=1, le=60_000)


class Expected(FrozenModel):
    """Metrics of the run on its held-out rows with the same parties.

    Attributes:
        metric: Name of the metric.
        value: Its value.
        low: Lower bound of its 95 % interval.
        high: Upper bound of it.
    """

    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None


class SubsetAnswer(FrozenModel):
    """Parties that contributed to some rows of an answer.

    Attributes:
        contributed: Their names.
        absent: Reason by party that did not contribute.
        degraded: Whether a party is absent.
        expected: The run's held-out metric with just these parties; `null` where it was not measured.
        reason: Why the rows have no prediction, where no party contributed.
    """

    contributed: tuple[str, ...]
    absent: Mapping[str, str]
    degraded: bool
    expected: Expected | None
    reason: str | None = None


class Prediction(FrozenModel):
    """Prediction of a row; `null` with the reason where there is none.

    Attributes:
        id: Its id, as asked.
        probability: Probability of the positive class of a binary task.
        probabilities: Probability by class of a multi-class task.
        value: Value of a regression.
        further: Bounds of an interval, classes of a set, 0 or 1, or probabilities of survival, by name.
        subset: Index into `subsets`: the parties that contributed.
        reason: Why the row has no prediction; only of such a row.
    """

    id: str | int
    probability: float | None = None
    probabilities: Mapping[str, float] | None = None
    value: float | None = None
    further: Mapping[str, float] | None = None
    subset: int
    reason: str | None = None


class PredictionColumns(FrozenModel):
    """Predictions of all rows, an array for each field; `null` for a row without one, whose subset has the reason.

    Attributes:
        probability: Probability of the second class of a binary task.
        probabilities: Probabilities by class of a multi-class task.
        value: Values of a regression.
        further: As in `Prediction`, an array by name.
        subset: Index into `subsets` of each row.
    """

    probability: tuple[float | None, ...] | None = None
    probabilities: Mapping[str, tuple[float | None, ...]] | None = None
    value: tuple[float | None, ...] | None = None
    further: Mapping[str, tuple[float | None, ...]] | None = None
    subset: tuple[int, ...]


class PredictAnswer(FrozenModel):
    """Predictions of all rows of a request, by one version.

    Attributes:
        version: Version that answered.
        degraded: Whether a party is absent from a row.
        predictions: One for each id, in their order; with `answer: columns` an array for each field.
        subsets: Parties that contributed.
    """

    version: str
    degraded: bool
    predictions: tuple[Prediction, ...] | PredictionColumns
    subsets: tuple[SubsetAnswer, ...]


class Problem(FrozenModel):
    """An error.

    Attributes:
        error: What was expected, what was received, and what to do.
    """

    error: str


def digests_of(ids: tuple[str | int, ...], rule: Rule = "strip") -> Digests:
    """Digests of the ids of a request, uint8 (n, 16), as in the parties' tables.

    Args:
        ids: Ids as the caller wrote them.
        rule: Normal form of the ids in the tables.

    Raises:
        DataError: An id is empty, repeats, cannot be encoded, or does not fit the rule.
    """
    texts = [*map(str, ids)]
    joined = "".join(texts)
    if (
        rule in ("strip", "none")
        and joined.isascii()
        and joined.isalnum()
        and all(texts)
        and len({*texts}) == len(texts)
    ):
        # Their own canonical texts: the digests of `row_digests`, without its preparations for a whole column.
        hashed = joined_digests(" ".join(texts).encode().split(b" "))
        return np.frombuffer(bytearray(hashed), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    try:
        text = canonical_ids(pa.array(texts, pa.large_string()), "ids", rule)
    except (UnicodeError, pa.ArrowException):
        raise DataError.expected("ids of valid Unicode", "other text") from None
    except DataError as failure:  # the rule is the owner's, and no caller's
        raise DataError(str(failure).removesuffix(STRIP_REMEDY)) from None
    distinct = len(text.unique())
    if distinct < len(text):  # the remedies of a table are no help to a caller
        got = f"{distinct:,} different ones of {len(text):,}"
        raise DataError.expected("every id once", got, "ask for each once, in one spelling")
    return table_digests(text).reshape(-1, DIGEST_BYTES)


def checked_columns(request: PredictRequest) -> Mapping[str, tuple[Any, ...]] | None:
    """The columns of a request, as many values of each as ids.

    Raises:
        DataError: Another number of values.
    """
    for name, values in (request.columns or {}).items():
        if len(values) != len(request.ids):
            raise DataError.expected(f"{len(request.ids)} values of column {name[:40]!r}", len(values))
    return request.columns
