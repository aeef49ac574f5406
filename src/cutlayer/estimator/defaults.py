"""What an estimator trains by default: the job that `cutlayer init` writes of the same tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cutlayer.config import FrozenModel, LabelFreeConfig
from cutlayer.config.names import AUTO, PROTECT_CHOICES
from cutlayer.config.target import NUMBERS
from cutlayer.config.wording import did_you_mean
from cutlayer.errors import ConfigError
from cutlayer.estimator.privacy import CONFIGS, Protections
from cutlayer.jobs.found_tables import summary_of
from cutlayer.jobs.grades_choice import GradesChoice, choose_grades
from cutlayer.jobs.private_part import (
    PRIVATE_NUMBERS,
    column_protection,
    grade_bottom,
    grade_fit,
    number_section,
    sketch_section,
    sketch_width,
)
from cutlayer.protections.label_dp import LabelDPConfig

_STEP_DEFAULTS = {"epochs": "auto", "batch_size": "auto", "lr": 1e-3, "optimizer": None, "patience": None}
"""Settings of training by steps, with their defaults."""
_OVERRIDES = ("release", "protections", "bottom")
"""Arguments that say how to train and what protects whom, in place of `protect`."""


class Defaults(NamedTuple):
    """Parameters of an estimator, with those filled in that were left out.

    Attributes:
        release: When passive parties release their rows; of all parties, or by party.
        protections: As the estimator takes them.
        bottom: Bottom models; `None` for those of a job.
        top: The top model; `None` for that of a job.
        features: Encoding of the columns, by party.
        fits: Fits of bottom models, by party.
        audits: Audit of passive parties, by party.
        protect: What is protected, in the word of `init`; `None` where other arguments say so.
        reason: Why it is that, as `init` says it.
    """

    release: str | Mapping[str, str]
    protections: Protections
    bottom: Mapping[str, Any] | None
    top: Mapping[str, Any] | None
    features: Mapping[str, Any]
    fits: Mapping[str, Any]
    audits: Mapping[str, Any] = {}
    protect: str | None = None
    reason: str = ""


def with_defaults(
    estimator: Any,
    tables: Mapping[str, pa.Table],
    active: str,
    names: Sequence[str],
    kind: Any,
    counts: Sequence[int] = (),
    *,
    weighted: bool = False,
) -> Defaults:
    """The parameters of an estimator, with those of the job that `init` writes where it has none.

    Args:
        estimator: The estimator.
        tables: Tables of the parties that have one.
        active: Name of the active party.
        names: Names of all parties.
        kind: The task, as a job names it.
        counts: Number of rows of each class; none of numbers.
        weighted: Whether rows have weights.

    Raises:
        ConfigError: No word of `init`, or one beside arguments that say the same in full; bottom models, or settings of
            training by steps, without a word on how to train.
    """
    word = _checked_word(estimator)
    if word in ("columns", "nothing"):
        return _with_steps(estimator, kind, active, names, protects_columns=word == "columns")
    if estimator.release is None:
        _check_unstated(estimator)
    if word == AUTO and any(getattr(estimator, name) is not None for name in ("bottom_fit", *_OVERRIDES)):
        return _released_once(estimator, tables, active, names)
    chosen = GradesChoice("labels")
    if word != "labels":
        shares = (
            share for share in (estimator.test, estimator.validation) if isinstance(share, int | float | np.number)
        )
        rows = int((1 - sum(float(share) for share in shares if 0 <= share < 1)) * sum(counts))  # others are refused
        refused = "weights are for labels that are not drawn" if weighted or estimator.class_weight is not None else ""
        chosen = choose_grades(kind, counts, rows, protect=word, refused=refused)
    private = chosen.protect == "proof"
    filled = _released_once(estimator, tables, active, names, labels=chosen.epsilon, private=private)
    filled = filled._replace(protect=chosen.protect, reason=chosen.sentence if word != "labels" else "")
    if chosen.protect == "labels":
        return filled
    labels = LabelFreeConfig() if chosen.epsilon is None else LabelDPConfig(eps=chosen.epsilon)
    release: Any = "sketch" if chosen.epsilon is None else "grade"
    return _with_columns_protected(estimator, filled, kind, release, {active: [labels]}, names)


def _checked_word(estimator: Any) -> str:
    word = estimator.protect
    if word not in (AUTO, *PROTECT_CHOICES):
        near = did_you_mean(str(word), [AUTO, *PROTECT_CHOICES]).removeprefix("; ")
        raise ConfigError.expected(f"protect as one of {', '.join((AUTO, *PROTECT_CHOICES))}", repr(word)[:80], near)
    if word != AUTO and (stated := [name for name in _OVERRIDES if getattr(estimator, name) is not None]):
        raise ConfigError.expected(f"protect or {stated[0]}, which says in full what protect does in a word", "both")
    return str(word)


def _with_steps(estimator: Any, kind: Any, active: str, names: Sequence[str], *, protects_columns: bool) -> Defaults:
    """Training by steps whose gradients reveal the labels, with noise on the releases or without."""
    word = "columns" if protects_columns else "nothing"
    given = estimator.features or {}, estimator.bottom_fit or {}
    filled = Defaults("every_step", (), None, estimator.top, *given, protect=word)
    passives = [name for name in names if name != active]
    return _with_columns_protected(estimator, filled, kind, None, {}, passives) if protects_columns else filled


def _with_columns_protected(
    estimator: Any,
    filled: Defaults,
    kind: Any,
    release: Any,
    protections: Mapping[str, Sequence[FrozenModel]],
    names: Sequence[str],
) -> Defaults:
    """The same with what protects the columns of passive parties, and is measured at each."""
    section = column_protection("regression" if kind in NUMBERS else kind, release)
    settings = [CONFIGS[key](**options) for key, options in section["privacy"].items()]
    others = [name for name in names if name not in protections]
    audits = dict.fromkeys(others, section["audit"]) if estimator.attacks == "auto" else {}
    return filled._replace(protections={**protections, **dict.fromkeys(others, settings)}, audits=audits)


def _released_once(
    estimator: Any,
    tables: Mapping[str, pa.Table],
    active: str,
    names: Sequence[str],
    labels: float | None = None,
    *,
    private: bool = False,
) -> Defaults:
    """What is stated, and where nothing is a single release that no label touches, or of labels drawn at an epsilon."""
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
    _check_tables(tables)
    sketched = [name for name in once if labels is None and (name not in fits or fits[name].get("kind") == "sketch")]
    summaries = {name: summary_of(table, Path(name)) for name, table in tables.items()}
    bottom: dict[str, Any] = {name: {"kind": "auto"} for name in names}
    if labels is not None:
        bottom |= {name: grade_bottom(labels) for name in names if name != active}
    bottom |= {name: {"kind": "linear", "width": sketch_width(summaries[name], "")} for name in sketched}
    by_default = {name: sketch_section(summaries[name], "", None) for name in sketched}
    by_default |= {name: grade_fit(private=private) for name in once if labels is not None}
    top = {"kind": "auto"} if all_once and estimator.top is None else estimator.top
    numbers = {name: number_section(summary, steps_on_all_rows=False) for name, summary in summaries.items()}
    for name in sketched:
        numbers[name]["scale"] = "robust"
    numbers |= {name: {**PRIVATE_NUMBERS} for name in once if private}
    encoded = {name: {"numbers": section} for name, section in numbers.items() if section}
    return Defaults(release, protections, bottom, top, encoded | {**features}, by_default | {**fits})


def _check_tables(tables: Mapping[str, pa.Table]) -> None:
    """Refuse images, of which there is no release by default."""
    for name, table in tables.items():
        if any(isinstance(column, pa.FixedShapeTensorType) for column in table.schema.types):
            remedy = "such as release='every_step' and bottom={'kind': 'cnn', 'width': 8}"
            raise ConfigError.expected(f"release and bottom for images of {name}", "none", remedy)


def _check_unstated(estimator: Any) -> None:
    """Refuse settings of training by steps where nothing is: they would be ignored, or trained on random columns."""
    for name in ("bottom", *_stated(estimator)):
        if name != "bottom" or (estimator.bottom is not None and estimator.bottom_fit is None):
            wanted = (
                f"release with {name}: 'every_step' trains by steps, whose gradients reveal labels unless protections"
            )
            remedy = "by default rows are released once, before the top model is trained, and no gradient is sent"
            raise ConfigError.expected(f"{wanted} stop them, 'once' trains the top model alone", "none", remedy)


def _stated(estimator: Any) -> Iterator[str]:
    yield from (name for name, default in _STEP_DEFAULTS.items() if getattr(estimator, name) != default)
