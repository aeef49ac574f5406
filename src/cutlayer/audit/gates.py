"""Gates: leak limits that stop a build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cutlayer.results.audit import RunAudit
from cutlayer.results.finding import Gate

GateName = Literal["label_auc", "excess"]


def gates_of(limits: Mapping[GateName, float], audit: RunAudit, missing: tuple[str, ...] = ()) -> tuple[Gate, ...]:
    """Compare the worst leak, and its excess over the party's own columns, with the limits.

    Where nothing was measured, no gate passes; an audit that leaves attacks out can fail a gate and cannot pass it.

    Args:
        limits: Largest value that passes, by name of the gate.
        audit: Attacks on labels in this run.
        missing: Attacks of the default catalogue that were left out.
    """
    values = {"label_auc": {leak.label: leak.leak for leak in audit.leaks}, "excess": audit.excesses()}
    return tuple(_gate(name, limit, values[name], missing) for name, limit in limits.items())


def _gate(name: str, limit: float, values: Mapping[str, float], missing: tuple[str, ...]) -> Gate:
    where = max(values, key=lambda label: values[label], default="nothing measured")
    worst = values.get(where)
    within = worst is not None and worst <= limit
    undecided = within and bool(missing)
    return Gate(name=name, limit=limit, worst=worst, where=where, passed=within and not missing, undecided=undecided)
