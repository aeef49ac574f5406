"""The encoded columns of a party, by id."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.config import Job, TableConfig
from cutlayer.config.phases import grades_rows
from cutlayer.data.encoding import Encoder
from cutlayer.data.forgotten import ForgottenRows
from cutlayer.data.id_index import ABSENT, IdIndex
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.data.prepared import EncodedColumns
from cutlayer.data.row_values import ValuesOf
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, DataError, ProtocolError
from cutlayer_serve.number_index import NumberIndex

IsForgotten = Callable[[Digests], npt.NDArray[np.bool_]]


def _none_forgotten(ids: Digests) -> npt.NDArray[np.bool_]:
    return np.zeros(len(ids), dtype=np.bool_)


class FeatureStore:
    """The encoded columns of a party by id.

    Args:
        index: Row numbers by id.
        store: Encoded columns, a row each.
        numbers: Row numbers by ids that are whole numbers; `None` where the ids are others, or digests are asked for.
        gone: Whether each of some ids, uint8 (m, 16), was forgotten, bool (m,); also since the table was read.
        graded: Digests by which each row is drawn, uint8 (n, 16); `None` where no row is graded.
        values: Words of the values of the rows of the table.

    Attributes:
        limited: As of `RowEmbedder`.
    """

    def __init__(
        self,
        index: IdIndex,
        store: Store,
        numbers: NumberIndex | None = None,
        gone: IsForgotten = _none_forgotten,
        graded: Digests | None = None,
        values: ValuesOf = lambda _: None,
    ) -> None:
        self.index, self.store, self.numbers, self._gone = index, store, numbers, gone
        self.graded, self.values = graded, values
        self.limited: EncodedColumns | None = None

    def find(self, ids: Digests) -> npt.NDArray[np.int64]:
        """Row numbers of ids, uint8 (m, 16): int64 (m,), `ABSENT` where there is none or it was forgotten."""
        return np.where(self._gone(ids), ABSENT, self.index.find(ids))

    @classmethod
    def read(
        cls,
        job: Job,
        party: str,
        table: TableConfig | None,
        encoder: Encoder,
        forgotten: ForgottenRows | None = None,
        *,
        by_number: bool = False,
    ) -> FeatureStore:
        """Read a table and encode it as the run did.

        Args:
            job: The job as it was trained, which names the id column.
            party: Name of the party.
            table: File with one row per id.
            encoder: Encoder of the run.
            forgotten: Rows that the party has forgotten, which nobody can ask for.
            by_number: Whether rows are asked for by the ids themselves, too.

        Raises:
            ConfigError: No table is named.
            DataError: It cannot be read, or lacks what was trained on.
        """
        if table is None:
            raise ConfigError.expected(
                f"a table of {party}", "none", "name it as table or serve.table in the private file"
            )
        own = job.parties[party]
        rows = PartyTable(party, table, id=own.id, encoder=encoder, forgotten=forgotten, limited=own.limited_columns)
        if rows.id_table is not rows or rows.keys:
            remedy = "serve a table with one row per id"
            got = "several keys" if rows.keys else "repeated ones"
            raise DataError.expected(f"{rows.where}: every id once, to answer for an id", got, remedy)
        if rows.id_kind == "row" and grades_rows(job, party):
            wanted = f"{rows.where}: an id column, since the grade of a row is drawn by its id"
            raise DataError.expected(wanted, "row numbers", "name it in id, and train with it")
        numbers = _numbers(rows) if by_number else None
        gone = is_forgotten_by(job, party, forgotten)
        index, store = IdIndex(rows.digests), rows.encode_all()
        if not grades_rows(job, party):
            return cls(index, store, numbers, gone)
        served = cls(index, store, numbers, gone, rows.grade_digests(rows.digests), rows.value_reader(rows.digests))
        served.limited = rows.limited_columns()
        return served

    def gather(self, rows: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Codes (m, c) and numbers (m, d) of some rows; see `Store.gather`."""
        return self.store.gather(torch.from_numpy(rows))


def is_forgotten_by(job: Job, party: str, forgotten: ForgottenRows | None) -> IsForgotten:
    """Whether a party of a job has forgotten each of some ids, uint8 (m, 16), at the time of the call: bool (m,)."""
    ids = job.parties[party].id
    if forgotten is None or ids is None:
        return _none_forgotten
    return lambda digests: forgotten.contains(digests, ids.rule)


def _numbers(rows: PartyTable) -> NumberIndex | None:
    if rows.id_kind != "integer" or not rows.rows:
        return None
    try:
        numbers = rows.id_texts().cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # a number of more than 64 bits
        return None
    return NumberIndex(numbers, rows.digests)


def checked_ids(ids: Tensor, max_rows: int) -> Digests:
    """Digests of ids from a message, as an array.

    Raises:
        ProtocolError: They are not (n, 16), or more than `max_rows`.
    """
    if ids.shape[1] != 16 or len(ids) > max_rows:
        raise ProtocolError.expected(f"ids of shape (n, 16), n up to {max_rows:,}", tuple(ids.shape))
    digests: Digests = ids.numpy()
    return digests
