"""The job that an estimator's parameters describe."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.config import Job, near_miss, validated
from cutlayer.data.profile import label_profile
from cutlayer.errors import ConfigError
from cutlayer.estimator.defaults import Defaults, with_defaults
from cutlayer.estimator.privacy import privacy_of
from cutlayer.estimator.tables import LABEL, WEIGHT
from cutlayer.jobs.cautions import label_range_cautions

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


def job_of(
    estimator: Any,
    tables: Mapping[str, pa.Table],
    names: Sequence[str],
    kind: str,
    added: Collection[str] = (),
    counts: Sequence[int] = (),
) -> tuple[Job, Defaults]:
    """The job, validated, and the parameters that it is of.

    Args:
        estimator: The estimator, whose parameters are documented by `VerticalClassifier`.
        tables: Tables of the parties; none of an active party that has labels alone.
        names: Names of all parties, the active one first.
        kind: Kind of the task.
        added: Names of the columns that the active party's table has besides the label: `WEIGHT` and so on.
        counts: Number of rows of each class; none of numbers.

    Raises:
        ConfigError: A parameter is out of its range.
    """
    active = names[0]
    for parameter in ("features", "bottom_fit"):
        _check_by_party(parameter, getattr(estimator, parameter), names)
    filled = with_defaults(estimator, tables, active, names, kind, counts, weighted=WEIGHT in added)
    privacy = privacy_of(filled.protections, active, names)
    parties: dict[str, Any] = {
        name: {"role": "passive", "serving": estimator.predictions, "privacy": privacy[name]} for name in names
    }
    owner = {"role": "active", "label": LABEL, "audit": {"attacks": estimator.attacks}}
    parties[active] = {"privacy": privacy[active], **owner, **{name: name for name in added}}
    parties[active] |= {"coverage": estimator.coverage} if estimator.coverage else {}
    for name, settings in filled.features.items():
        parties[name]["features"] = settings
    for key, by_party in (("fit", filled.fits), ("audit", filled.audits)):
        for name, settings in by_party.items():
            parties[name][key] = settings
    if active not in tables:
        parties[active]["features"] = {"include": "none"}
    raw = {"task": kind, "parties": parties, **_stated(estimator, filled._asdict())}
    return validated(Job, raw, type(estimator).__name__), filled


def _stated(estimator: Any, filled: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of the job that `KEYS` names; what is `None` by default, and is, stays the job's default."""
    raw: dict[str, Any] = {}
    for argument, key in KEYS.items():
        value = filled.get(argument, getattr(estimator, argument))
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


def _check_by_party(parameter: str, settings: object, names: Sequence[str]) -> None:
    """Refuse a parameter that is no mapping of settings by the name of a party."""
    if settings is None:
        return
    if not isinstance(settings, Mapping):
        raise ConfigError.expected(f"{parameter} as a mapping by party ({', '.join(names)})", type(settings).__name__)
    for name in settings:
        if name not in names:
            raise ConfigError(f"{parameter}: no party is called {name!r}{near_miss(str(name), list(names))}")


def notes_of_labels(job: Job, labels: npt.NDArray[Any]) -> Iterator[str]:
    """What `check` warns of in labels (n,) that are numbers: one row that outweighs all, and a range that cuts some."""
    if job.task == "regression" and np.issubdtype(labels.dtype, np.number):
        profile = label_profile(job.active, "y", pa.chunked_array([labels]), job.task, "y")
        yield from (f"y: {note}" for note in profile.notes)
        yield from label_range_cautions(job, (profile,))
