"""Results of attacks on a sample of the served embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from cutlayer.results.audit import SkippedAttack
from cutlayer.results.document import Document
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import Attempt, Baseline, LeakResult


class ServedAudit(Document):
    """The audit of a sample of served embeddings: `serving/audit.json` of a run folder.

    Attributes:
        rows: Number of recorded rows, by whose embeddings they are and who recorded them.
        leaks: Leaks of labels.
        undefined: Attacks whose leak is undefined.
        baselines: What the leaks of each passive party compare with; `own_columns` is that of the training.
        features: Attacks on features.
        skipped: Attacks that could not be run.
    """

    title: ClassVar[str] = "the audit of served embeddings"

    rows: Mapping[str, int] = Field(default_factory=dict)
    leaks: tuple[LeakResult, ...] = ()
    undefined: tuple[Attempt, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    features: tuple[FeatureResult, ...] = ()
    skipped: tuple[SkippedAttack, ...] = ()

    @property
    def worst(self) -> float:
        """The largest leak of labels; 0.5 where none was measured."""
        return max((leak.leak for leak in self.leaks), default=0.5)
