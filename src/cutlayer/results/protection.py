"""Settings, evidence and guarantee of a protection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from cutlayer.accounting.total import Asset
from cutlayer.config import FrozenModel
from cutlayer.results.number import Number


class ProtectionResult(FrozenModel):
    """Settings, evidence and guarantee of a protection.

    Attributes:
        name: Name of the protection.
        party: Its owner.
        protects: The protected asset.
        reference: The paper.
        settings: Its settings; empty where the owner ran elsewhere.
        unit: Unit of the counts: messages of one kind, label rows, forward passes or steps.
        covered: Number of units that it was applied to.
        sent: Number of units that there were.
        changed: Number of units that differ from what they would have been without it.
        kinds: Covered messages by kind, such as `embedding` (in training) and `evaluation`; empty for other units.
        metrics: The protection's own evidence.
        formal: Whether a theorem holds.
        statement: That theorem's sentence, or why there is none.
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
