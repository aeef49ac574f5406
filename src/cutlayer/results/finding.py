"""Gates, and coded findings of the audit."""

from __future__ import annotations

from typing import Literal

from cutlayer.config import FrozenModel
from cutlayer.results.number import Number


class Gate(FrozenModel):
    """One limit of `fail_above`, the worst figure against it, and where that was measured.

    `worst` is `None` where nothing could be measured; such a gate does not pass.
    """

    name: str
    limit: float
    worst: Number
    where: str
    passed: bool


class Finding(FrozenModel):
    """Something a reviewer should know, with a stable code and what to do about it."""

    code: str
    severity: Literal["error", "warning", "note"]
    title: str
    detail: str
    remedy: str
