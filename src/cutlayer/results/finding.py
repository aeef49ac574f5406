"""Gates, and coded findings of the audit."""

from __future__ import annotations

from typing import Literal

from cutlayer.config import FrozenModel
from cutlayer.results.number import Number

Severity = Literal["error", "warning", "note"]


class Gate(FrozenModel):
    """One limit and the worst value that it was compared with.

    Attributes:
        name: Name of the gate, such as `label_auc`.
        limit: Largest value that passes.
        worst: Value of the strongest attack; `None` where nothing was measured, which fails the gate.
        where: `party/message/attack` of that attack.
        passed: Whether the worst value is within the limit, and no attack of the default catalogue was left out.
        undecided: Whether the worst value is within the limit, but attacks were left out: such a gate does not pass.
    """

    name: str
    limit: float
    worst: Number
    where: str
    passed: bool
    undecided: bool = False


class Finding(FrozenModel):
    """Something a reviewer should look at.

    Attributes:
        code: Stable code, such as `CL101`.
        severity: Error, warning or note.
        title: Meaning of the code.
        detail: Measured values behind the finding.
        remedy: Advice to the user.
        owner: Name of the party whose labels, features or protection it is about; empty where it is about the run as a
            whole, `None` in an audit that did not record it.
    """

    code: str
    severity: Severity
    title: str
    detail: str
    remedy: str
    owner: str | None = None
