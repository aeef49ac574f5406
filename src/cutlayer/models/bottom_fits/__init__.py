"""How a party fits its bottom model before it releases its rows once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cutlayer.accounting.plan import PrivateFit
from cutlayer.config import FrozenModel, PartyConfig, near_miss, validated
from cutlayer.config.case import Case
from cutlayer.config.phases import Phase, grades_rows, reads_labels
from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.informative_rows import MAX_EPSILON
from cutlayer.models import BOTTOMS
from cutlayer.models.bottom_fits import catalogue
from cutlayer.models.bottom_fits.base import Fit, GradeLimits, TrainingColumns
from cutlayer.models.bottom_fits.grade import GradeFit
from cutlayer.plugins import Registry

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel

__all__ = [
    "CONDITIONS",
    "FITS",
    "Fit",
    "TrainingColumns",
    "canonical_fit",
    "check_columns",
    "check_fit",
    "fit_bottom",
    "fit_faults",
    "fit_with_limits",
    "grade_limits_of",
    "is_independent",
    "label_epsilon_of",
    "lower_epsilons_of",
    "may_refuse",
    "private_fit",
]  # fmt: skip


FITS: Registry[Fit] = Registry(
    {fit.kind: fit for fit in vars(catalogue).values() if isinstance(fit, Fit)}, "cutlayer.fits", Fit
)
"""All fits by their name in `fit: {kind: ...}`."""


CONDITIONS = ("least_epsilon", "least_z", "limits")
"""Keys of a fit of grades that decide whether and at which epsilon they are sent, and that models do not follow."""
_KINDS = {"labels": "grade", "columns": "cells"}
"""Kind of the fit of grades, by what they are of."""


def fit_bottom(
    raw: Mapping[str, Any] | None, bottom: BottomModel, columns: TrainingColumns, where: str
) -> tuple[float, ...]:
    """Fit a bottom model in place; it ends in evaluation mode.

    Args:
        raw: Section `fit` of the party; `None` leaves the initial weights as they are.
        bottom: The bottom model.
        columns: The party's own training rows, and the gradients of the warm-up epochs.
        where: Dotted path of `fit`, for messages.

    Returns:
        Loss of every epoch, in the unit of the fit.

    Raises:
        ConfigError: Unknown kind or key, or columns or a bottom model that it cannot be used with.
        Diverged: Its loss is not finite.
    """
    fit, settings = _section(raw, where)
    try:
        losses = fit.run(settings, bottom, columns)
    except ConfigError as failure:
        raise ConfigError(f"{where}: {failure}") from None
    bottom.eval()
    return losses


def check_columns(raw: Mapping[str, Any] | None, columns: TrainingColumns, where: str) -> None:
    """Refuse columns that a fit cannot be used with, before it is run.

    Args:
        raw: Section `fit` of the party.
        columns: The party's own training rows.
        where: Dotted path of `fit`, for messages.

    Raises:
        ConfigError: Unknown kind or key, or columns that it cannot be used with.
    """
    fit, settings = _section(raw, where)
    try:
        if fit.check is not None:
            fit.check(settings, columns)
    except ConfigError as failure:
        raise ConfigError(f"{where}: {failure}") from None


def check_fit(raw: Mapping[str, Any] | None, bottom: Mapping[str, Any], warmup_epochs: int, where: str) -> None:
    """Validate a party's `fit` together with the section of its bottom model, without running it.

    Args:
        raw: Section `fit` of the party.
        bottom: Section of its bottom model.
        warmup_epochs: Number of epochs before the release.
        where: Dotted path of `fit`, for messages.

    Raises:
        ConfigError: Unknown kind or key, another kind of bottom model than it needs, or no warm-up epochs where it
            needs them.
    """
    fit, _ = _section(raw, where)
    kind = f"for kind {fit.kind}"
    if fit.needs_warmup and not warmup_epochs:
        remedy = "set it to 1 or more"
        raise ConfigError.expected(f"{where}: warm-up epochs {kind}", "train.warmup_epochs: 0", remedy)
    if fit.needs_warmup and _cut_is_stated(bottom) and bottom.get("cut") != "linear":
        remedy = "write cut: linear in model.bottom"
        raise ConfigError.expected(f"{where}: a linear cut {kind}", "an activation after it", remedy)
    if fit.bottom and bottom.get("kind") != fit.bottom:
        wanted = f"{where}: a bottom model of kind {fit.bottom} {kind}"
        raise ConfigError.expected(wanted, bottom.get("kind"), f"write model.bottom: {{kind: {fit.bottom}}}")


def fit_faults(case: Case) -> Iterator[str]:
    """A bottom model is fitted only where its party releases once, by a fit that suits it."""
    job = case.job
    for name, party in job.parties.items():
        where = f"parties.{name}.fit"
        if name in job.passives and Phase.RELEASE in job.phases_of(name):
            check_fit(party.fit, job.bottom_of(name), job.train.warmup_epochs, where)
        elif party.fit is not None:
            remedy = f"write train.release: {{{name}: once}}" if name in job.passives else "leave it out"
            yield f"expected no {where} but at a passive party that releases once, got one; {remedy}"


def grade_faults(case: Case) -> Iterator[str]:
    """Grades are fitted to drawn labels, and released once, before the label owner trains alone."""
    job = case.job
    graded = [name for name in job.passives if grades_rows(job, name)]
    labelled = [name for name in graded if reads_labels(job, name)]
    if grades_rows(job, job.active):
        yield f"expected model.bottom of {job.active} of another kind than grade, which partners release; write auto"
    if not graded:
        return
    if Phase.FIT not in job.phases and Phase.TRAIN_ALONE not in job.phases:
        got = "gradients" if not job.train.warmup_epochs else "warm-up epochs"
        remedy = "write train.release: once, without warmup_epochs"
        yield f"expected all passive parties to release once with grades of {graded[0]}, got {got}; {remedy}"
    owner = job.parties[job.active]
    if labelled and case.knows(job.active) and "label_dp" not in owner.privacy:
        wanted = f"expected parties.{job.active}.privacy with label_dp, since {labelled[0]} grades rows by drawn labels"
        yield f"{wanted}, got {', '.join(owner.privacy) or 'nothing'}; write privacy: {{label_dp: {{eps: 1.0}}}}"
    for name in graded:
        fit, of = job.parties[name].fit, str(job.bottom_of(name).get("of", "labels"))
        kind = _KINDS.get(of, of)
        if case.knows(name) and (fit is None or fit.get("kind") != kind):
            given = "none" if fit is None else fit.get("kind")
            wanted = f"parties.{name}.fit: {{kind: {kind}}} with model.bottom of kind grade, of: {of}"
            yield f"expected {wanted}, got {given}; write it"
        if case.knows(name):
            yield from _draw_faults(job.parties[name], f"parties.{name}")
            yield from _private_faults(job.parties[name], f"parties.{name}")
        drawn = (owner.privacy.get("label_dp") or {}).get("eps") if case.knows(job.active) else None
        if not isinstance(drawn, int | float):  # what is no number is refused by the protection
            continue
        if name in labelled and drawn > label_epsilon_of(job.bottom_of(name)):
            wanted = f"expected model.bottom.{name}.label_epsilon of {drawn:g} or more, as label_dp states"
            yield f"{wanted}, got less; write it"


def _draw_faults(party: PartyConfig, where: str) -> Iterator[str]:
    """A lower epsilon is one of a draw."""
    if (party.fit or {}).get("least_epsilon") is not None and "grade_dp" not in party.privacy:
        yield (
            f"expected {where}.privacy with grade_dp beside fit.least_epsilon, the least of a draw, got none; "
            f"write grade_dp: {{epsilon: 8.0}}, or leave fit.least_epsilon out"
        )


def _private_faults(party: PartyConfig, where: str) -> Iterator[str]:
    """A private fit has drawn grades, and columns whose encoding no row has a part in."""
    if private_fit(party.fit) is None:
        return
    if "grade_dp" not in party.privacy:
        yield f"expected {where}.privacy with grade_dp beside fit.epsilon, got none; write grade_dp: {{epsilon: 8.0}}"
    if not party.features.fixed_encoding:
        yield (
            f"expected {where}.features whose scales and codes no row decides on beside fit.epsilon, got others; write "
            "features: {numbers: {scale: none, missing: zero}}, without categories.min_count, or state ranges and a "
            "vocabulary for all columns"
        )


def grade_limits_of(raw: Mapping[str, Any] | None, where: str) -> Mapping[str, float]:
    """Limits that a party sets for what its grades carry; none of a fit without any."""
    _, settings = _section(raw, where)
    return settings.limits if isinstance(settings, GradeLimits) else {}


def fit_with_limits(trained: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Section `fit` of a trained model, with the limits that its party's private file has by now: its own to set."""
    if trained is None or now is None or trained.get("kind") != now.get("kind"):
        return trained
    limits = {"limits": now["limits"]} if "limits" in now else {}
    return {key: value for key, value in trained.items() if key != "limits"} | limits


