"""ONE line for each registered protection and attack: what the suite cannot know from the class alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cutlayer.attacks.base import Target

GRADIENT, EMBEDDING, LAYER = Target.GRADIENT, Target.EMBEDDING, Target.LAYER


@dataclass(frozen=True)
class ProtectionCase:
    """How to try a protection.

    Attributes:
        options: that make it act on the toy.
        lowers: the attacks it is for: (attack, target, the leak AUC it must be brought below).
        refused: options that must be an error (an unknown key always is one).
    """

    options: Mapping[str, Any]
    lowers: tuple[tuple[str, Target, float], ...]
    refused: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class AttackCase:
    """How to try an attack.

    Attributes:
        succeeds: the leak AUC it must exceed on the undefended toy, by target.
    """

    succeeds: Mapping[Target, float] = field(default_factory=dict)


PROTECTIONS = {
    "label_dp": ProtectionCase(
        {"eps": 0.5},
        lowers=(("norm", GRADIENT, 0.65), ("direction", GRADIENT, 0.65), ("spectral", GRADIENT, 0.65)),
        refused=({}, {"eps": -1.0}, {"eps": "1"}, {"eps": float("inf")}, {"eps": True}),
    ),
    "max_norm": ProtectionCase({}, lowers=(("norm", GRADIENT, 0.7), ("spectral", GRADIENT, 0.9))),
}

ATTACKS = {
    "norm": AttackCase({GRADIENT: 0.95}),
    "direction": AttackCase({GRADIENT: 0.95}),
    "spectral": AttackCase({GRADIENT: 0.95, EMBEDDING: 0.9, LAYER: 0.9}),
}
