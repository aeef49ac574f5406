"""Why a party contributes to a row or not."""

from __future__ import annotations

from enum import IntEnum

from cutlayer.data.forgotten import ROW_FORGOTTEN_REASON


class Status(IntEnum):
    """A party's answer for a row; the first four are on the wire."""

    PRESENT = 0
    UNKNOWN = 1
    CAPPED = 2
    FAILED = 3
    LATE = 4
    DISCONNECTED = 5
    BROKEN = 6
    DROPPED = 7
    LOST = 8
    NOT_ASKED = 9
    FORGOTTEN = 10
    UNAPPROVED = 11

    @property
    def reason(self) -> str:
        """The reason in an answer."""
        return _REASONS[self]


_REASONS = {
    Status.PRESENT: "",
    Status.UNKNOWN: "it has no row of this id",
    Status.CAPPED: "its limit of releases is reached",
    Status.FAILED: "it failed",
    Status.LATE: "it did not answer in time",
    Status.DISCONNECTED: "it is not connected",
    Status.BROKEN: "it did not answer before, and is being probed",
    Status.LOST: "its connection ended before it answered",
    Status.NOT_ASKED: "it was not asked",
    Status.FORGOTTEN: ROW_FORGOTTEN_REASON,
    Status.UNAPPROVED: "an approval is missing or withdrawn: nothing is sent to it",
    Status.DROPPED: "another party is absent, and absent: active_only is set",
}
WIRE = (Status.PRESENT, Status.UNKNOWN, Status.CAPPED, Status.FAILED)
"""The answers that a passive party may give for a row: all codes up to the last of them."""
