"""The catalogue of attacks: one file each, one line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cutlayer.attacks.base import Attack
from cutlayer.attacks.completion.active import ActiveModelCompletion
from cutlayer.attacks.completion.base import CompletionAttack
from cutlayer.attacks.completion.passive import ModelCompletion
from cutlayer.attacks.feature.attribute import Attribute
from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.attacks.feature.membership import Membership
from cutlayer.attacks.label.direct import Direct
from cutlayer.attacks.label.direction import Direction
from cutlayer.attacks.label.gradient_match import GradientMatch
from cutlayer.attacks.label.hint import Hint
from cutlayer.attacks.label.norm import Norm
from cutlayer.attacks.label.probe import Probe
from cutlayer.attacks.label.spectral import Spectral
from cutlayer.config import near_miss
from cutlayer.errors import ConfigError

__all__ = [
    "REGISTRY",
    "ActiveModelCompletion",
    "Attack",
    "Attribute",
    "CompletionAttack",
    "Direct",
    "Direction",
    "FeatureAttack",
    "GradientMatch",
    "Hint",
    "Inversion",
    "Membership",
    "ModelCompletion",
    "Norm",
    "Probe",
    "Spectral",
    "resolve",
    "resolve_completions",
    "resolve_features",
]

Kind = type[Attack] | type[CompletionAttack] | type[FeatureAttack[Any, Any]]

REGISTRY: Mapping[str, Kind] = {
    attack.name: attack
    for attack in (
        Norm,
        Direction,
        Hint,
        Spectral,
        Direct,
        GradientMatch,
        Probe,
        ModelCompletion,
        ActiveModelCompletion,
        Inversion,
        Membership,
        Attribute,
    )
}
"""All attacks by the name they have in `audit.attacks`.

Those on messages and those that complete a kept model look for labels; the others look for a passive party's features.
"""


def resolve(names: Literal["auto"] | Sequence[str], task_kind: str) -> list[Attack]:
    """The attacks on messages that an audit runs.

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
    return [attack() for attack in _named(names, task_kind) if issubclass(attack, Attack)]


def resolve_completions(names: Literal["auto"] | Sequence[str], task_kind: str) -> list[CompletionAttack]:
    """The attacks on what a quitter keeps that an audit runs; arguments and errors as in `resolve`."""
    return [attack() for attack in _named(names, task_kind) if issubclass(attack, CompletionAttack)]


def resolve_features(names: Literal["auto"] | Sequence[str], task_kind: str) -> list[FeatureAttack[Any, Any]]:
    """The attacks on a passive party's features that its audit runs; `auto` is none. Errors as in `resolve`.

    >>> resolve_features(["norm"], "binary")
    Traceback (most recent call last):
    ...
    cutlayer.errors.ConfigError: audit.attacks: norm looks for labels; name it in the active party's audit
    """
    if names == "auto":
        return []
    found = []
    for attack in _checked(names, task_kind):
        if not issubclass(attack, FeatureAttack):
            raise ConfigError(f"audit.attacks: {attack.name} looks for labels; name it in the active party's audit")
        found.append(attack())
    return found


def _named(names: Literal["auto"] | Sequence[str], task_kind: str) -> list[Kind]:
    """What looks for labels."""
    if names == "auto":
        return [attack for attack in REGISTRY.values() if attack.live and task_kind in attack.tasks]
    found = _checked(names, task_kind)
    for attack in found:
        if issubclass(attack, FeatureAttack):
            raise ConfigError(f"audit.attacks: {attack.name} looks for features; name it in a passive party's audit")
    return found


def _checked(names: Sequence[str], task_kind: str) -> list[Kind]:
    if isinstance(names, str):
        raise ConfigError.expected("audit.attacks: auto or a list of names", repr(names), f"write [{names}]")
    for place, name in enumerate(names):
        if name not in REGISTRY:
            raise ConfigError(f"audit.attacks: unknown attack {name!r}{near_miss(name, list(REGISTRY))}")
        if name in names[:place]:
            raise ConfigError(f"audit.attacks: {name} is named twice; keep one")
        REGISTRY[name].check_task(task_kind)
    return [REGISTRY[name] for name in names]
