"""Protections as they are handed to an estimator, made into the parties' private settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutlayer.config import BudgetConfig, FrozenModel, LabelFreeConfig
from cutlayer.config.party import BUDGET, LABEL_FREE
from cutlayer.errors import ConfigError
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Side

CONFIGS: dict[str, type[FrozenModel]] = {name: kind.config for name, kind in REGISTRY.items()}
CONFIGS |= {BUDGET: BudgetConfig, LABEL_FREE: LabelFreeConfig}
"""Settings of each key of `privacy`."""
Protections = Sequence[FrozenModel] | Mapping[str, Sequence[FrozenModel]]
"""Settings such as `LabelDPConfig(eps=1.0)`, a budget or `LabelFreeConfig()`: a list, or lists by party."""


def privacy_of(protections: Protections, active: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The `privacy` of every party; in a plain list each protection goes to the side that it belongs to.

    Settings with a default value are left out: a default can exclude a setting that was given.

    Args:
        protections: Settings as the estimator received them.
        active: Name of the active party.
        names: Names of all parties.

    Raises:
        ConfigError: No protection's settings, an unknown party, or one protection twice.
    """
    wanted: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name, settings in _owned_settings(protections, active, names):
        if name not in wanted:
            raise ConfigError.expected(f"protections of {', '.join(names)}", name)
        key = _key(settings)
        if key in wanted[name]:
            raise ConfigError.expected(f"{name}: {key} once", "it twice", "keep one of them")
        wanted[name][key] = settings.model_dump(exclude_unset=True)
    return wanted


def _owned_settings(protections: Protections, active: str, names: Sequence[str]) -> Iterator[tuple[str, FrozenModel]]:
    """Each protection with its party: the one that the mapping names, or all of the side it is for."""
    by_party = protections if isinstance(protections, Mapping) else {None: protections}
    for party, some in by_party.items():
        if not isinstance(some, list | tuple):
            got = type(some).__name__
            raise ConfigError.expected("protections in a list", got, "such as [LabelDPConfig(eps=1.0)]")
        for settings in some:
            key = _key(settings)
            if party is None and key == BUDGET:
                remedy = f"such as protections={{{active!r}: [BudgetConfig(epsilon=2.0), ...]}}"
                raise ConfigError.expected("a budget by party", "one in a plain list", remedy)
            for_active = key == LABEL_FREE or (key != BUDGET and REGISTRY[key].side == Side.ACTIVE)
            owners = [name for name in names if for_active == (name == active)] if party is None else [party]
            yield from ((owner, settings) for owner in owners)


def modules_of_plugins(protections: object) -> set[str]:
    """The modules of plugins whose settings a caller in Python has made; other faults are found by `privacy_of`."""
    lists = [*protections.values()] if isinstance(protections, Mapping) else [protections]
    every = (settings for some in lists if isinstance(some, list | tuple) for settings in some)
    return {type(each).__module__ for each in every if type(each) not in CONFIGS.values()}


def config_of(key: str) -> type[FrozenModel]:
    """Class of the settings of a key of `privacy`, which may be that of a plugin."""
    return CONFIGS[key] if key in CONFIGS else REGISTRY.look_up(key, "privacy", f"privacy: unknown {key!r:.40}").config


def _key(settings: object) -> str:
    """Key of `privacy` that these settings are of."""
    plugins = (name for name in REGISTRY.plugins() if name in REGISTRY)  # of a module that may be imported
    key = next((key for key in (*CONFIGS, *plugins) if type(settings) is config_of(key)), None)
    if key is None:
        known = ", ".join(sorted(config.__name__ for config in CONFIGS.values()))
        raise ConfigError.expected(f"a protection's settings ({known})", type(settings).__name__)
    return key
