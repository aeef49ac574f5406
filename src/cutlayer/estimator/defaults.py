"""What an estimator trains by default: the job that `cutlayer init` writes to protect labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cutlayer.config import LabelFreeConfig
from cutlayer.errors import ConfigError
from cutlayer.estimator.privacy import Protections
from cutlayer.jobs.found_tables import summary_of
from cutlayer.jobs.private_part import number_section, sketch_section, sketch_width

_STEPS = {"epochs": "auto", "batch_size": "auto", "lr": 1e-3, "optimizer": None, "patience": None}
"""Settings of training by steps, with their defaults."""


class Defaults(NamedTuple):
    """Parameters of an estimator, with those filled in that were left out.

    Attributes:
        release: When passive parties release their rows; of all parties, or by party.
        protections: As the estimator takes them.
        bottom: Bottom models; `None` for those of a job.
        top: The top model; `None` for that of a job.
        features: Encoding of the columns, by party.
        fits: Fits of bottom models, by party.
    """

    release: str | Mapping[str, str]
    protections: Protections
    bottom: Mapping[str, Any] | None
    top: Mapping[str, Any] | None
    features: Mapping[str, Any]
    fits: Mapping[str, Any]


def with_defaults(estimator: Any, tables: Mapping[str, pa.Table], active: str, names: Sequence[str]) -> Defaults:
    """The parameters of an estimator, with those of a single release that no label touches where it has none.

    Args:
        estimator: The estimator.
        tables: Tables of the parties that have one.
        active: Name of the active party.
        names: Names of all parties.

    Raises:
        ConfigError: Bottom models, or settings of training by steps, without a word on how to train.
    """
    if estimator.release is None:
        _check_unstated(estimator)
    release = "once" if estimator.release is None else estimator.release
    when = release if isinstance(release, Mapping) else dict.fromkeys(names, release)
    once = [name for name in names if name != active and when.get(name) == "once"]
    all_once = len(once) == len(names) - 1
    protections = estimator.protections
    if protections is None:
        protections = {active: [LabelFreeConfig()]} if all_once else ()
    given = estimator.features or {}, estimator.bottom_fit or {}
    if estimator.bottom is not None or not once:
        return Defaults(release, protections, estimator.bottom, estimator.top, *given)
    features, fits = given
    sketched = [name for name in once if name not in fits or fits[name].get("kind") == "sketch"]
    summaries = {name: summary_of(table, Path(name)) for name, table in tables.items()}
    bottom: dict[str, Any] = {name: {"kind": "auto"} for name in names}
    bottom |= {name: {"kind": "linear", "width": sketch_width(summaries[name], "")} for name in sketched}
    fits = {name: sketch_section(summaries[name], "", None) for name in sketched} | {**fits}
    top = {"kind": "auto"} if all_once and estimator.top is None else estimator.top
    numbers = {name: number_section(summary, steps_on_all_rows=False) for name, summary in summaries.items()}
    for name in sketched:
        numbers[name]["scale"] = "robust"
    encoded = {name: {"numbers": section} for name, section in numbers.items() if section}
    return Defaults(release, protections, bottom, top, encoded | {**features}, fits)


def _check_unstated(estimator: Any) -> None:
    """Refuse settings of training by steps where nothing is: they would be ignored, or trained on random columns."""
    for name in ("bottom", *_stated(estimator)):
        if name != "bottom" or (estimator.bottom is not None and estimator.bottom_fit is None):
            wanted = (
                f"release with {name}: 'every_step' trains by steps, whose gradients reveal labels unless protections"
            )
            remedy = "by default columns are released once, before anything is trained, and no label touches them"
            raise ConfigError.expected(f"{wanted} stop them, 'once' trains the top model alone", "none", remedy)


def _stated(estimator: Any) -> Iterator[str]:
    yield from (name for name, default in _STEPS.items() if getattr(estimator, name) != default)
