"""Settings, evidence and guarantee of a protection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from cutlayer.accounting.ledger import Asset
from cutlayer.config import FrozenModel
from cutlayer.results.number import Number


class ProtectionResult(FrozenModel):
    """Settings, evidence and guarantee of a protection.

    Attributes:
        name: name of the protection.
        party: its owner.
        protects: the protected asset.
        reference: the paper.
        settings: its settings; empty where the owner ran elsewhere.
        unit: unit of the counts: messages of one kind, label rows, forward passes or steps.
        covered: number of units that it was applied to.
        sent: number of units that there were.
        changed: number of units that differ from what they would have been without it.
        kinds: covered messages by kind, such as `embedding` (in training) and `evaluation`; empty for other units.
        metrics: the protection's own evidence.
        formal: whether a theorem holds.
        statement: that theorem's sentence, or why there is none.
    """

    name: str
    party: str
    protects: Asset
    reference: str
    settings: Mapping[str, Any] = Field(default_factory=dict)
    unit: Literal["embeddings", "gradients", "rows", "batches", "steps"]
    covered: int
    sent: int
    changed: int
    kinds: Mapping[str, int] = Field(default_factory=dict)
    metrics: Mapping[str, Number] = Field(default_factory=dict)
    formal: bool
    statement: str
