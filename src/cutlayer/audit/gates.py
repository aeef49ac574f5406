"""Gates: leak limits that stop a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from cutlayer.results.finding import Gate
from cutlayer.results.leaks import LeakResult


def gates_of(limits: Mapping[Literal["label_auc"], float], leaks: Sequence[LeakResult]) -> tuple[Gate, ...]:
    """Compare the worst leak with the limits; where nothing was measured, no gate passes.

    Args:
        limits: largest leak that passes, by name of the gate.
        leaks: leaks of messages in this run.
    """
    worst = max(leaks, key=lambda leak: leak.leak, default=None)
    value, where = (worst.leak, worst.label) if worst else (None, "nothing measured")
    return tuple(
        Gate(name=name, limit=limit, worst=value, where=where, passed=value is not None and value <= limit)
        for name, limit in limits.items()
    )
