"""Gates: leak limits that stop a build."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cutlayer.audit.findings import LeakFigure


@dataclass(frozen=True)
class Gate:
    """One limit and the worst leak that it was compared with.

    Attributes:
        name: of the gate, such as `label_auc`.
        limit: the largest leak that passes.
        worst: leak of the strongest attack, 0.5 to 1; NaN where nothing was measured, which fails the gate.
        where: `party/message/attack` of that attack.
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
    """Compare the leaks with the limits; an unmeasured leak passes no gate."""
    measured = [leak for leak in leaks if not math.isnan(leak.value)]
    worst = max(measured, key=lambda leak: leak.value, default=None)
    value = worst.value if worst else math.nan
    return [Gate(name, limit, value, worst.label if worst else "nothing measured") for name, limit in limits.items()]
