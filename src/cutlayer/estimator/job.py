"""The job that an estimator's parameters describe."""

from __future__ import annotations

from typing import Any

from cutlayer.config import Job, validated
from cutlayer.estimator.privacy import privacy_of
from cutlayer.estimator.tables import LABEL, Tables


def job_of(estimator: Any, tables: Tables, active: str, kind: str) -> Job:
    """The job, validated.

    Args:
        estimator: The estimator, whose parameters are documented by `VerticalClassifier`.
        tables: Table of each party by name; `None` where the active party has labels alone.
        active: Name of the active party.
        kind: Kind of the task.

    Raises:
        ConfigError: a parameter is out of its range.
    """
    names = [active, *(name for name in tables if name != active)]
    privacy = privacy_of(estimator.protections, active, names)
    parties: dict[str, Any] = {
        name: {"role": "passive", "privacy": privacy[name], "serving": estimator.predictions} for name in names
    }
    owner = {"role": "active", "label": LABEL, "audit": {"attacks": estimator.attacks}}
    parties[active] = {"privacy": privacy[active], **owner}
    if tables[active] is None:
        parties[active]["features"] = {"include": "none"}
    model = {key: value for key, value in (("bottom", estimator.bottom), ("top", estimator.top)) if value is not None}
    train = {
        "epochs": estimator.epochs,
        "batch_size": estimator.batch_size,
        "optimizer": {"kind": "adam", "lr": estimator.lr},
        "seed": estimator.seed,
        "threads": estimator.threads,
        "split": {
            "test": estimator.test,
            "validation": estimator.validation,
            "stratify": estimator.stratify,
            "by": estimator.split_by,
        },
        "early_stop": None if estimator.patience is None else {"patience": estimator.patience},
    }
    raw = {"task": kind, "parties": parties, "model": model, "train": train, "compare": estimator.compare}
    return validated(Job, raw, type(estimator).__name__)
