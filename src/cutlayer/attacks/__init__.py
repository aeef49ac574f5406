"""The catalogue of attacks: one file each, one line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from cutlayer.attacks.base import Attack
from cutlayer.attacks.direct import Direct
from cutlayer.attacks.direction import Direction
from cutlayer.attacks.gradient_match import GradientMatch
from cutlayer.attacks.hint import Hint
from cutlayer.attacks.norm import Norm
from cutlayer.attacks.probe import Probe
from cutlayer.attacks.spectral import Spectral
from cutlayer.config import near_miss
from cutlayer.errors import ConfigError

__all__ = ["REGISTRY", "Attack", "Direct", "Direction", "GradientMatch", "Hint", "Norm", "Probe", "Spectral", "resolve"]

REGISTRY: Mapping[str, type[Attack]] = {
    attack.name: attack
    for attack in (
        Norm,
        Direction,
        Hint,
        Spectral,
        Direct,
        GradientMatch,
        Probe,
    )
}
"""All attacks by the name they have in `audit.attacks`."""


def resolve(names: Literal["auto"] | Sequence[str], task_kind: str) -> list[Attack]:
    """The attacks an audit runs.

    Args:
        names: as registered, each once; `auto` takes all live ones that are defined for the task.
        task_kind: `binary`, `multiclass` or `regression`.

    Raises:
        ConfigError: an unknown name, with a near miss, or one named twice.
        NotApplicable: a named attack is not defined for the task.

    >>> resolve(["spectrl"], "binary")
    Traceback (most recent call last):
    ...
    cutlayer.errors.ConfigError: audit.attacks: unknown attack 'spectrl'; did you mean 'spectral'?
    """
    if names == "auto":
        return [attack() for attack in REGISTRY.values() if attack.live and task_kind in attack.tasks]
    if isinstance(names, str):
        raise ConfigError.expected("audit.attacks: auto or a list of names", repr(names), f"write [{names}]")
    for place, name in enumerate(names):
        if name not in REGISTRY:
            raise ConfigError(f"audit.attacks: unknown attack {name!r}{near_miss(name, list(REGISTRY))}")
        if name in names[:place]:
            raise ConfigError(f"audit.attacks: {name} is named twice; keep one")
        REGISTRY[name].check_task(task_kind)
    return [REGISTRY[name]() for name in names]
