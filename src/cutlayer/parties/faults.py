"""The points of a run at which a test can fail it, end its process, or change what is there."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any


class FaultPoint(StrEnum):
    """A point of a run at a party, and what `Faults` is called with there.

    Attributes:
        PHASE: Before a phase; the phase.
        SENDING: Right before a message is sent; the message as it crosses.
        RECEIVED: After a message has arrived, before the party goes on; the message.
        SAVING: Before a file of a checkpoint is written; the name of the file.
        SAVED: After it.
        COMMITTING: Before a commit, which the active party alone makes; the point at which a run goes on after it.
        COMMITTED: After it.
    """

    PHASE = "phase"
    SENDING = "sending"
    RECEIVED = "received"
    SAVING = "saving"
    SAVED = "saved"
    COMMITTING = "committing"
    COMMITTED = "committed"


Faults = Callable[[FaultPoint, str, Any], None]
"""Called at each point with the name of the party; what it raises ends the run as a failure of the party there."""


def no_faults(at: FaultPoint, party: str, what: Any) -> None:
    """Go on."""
