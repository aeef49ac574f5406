"""Gates: leak limits that stop a build."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cutlayer.audit.findings import LeakFigure


@dataclass(frozen=True)
class Gate:
    """One limit and the worst leak it was held against.

    Attributes:
        worst: max(AUC, 1 - AUC) of the worst attack; NaN where nothing was measured, which fails the gate.
    """

    name: str
    limit: float
    worst: float
    where: str

    @property
    def passed(self) -> bool:
        """Whether the worst leak is within the limit."""
        return self.worst <= self.limit


def gates_of(limits: Mapping[Literal["label_auc"], float], leaks: Sequence[LeakFigure]) -> list[Gate]:
    """Hold the leaks against the limits; an unmeasured leak passes no gate."""
    measured = [leak for leak in leaks if not math.isnan(leak.auc)]
    worst = max(measured, key=lambda leak: abs(leak.auc - 0.5), default=None)
    value = max(worst.auc, 1 - worst.auc) if worst else math.nan
    return [Gate(name, limit, value, worst.label if worst else "nothing measured") for name, limit in limits.items()]
