"""Store of the active party for partners that have released their rows: it then trains without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError

from cutlayer.alignment.common_rows import CommonRows
from cutlayer.alignment.disclosure import AlignmentRecord
from cutlayer.alignment.held_rows import ALL_HAVE_ALL, HeldRows, read_held, store_held
from cutlayer.data.align import order_digest
from cutlayer.data.ids import Digests
from cutlayer.errors import AlignmentError, CheckpointError
from cutlayer.parties.agreement.handshake import Agreement
from cutlayer.parties.session.checkpoint import PARTNERS_FILE, RELEASED_FILE, START_POINT, Checkpoints, Point, State


@dataclass(frozen=True)
class Partners:
    """The common rows, and what each passive party stated, where all of them have released their rows.

    Attributes:
        positions: Row numbers in the active party's table of the common rows, in the common order, int64 (n,).
        order: Digest of the ids of these rows, in hexadecimal digits.
        rows: Number of rows that each passive party stated, by name.
        widths: Number of columns of each passive party's release, by name.
        evidence: What each stated about its protections, as JSON, by name.
        runs: Id of the training at each, by name.
        held: Which of these rows each passive party has.
        ids: Ids of these rows that all parties know, uint8 (n, 16), where several keys identify rows.
        record: What the alignment made known.
    """

    positions: npt.NDArray[np.int64]
    order: str
    rows: Mapping[str, int]
    widths: Mapping[str, int]
    evidence: Mapping[str, str]
    runs: Mapping[str, str]
    held: HeldRows = ALL_HAVE_ALL
    ids: Digests | None = None
    record: AlignmentRecord | None = None

    @classmethod
    def load(cls, checkpoints: Checkpoints) -> Partners | None:
        """Read what `save` wrote; `None` before.

        Raises:
            CheckpointError: It is damaged, or of another party or job.
        """
        stored = checkpoints.read_state(PARTNERS_FILE)
        if stored is None or checkpoints.read_state(RELEASED_FILE) is None:
            return None
        try:
            positions = stored[0].pop("positions").numpy()
            ids = stored[0].pop("ids").numpy() if "ids" in stored[0] else None
            record = AlignmentRecord.model_validate(stored[1].pop("record"))
            return cls(positions, **stored[1], held=read_held(checkpoints.folder), ids=ids, record=record)
        except (KeyError, TypeError, ValidationError) as damage:
            raise CheckpointError(f"{checkpoints.folder}: the record of the partners is damaged ({damage!r})") from None

    def save(self, checkpoints: Checkpoints) -> None:
        """Write the record; it counts once the releases are stored too."""
        plain = {name: value for name, value in vars(self).items() if name not in ("positions", "held", "ids")}
        plain["record"] = self.record and self.record.model_dump(mode="json")
        arrays: dict[str, npt.NDArray[Any]] = {"positions": self.positions}
        if self.ids is not None:
            arrays["ids"] = self.ids
        store_held(checkpoints.folder, self.held)
        state: State = ({name: torch.from_numpy(rows) for name, rows in arrays.items()}, plain)
        checkpoints.write_state(PARTNERS_FILE, state)

    def agreement(self, start: Point = START_POINT) -> Agreement:
        """The result of the handshake, for a run that goes on at a point."""
        return Agreement(
            CommonRows(positions=self.positions, held=self.held, ids=self.ids), start, self.rows, record=self.record
        )

    def check_order(self, digests: Digests) -> None:
        """Raise unless the ids of the common rows, uint8 (n, 16), are those that the releases are of.

        Raises:
            AlignmentError: The table has other rows at these positions.
        """
        if order_digest(digests).hex() != self.order:
            wanted = "the rows that the partners released, in the active party's table"
            raise AlignmentError.expected(wanted, "other rows", "restore the table, or start a new run")
