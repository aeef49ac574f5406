"""The job that an estimator's parameters describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cutlayer.config import Job, near_miss, validated
from cutlayer.errors import ConfigError
from cutlayer.estimator.privacy import privacy_of
from cutlayer.estimator.tables import LABEL, WEIGHT, Tables

KEYS = {
    "bottom": "model.bottom",
    "top": "model.top",
    "compare": "compare",
    "epochs": "train.epochs",
    "batch_size": "train.batch_size",
    "lr": "train.optimizer.lr",
    "optimizer": "train.optimizer",
    "class_weight": "train.class_weight",
    "release": "train.release",
    "patience": "train.early_stop.patience",
    "validation": "train.split.validation",
    "test": "train.split.test",
    "stratify": "train.split.stratify",
    "split_by": "train.split.by",
    "split_public": "train.split.public",
    "threads": "train.threads",
    "seed": "train.seed",
}
"""Keys of the job that hold arguments as they are; further settings of the optimiser come after its rate."""


def job_of(estimator: Any, tables: Tables, active: str, kind: str, *, weighted: bool = False) -> Job:
    """The job, validated.

    Args:
        estimator: The estimator, whose parameters are documented by `VerticalClassifier`.
        tables: Table of each party by name; `None` where the active party has labels alone.
        active: Name of the active party.
        kind: Kind of the task.
        weighted: Whether the active party's table has weights of the rows.

    Raises:
        ConfigError: A parameter is out of its range.
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
    raw = {"task": kind, "parties": parties, **_stated(estimator)}
    return validated(Job, raw, type(estimator).__name__)


def _stated(estimator: Any) -> dict[str, Any]:
    """The sections of the job that `KEYS` names; what is `None` by default, and is, stays the job's default."""
    raw: dict[str, Any] = {}
    for argument, key in KEYS.items():
        value = getattr(estimator, argument)
        if value is None and getattr(type(estimator), argument) is None:
            continue
        if argument == "class_weight" and isinstance(value, Mapping):  # weights of classes are in those of the rows
            continue
        *path, last = key.split(".")
        section = raw
        for part in path:
            section = section.setdefault(part, {})
        section[last] = {**section.get(last, {}), **value} if isinstance(value, Mapping) else value
    return raw


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
