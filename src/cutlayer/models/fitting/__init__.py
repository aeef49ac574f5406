"""How a party fits its bottom model before it releases its rows once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cutlayer.config import FrozenModel, registered, validated
from cutlayer.errors import ConfigError
from cutlayer.models import BOTTOMS
from cutlayer.models.fitting import catalogue
from cutlayer.models.fitting.base import Fit, TrainingColumns

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel

__all__ = ["FITS", "Fit", "TrainingColumns", "check_columns", "check_fit", "fit_bottom", "is_independent"]


FITS: Mapping[str, Fit] = {fit.kind: fit for fit in vars(catalogue).values() if isinstance(fit, Fit)}
"""All fits by their name in `fit: {kind: ...}`."""


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
    if fit.needs_warmup and not warmup_epochs:
        wanted = f"{where}: warm-up epochs for kind {raw['kind'] if raw else 'none'}"
        raise ConfigError.expected(wanted, "train.warmup_epochs: 0", "set it to 1 or more")
    if fit.needs_warmup and _cut_is_stated(bottom) and bottom.get("cut") != "linear":
        wanted = f"{where}: a linear cut for kind {raw['kind'] if raw else 'none'}"
        raise ConfigError.expected(wanted, "an activation after it", "write cut: linear in model.bottom")
    if fit.bottom and bottom.get("kind") != fit.bottom:
        wanted = f"{where}: a bottom model of kind {fit.bottom} for kind {raw['kind'] if raw else 'none'}"
        raise ConfigError.expected(wanted, bottom.get("kind"), f"write model.bottom: {{kind: {fit.bottom}}}")


def is_independent(raw: Mapping[str, Any] | None) -> bool:
    """Whether the bottom model stays as it was drawn, whatever the rows."""
    return raw is None or raw.get("kind") == "none"


def _cut_is_stated(bottom: Mapping[str, Any]) -> bool:
    """Whether a `cut` is among the keys of this kind of bottom model, whose embedding is then activated by default."""
    kind = BOTTOMS.get(str(bottom.get("kind")))
    return kind is not None and "cut" in kind.config.model_fields


def _section(raw: Mapping[str, Any] | None, where: str) -> tuple[Fit, FrozenModel]:
    raw = {"kind": "none"} if raw is None else raw
    fit = registered(FITS, raw, where)
    return fit, validated(fit.config, raw, where)
