"""An alarm of a party's guard."""

from __future__ import annotations

from cutlayer.config import FrozenModel


class AlarmRecord(FrozenModel):
    """A sign that a partner did not follow the protocol.

    Attributes:
        party: Party that raised the alarm.
        peer: Party that it is about.
        epoch: Number of the epoch, from 1.
        step: Number of the step within the epoch, from 1.
        detail: What was seen.
    """

    party: str
    peer: str
    epoch: int
    step: int
    detail: str

    @property
    def when(self) -> str:
        """Epoch and step in words."""
        return f"epoch {self.epoch}, step {self.step}"
