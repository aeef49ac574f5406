"""Digest of a party's table as its run began: a run that goes on with another one is neither of the two."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from cutlayer.accounting import MARKER
from cutlayer.data.labels import Labels
from cutlayer.data.quantiles import QUANTILE_SUFFIX
from cutlayer.errors import CheckpointError
from cutlayer.parties.session.checkpoint import RELEASED_FILE, TABLE_FILE, Checkpoints
from cutlayer.parties.session.state import check_same_rows
from cutlayer.storage.checksum import crc32

_MAX_NAMED = 5


class TableChecksums:
    """Checksums of a party's common rows, encoded columns, labels and weights, from the start of a run to its resume.

    They stay in the folder of the checkpoints of the party. Where there are none, the next start writes them.

    Args:
        checkpoints: Checkpoints of the party.
        resume: Whether the run goes on. Before anything was saved or released, it begins anew, with any table.
        pilot: Number of rows that a partner releases; 0 for all.

    Raises:
        CheckpointError: The run began as a pilot of other rows, or as none.
    """

    def __init__(self, checkpoints: Checkpoints, *, resume: bool, pilot: int = 0) -> None:
        folder = checkpoints.folder
        begun = resume and (checkpoints.points() or any((folder / name).exists() for name in (RELEASED_FILE, MARKER)))
        kept = checkpoints.read_state(TABLE_FILE) if begun else None
        self._checkpoints = checkpoints
        self._begun: Mapping[str, str | Mapping[str, str]] = {} if kept is None else kept[1]
        self._now: dict[str, str | Mapping[str, str]] = {"pilot": str(pilot)} if pilot else {}
        before = str(self._begun.get("pilot", 0))
        if self._begun and before != str(pilot):
            wanted = "a pilot of {} rows" if int(before) else "no pilot"
            remedy = "resume it as it began, or start a new run: with grades it repeats what the pilot drew"
            got = f"one of {pilot:,} rows" if pilot else "a full run"
            raise CheckpointError.expected(f"{wanted.format(before)}, as this run began", got, remedy)

    def check_columns(self, rows: str, columns: Mapping[str, str]) -> None:
        """Compare the rows and columns.

        Args:
            rows: Digest of the ids of the common rows, in their order, in hexadecimal digits.
            columns: Checksums of the encoded columns of these rows, by name, as `ColumnSums.checksums`.

        Raises:
            CheckpointError: They are not those that the run began with.
        """
        if "rows" in self._begun:
            check_same_rows(str(self._begun["rows"]), rows)
        self._now["rows"] = rows
        self._check("columns", columns)

    def check_labels(self, column: str, labels: Labels, rows: Tensor | None, weights: Mapping[str, Tensor]) -> None:
        """Compare the labels and weights.

        Args:
            column: Name of the label column.
            labels: Labels of the common rows.
            rows: Numbers of the rows to compare, int64 (n,): those whose label no protection remembers; `None` for all.
            weights: Weights of the common rows, float32 (m,), by the name of their column; empty without any.

        Raises:
            CheckpointError: They are not those that the run began with.
        """
        values = labels.values if rows is None else labels.values[rows]
        self._check("labels", {column: f"{len(labels.classes)} classes {_sum(values)}"})
        self._check("weights", {name: _sum(values) for name, values in weights.items()})

    def write(self) -> None:
        """Write the checksums, unless they are there; before anything that depends on the rows or labels is sent."""
        if self._begun != self._now:
            self._checkpoints.write_state(TABLE_FILE, ({}, self._now))

    def _check(self, what: str, sums: Mapping[str, str]) -> None:
        """Compare checksums by the name of the column.

        Raises:
            CheckpointError: Some differ, or are of other columns.
        """
        self._now[what], begun = dict(sums), self._begun.get(what)
        if not isinstance(begun, Mapping) or begun == sums:
            return
        wanted = f"the table of {self._checkpoints.party} that the run began with"
        remedy = "restore the table, or start a new run"
        raise CheckpointError.expected(wanted, _difference(what, begun, sums), remedy)


def _difference(what: str, begun: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Differences by columns of the table: each once, also if it is encoded as several."""
    changed = [name for name in (*begun, *now) if begun.get(name) != now.get(name)]
    columns = list(dict.fromkeys(name.removesuffix(QUANTILE_SUFFIX) for name in changed))
    named = ", ".join(map(repr, columns[:_MAX_NAMED]))
    if (more := len(columns) - _MAX_NAMED) > 0:
        named += f" and {more} more"
    if what != "columns":
        return f"other {what} in column {named}"
    if len(columns) == 1:
        was, become = (sums.get(columns[0], "").split(" ")[0] for sums in (begun, now))
        if bool(was) != bool(become):
            return f"{'a new column' if become else 'no column'} {named}"
        if was != become:
            return f"a {become} in column {named}, which was a {was}"
    return f"other values in {'column' if len(columns) == 1 else 'columns'} {named}"


def _sum(values: Tensor) -> str:
    return f"{crc32([values.numpy().view('u1').data]):08x}"
