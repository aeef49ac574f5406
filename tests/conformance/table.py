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
        summed: it needs a top model that only adds up.
    """

    succeeds: Mapping[Target, float] = field(default_factory=dict)
    summed: bool = False


PROTECTIONS = {
    "dcor": ProtectionCase(
        {"alpha": 10.0},
        lowers=(("spectral", EMBEDDING, 0.8),),
        refused=({}, {"alpha": 0.0}, {"alpha": 0.01, "floor": -0.1}, {"alpha": 0.01, "estimate": "squared"}),
    ),
    "discrete_sgd": ProtectionCase(
        {"levels": 1},
        lowers=(("norm", GRADIENT, 0.6),),
        refused=({}, {"levels": 0}, {"levels": 1.5}, {"levels": 2, "bound": 0.0}),
    ),
    "gradient_compression": ProtectionCase(
        {"keep": 0.02},
        lowers=(("norm", GRADIENT, 0.75), ("direction", GRADIENT, 0.75), ("spectral", GRADIENT, 0.75)),
        refused=({}, {"keep": 90}, {"keep": -0.1}),
    ),
    "iso_noise": ProtectionCase(
        {"ratio": 5.0},
        lowers=(("norm", GRADIENT, 0.65), ("direction", GRADIENT, 0.65), ("spectral", GRADIENT, 0.8)),
        refused=({}, {"ratio": 0.0}),
    ),
    "label_dp": ProtectionCase(
        {"eps": 0.5},
        lowers=(("norm", GRADIENT, 0.65), ("direction", GRADIENT, 0.65), ("spectral", GRADIENT, 0.65)),
        refused=({}, {"eps": -1.0}, {"eps": "1"}, {"eps": float("inf")}, {"eps": True}),
    ),
    "marvell": ProtectionCase(
        {"sum_kl": 0.16},
        lowers=(("norm", GRADIENT, 0.65), ("direction", GRADIENT, 0.65), ("spectral", GRADIENT, 0.65)),
        refused=({}, {"sum_kl": -0.16}, {"sum_kl": 0.16, "s": 8.0}, {"error_lower_bound": 0.5}),
    ),
    "max_norm": ProtectionCase({}, lowers=(("norm", GRADIENT, 0.7), ("spectral", GRADIENT, 0.9))),
    "noisy_gradient": ProtectionCase(
        {"scale": 0.001},
        lowers=(("norm", GRADIENT, 0.6), ("direction", GRADIENT, 0.6), ("spectral", GRADIENT, 0.6)),
        refused=({}, {"scale": 0.0}, {"scale": 0.001, "distribution": "uniform"}),
    ),
    "ppdl": ProtectionCase(
        {"theta": 0.1},
        lowers=(("norm", GRADIENT, 0.6), ("direction", GRADIENT, 0.6), ("spectral", GRADIENT, 0.6)),
        refused=({}, {"theta": 1.5}, {"theta": 0.1, "epsilon": 0.0}, {"theta": 0.1, "gamma": -1.0}),
    ),
}

ATTACKS = {
    "norm": AttackCase({GRADIENT: 0.95}),
    "direction": AttackCase({GRADIENT: 0.95}),
    "hint": AttackCase({GRADIENT: 0.95}),
    "spectral": AttackCase({GRADIENT: 0.95, EMBEDDING: 0.9, LAYER: 0.9}),
    "direct": AttackCase({GRADIENT: 0.99}, summed=True),
    "gradient_match": AttackCase({GRADIENT: 0.95}),
    "probe": AttackCase({EMBEDDING: 0.95, LAYER: 0.95}),
}
