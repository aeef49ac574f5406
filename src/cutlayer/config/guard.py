"""A party's guard: whether it scrutinises what it receives, and its alarm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cutlayer.config.base import FrozenModel


class GuardConfig(FrozenModel):
    """Scrutiny of what a party receives in a training of steps, for signs that its partner departs from the protocol.

    A passive party judges the gradients that come back, the active party the embeddings that arrive.

    Attributes:
        on_alarm: `stop` ends the run at the first alarm, `warn` records it and goes on.
        classes: Number of classes of the label, which a passive party must know of its partner: honest gradients lie
            near one direction fewer. 2 also stands for a regression.
        protected: Whether the partner has stated that it protects what it sends by noise, signs, compression or
            penalties. Honest gradients then leave the directions of the label too, and honest embeddings do not
            follow those of the epoch before or leave few rows apart, so that these signs are not looked for.
    """

    on_alarm: Literal["stop", "warn"]
    classes: int = Field(default=2, ge=2, le=64)
    protected: bool = False


class Alarm(FrozenModel):
    """A sign that a partner does not follow the protocol.

    Attributes:
        party: Party that raises the alarm.
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
