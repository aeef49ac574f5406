"""`protect_labels`: the protection of labels that stays within stated limits, of those that survive every attack."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, ValidationError

from cutlayer.config.base import FrozenModel

PROTECT_LABELS = "protect_labels"
_SCALE = 10_000  # epsilon is rounded down to four digits


class ProtectLabelsConfig(FrozenModel):
    """Limits on what training may reveal of a label; the stricter one counts.

    Attributes:
        max_leak: Largest AUC by which the labels that training draws may rank the true ones; 0.5 is chance. Randomised
            response of epsilon eps gives e^eps / (1 + e^eps) for two classes, and less for more.
        guarantee: Largest epsilon of a label for the whole run.
    """

    max_leak: float | None = Field(default=None, ge=0.5, lt=1)
    guarantee: float | None = Field(default=None, ge=0)

    def _faults(self) -> Iterator[str]:
        if self.max_leak is None and self.guarantee is None:
            yield "max_leak or guarantee, got neither; 0.6 and 1.0 are examples, 0.5 and 0 mean label_free"

    @property
    def epsilon(self) -> float:
        """The largest epsilon within both limits, rounded down; 0 where nothing about a label may be sent.

        >>> ProtectLabelsConfig(max_leak=0.6).epsilon, ProtectLabelsConfig(max_leak=0.6, guarantee=0.3).epsilon
        (0.4054, 0.3)
        """
        limits = [] if self.guarantee is None else [self.guarantee]
        if self.max_leak is not None:
            limits.append(math.log(self.max_leak / (1 - self.max_leak)))
        return math.floor(round(min(limits) * _SCALE, 6)) / _SCALE

    @property
    def expansion(self) -> dict[str, dict[str, float] | None]:
        """Section of `privacy` in its place: `label_free`, or `label_dp` with its epsilon.

        These two are what the project's own adaptive attacks leave standing; protections of gradients are not taken.
        """
        return {"label_dp": {"eps": self.epsilon}} if self.epsilon else {"label_free": None}


def expanded(privacy: Mapping[str, Any]) -> dict[str, Any]:
    """The section `privacy` with what `protect_labels` stands for in its place.

    Args:
        privacy: The section, with that key.

    Raises:
        ValueError: The limits are wrong, or the section names one of both already.
    """
    rest = {name: options for name, options in privacy.items() if name != PROTECT_LABELS}
    if twice := sorted({"label_dp", "label_free"} & rest.keys()):
        raise ValueError(f"{PROTECT_LABELS} without {twice[0]}, got both; it stands for one of label_dp and label_free")
    try:
        limits = ProtectLabelsConfig.model_validate(privacy[PROTECT_LABELS] or {})
    except ValidationError as failure:
        first = failure.errors()[0]
        where = ".".join(("privacy", PROTECT_LABELS, *map(str, first["loc"])))
        raise ValueError(f"valid limits, got {where}: {first['msg']}") from None
    return {**rest, **limits.expansion}
