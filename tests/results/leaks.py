"""Leak results made by hand."""

from __future__ import annotations

from typing import Any

from cutlayer.audit.leak import fold_auc
from cutlayer.results.leaks import LeakResult


def leak_result(auc: float = 0.7, **changed: Any) -> LeakResult:
    """A leak with enough rows of both classes, and an interval of 0.05 to either side."""
    leak = fold_auc(auc)
    values: dict[str, Any] = {
        "run": "this run",
        "party": "p",
        "message": "gradient",
        "attack": "norm",
        "leak": leak,
        "low": max(0.5, leak - 0.05),
        "high": leak + 0.05,
        "batch_auc": auc,
        "pooled_auc": auc,
        "epoch": 3,
        "epochs_seen": 3,
        "first_epoch_leak": 0.5,
        "last_epoch_leak": 0.5,
        "rows": 400,
        "positives": 100,
    }
    return LeakResult(**values | changed)
