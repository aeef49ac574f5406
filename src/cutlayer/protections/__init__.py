"""The registry of protections: one file each, one line in `catalogue`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlayer.config import BudgetConfig, near_miss, validated
from cutlayer.config.party import BUDGET, LABEL_FREE, Role
from cutlayer.errors import ConfigError
from cutlayer.plugins import Registry
from cutlayer.protections import catalogue
from cutlayer.protections.contract.base import Protection
from cutlayer.protections.contract.chain import Chain

REGISTRY: Registry[type[Protection[Any]]] = Registry(
    {kind.name: kind for kind in vars(catalogue).values() if isinstance(kind, type) and issubclass(kind, Protection)},
    "cutlayer.protections",
    Protection,
)
"""All protections by the name they have under `privacy:`."""


def build(name: str, raw: Mapping[str, Any] | None, where: str) -> Protection[Any]:
    """Build one protection from its options in a party file.

    Args:
        name: Name in `REGISTRY`.
        raw: Its options; `None` where it has none.
        where: Dotted path of the `privacy` mapping, for messages.

    Raises:
        ConfigError: Unknown name, with a near miss, or invalid options.

    >>> build("max_nrom", None, "privacy")
    Traceback (most recent call last):
    ...
    cutlayer.errors.ConfigError: privacy.max_nrom: unknown protection; did you mean 'max_norm'?
    """
    unknown = f"{where}.{name}: unknown protection{near_miss(name, [*REGISTRY, BUDGET, LABEL_FREE])}"
    known = REGISTRY.look_up(name, f"{where}.{name}", unknown)
    return known(validated(known.config, raw, f"{where}.{name}"))


def build_chain(party: str, role: Role, privacy: Mapping[str, Mapping[str, Any] | None], where: str) -> Chain:
    """Build a party's protections.

    Args:
        party: Name of the party.
        role: Role of the party, `active` or `passive`.
        privacy: Options by protection name, and the budget, if there is one.
        where: Dotted path of `privacy`, for error messages.

    Raises:
        ConfigError: An error of `build`, a protection of the other role, or protections that exclude each other.
    """
    protections = [build(name, raw, where) for name, raw in privacy.items() if name not in (BUDGET, LABEL_FREE)]
    for protection in protections:
        if protection.side != role:
            fitting = sorted(name for name, known in REGISTRY.items() if known.side == role)
            wanted = f"{where}.{protection.name} in the part of the {protection.side} party, which it protects"
            remedy = f"protections of a {role} party: {', '.join(fitting) or 'none yet'}"
            raise ConfigError.expected(wanted, f"the {role} party {party}", remedy)
    budget = validated(BudgetConfig, privacy[BUDGET], f"{where}.{BUDGET}") if BUDGET in privacy else None
    return Chain(party, protections, budget)
