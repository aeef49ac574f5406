"""Which step a party takes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class StepOrder:
    """A training step of a party.

    Attributes:
        epoch: Number of the epoch.
        step: Number of the step within the epoch.
        global_step: Number of the step in the whole run.
        rows: Row numbers of the whole batch, int64 (n,).
        record: Whether the party needs the step's messages for its transcript.
    """

    epoch: int
    step: int
    global_step: int
    rows: Tensor
    record: bool
