"""The job that an estimator's parameters describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cutlayer.config import Job, near_miss, validated
from cutlayer.errors import ConfigError
from cutlayer.estimator.privacy import privacy_of
from cutlayer.estimator.tables import LABEL, WEIGHT, Tables


def job_of(estimator: Any, tables: Tables, active: str, kind: str, *, weighted: bool = False) -> Job:
    """The job, validated.

    Args:
        estimator: The estimator, whose parameters are documented by `VerticalClassifier`.
        tables: Table of each party by name; `None` where the active party has labels alone.
        active: Name of the active party.
        kind: Kind of the task.
        weighted: Whether the active party's table has weights of the rows.

    Raises:
        ConfigError: a parameter is out of its range.
    """
    names = [active, *(name for name in tables if name != active)]
    privacy = privacy_of(estimator.protections, active, names)
    features = _by_party("features", estimator.features, names)
    fits = _by_party("bottom_fit", estimator.bottom_fit, names)
    parties: dict[str, Any] = {
        name: {"role": "passive", "serving": estimator.predictions, "privacy": privacy[name]} for name in names
    }
    owner = {"role": "active", "label": LABEL, "audit": {"attacks": estimator.attacks}}
    parties[active] = {"privacy": privacy[active], **owner} | ({"weight": WEIGHT} if weighted else {})
    for name, settings in features.items():
        parties[name]["features"] = settings
    for name, settings in fits.items():
        parties[name]["fit"] = settings
    if tables[active] is None:
        parties[active]["features"] = {"include": "none"}
    model = {key: value for key, value in (("bottom", estimator.bottom), ("top", estimator.top)) if value is not None}
    raw = {
        "task": kind,
        "parties": parties,
        "model": model,
        "train": _train(estimator),
        "compare": estimator.compare,
    }
    return validated(Job, raw, type(estimator).__name__)


def _train(estimator: Any) -> dict[str, Any]:
    return {
        "epochs": estimator.epochs,
        "batch_size": estimator.batch_size,
        "optimizer": {"kind": "adam", "lr": estimator.lr, **(estimator.optimizer or {})},
        # Weights of single classes are in those of the rows.
        "class_weight": None if isinstance(estimator.class_weight, Mapping) else estimator.class_weight,
        "release": estimator.release,
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


def _by_party(parameter: str, settings: object, names: Sequence[str]) -> Mapping[str, Any]:
    """A parameter that has settings of parties by name."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise ConfigError.expected(f"{parameter} as a mapping by party ({', '.join(names)})", type(settings).__name__)
    for name in settings:
        if name not in names:
            raise ConfigError(f"{parameter}: no party is called {name!r}{near_miss(str(name), list(names))}")
    return settings