def canonical_fit(raw: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a section `fit` means, in plain values: 8 and 8.0 are one epsilon, and a stated default is none at all."""
    fit, settings = _section(raw, "fit")
    return {"kind": fit.kind, **settings.model_dump(mode="json", exclude_defaults=True)}


def lower_epsilons_of(raw: Mapping[str, Any] | None, epsilon: float | None) -> list[float]:
    """Epsilons that a party tries where its grades exceed limits, below that of its settings; see `GradeLimits`."""
    _, settings = _section(raw, "fit")
    return settings.steps(epsilon) if isinstance(settings, GradeLimits) and _least_limit(settings) < 1 else []


def may_refuse(raw: Mapping[str, Any] | None, where: str) -> bool:
    """Whether grades may be refused by what rows say without noise: limits, or a rank by a fit that is not private."""
    _, settings = _section(raw, where)
    if not isinstance(settings, GradeLimits):
        return False
    fit = settings if isinstance(settings, GradeFit) else None
    return _least_limit(settings) < 1 or (fit is not None and fit.private is None and fit.wanted_z > 0)


def _least_limit(settings: GradeLimits) -> float:
    # Of labels there is a limit by default.
    return min({"other": 0.0 if isinstance(settings, GradeFit) else 1.0, **settings.limits}.values())


def private_fit(raw: Mapping[str, Any] | None) -> PrivateFit | None:
    """The cost of a fit of grades that is private in a row's columns; `None` of any other fit."""
    if raw is None or raw.get("kind") != "grade" or raw.get("epsilon") is None:
        return None
    _, settings = _section(raw, "fit")
    return settings.private if isinstance(settings, GradeFit) else None


def label_epsilon_of(bottom: Mapping[str, Any]) -> float:
    """Largest epsilon of drawn labels on which all parties agree for a partner, by its bottom model."""
    return float(bottom.get("label_epsilon", MAX_EPSILON))


def is_independent(raw: Mapping[str, Any] | None) -> bool:
    """Whether the bottom model stays as it was drawn, whatever the rows."""
    return raw is None or raw.get("kind") == "none"


def _cut_is_stated(bottom: Mapping[str, Any]) -> bool:
    """Whether a `cut` is among the keys of this kind of bottom model, whose embedding is then activated by default."""
    kind = BOTTOMS.get(str(bottom.get("kind")))
    return kind is not None and "cut" in kind.config.model_fields


def _section(raw: Mapping[str, Any] | None, where: str) -> tuple[Fit, FrozenModel]:
    raw = {"kind": "none"} if raw is None else raw
    name = raw.get("kind")
    unknown = f"{where}.kind: unknown kind {name!r:.40}{near_miss(str(name), [*FITS])}"
    fit = FITS.look_up(str(name), f"{where}.kind", unknown)
    return fit, validated(fit.config, {**raw, "kind": fit.kind}, where)
