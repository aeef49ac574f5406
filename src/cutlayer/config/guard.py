"""A party's guard: whether it scrutinises what it receives."""

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
    """

    on_alarm: Literal["stop", "warn"]
    classes: int = Field(default=2, ge=2, le=64)
