"""Checks for attacks and protections of your own, those that each of Cutlayer's own passes (docs/extending.md).

Each check trains a small split network here, in seconds. A fault is an `AssertionError` that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cutlayer.attacks.label.base import LabelAttack, Target
from cutlayer.protections.contract.base import Protection
from cutlayer.testing.attack_checks import ATTACK_CHECKS, AttackCase
from cutlayer.testing.faults import expect
from cutlayer.testing.protection_checks import PROTECTION_CHECKS, Goal, ProtectionCase

__all__ = ["check_attack", "check_protection"]


def check_attack(attack: type[LabelAttack], succeeds: Mapping[str, float], *, summed: bool = False) -> None:
    """Hold an attack on labels to all checks.

    Args:
        attack: The class.
        succeeds: AUC, 0.9 or more, that its scores must exceed on an undefended run, by each message that it `reads`:
            `{"gradient": 0.95}`. All rows are ranked together, and higher scores mean the positive class.
        summed: Whether it needs a top model that only adds up.

    Raises:
        AssertionError: The first fault.
    """
    wanted = "a subclass of LabelAttack; the checks of the other families are in tests/conformance of the repository"
    expect(isinstance(attack, type) and issubclass(attack, LabelAttack), wanted, attack)
    targets = {_target(name): limit for name, limit in succeeds.items()}
    for check in ATTACK_CHECKS:
        check(attack, AttackCase(targets, summed))


def check_protection(
    protection: type[Protection[Any]],
    options: Mapping[str, Any],
    *,
    lowers: Sequence[tuple[str, str, float]],
    adaptive: Sequence[tuple[str, str, float]] = (),
    refused: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Hold a protection to all checks.

    Args:
        protection: The class.
        options: Settings with which it acts, as under `privacy:`.
        lowers: Cutlayer's attacks that it is for: name, message, and the leak that each must stay below, as in
            `[("norm", "gradient", 0.55)]`. The leak is the larger of AUC and 1 - AUC.
        adaptive: Attacks on the whole run, chosen after reading the defence, in the same form.
        refused: Settings that must be an error; an unknown key always is one.

    Raises:
        AssertionError: The first fault.
    """
    expect(isinstance(protection, type) and issubclass(protection, Protection), "a subclass of Protection", protection)
    case = ProtectionCase(options, _goals(lowers), _goals(adaptive), tuple(refused))
    for check in PROTECTION_CHECKS:
        check(protection, case)


def _goals(given: Sequence[tuple[str, str, float]]) -> tuple[Goal, ...]:
    return tuple((name, _target(message), limit) for name, message, limit in given)


def _target(name: str) -> Target:
    known = [str(target) for target in Target]
    expect(name in known, f"a kind of message ({', '.join(known)})", name)
    return Target(name)
