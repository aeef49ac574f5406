"""Code that is not Cutlayer's: installed plugins and classes by import path, all of them imported with consent alone.

A plugin is an entry point of an installed package: a name, and the path `package.module:Class` that it stands for. The
list of them is read from the packages' metadata, which imports nothing. A job may come from a partner, so that a name
in it imports no more than a path would: the module of either needs consent.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator

from cutlayer.consent import DOTTED_NAME, NAME, check_allowed, is_allowed
from cutlayer.errors import ConfigError
from cutlayer.lazy import nn

IMPORTED_KINDS = ("python", "sklearn")
"""Kinds of models whose class a section names."""
PLUGIN_NAME = r"[a-z][a-z0-9_]{0,63}"
_PATH = rf"{DOTTED_NAME}:{NAME}"
K = TypeVar("K")

PUBLISHED: Mapping[str, frozenset[str]] = {
    "cutlayer.attacks": frozenset({"lira", "sdar"}),
    "cutlayer.fits": frozenset({"autoencoder", "contrastive"}),
    "cutlayer.protections": frozenset(
        {"adaptive_embedding", "discrete_sgd", "gradient_compression", "noisy_gradient", "ppdl"}
    ),
}
"""Names of the package cutlayer-published by kind: methods that no default uses."""


def _class_path(path: str) -> str:
    if not re.fullmatch(_PATH, path):
        raise ValueError("a path as package.module:Class")
    return path


ClassPath = Annotated[str, AfterValidator(_class_path)]
"""A class as `package.module:Class`."""


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package.

    Attributes:
        name: Name in a job.
        path: What it stands for, `package.module:Class`.
        package: Name and version of the package.
    """

    name: str
    path: str
    package: str

    @property
    def module(self) -> str:
        """The module that consent is for."""
        return self.path.partition(":")[0]


class Registry(dict[str, K]):
    """Cutlayer's own things of a kind by name, and those of others once a name asks for one.

    What is not Cutlayer's own is named as an installed plugin or as `package.module:Class`. It is there where its
    module may be imported, and is imported on first use. Iteration and length are of Cutlayer's own, so that no
    catalogue takes what no file names.

    Args:
        own: Cutlayer's own things, by name.
        group: Group of the entry points, such as `cutlayer.attacks`.
        needs: Class that a thing is a subclass of, or of which it is an instance.
    """

    def __init__(self, own: Mapping[str, K], group: str, needs: type) -> None:
        super().__init__(own)
        self.group = group
        self._needs = needs
        self._loaded: dict[str, K] = {}

    def plugins(self) -> dict[str, str]:
        """What can be said of each installed plugin without an import, by name."""
        return {name: self._described(plugin) for name, plugin in _installed(self.group).items()}

    def origin(self, name: str) -> str:
        """The package or path of what is not Cutlayer's own; empty for what is."""
        plugin = self._plugin(name)
        return "" if plugin is None else plugin.package or plugin.path

    def look_up(self, name: str, where: str, unknown: str) -> K:
        """What a file names.

        Args:
            name: Name, or `package.module:Class`.
            where: Dotted path of the key that names it, for messages.
            unknown: The error for a name that nothing has.

        Raises:
            ConfigError: Nothing of that name; or a plugin without consent to its import, or with a fault.
        """
        if self._is_own(name):
            return self[name]
        plugin = self._plugin(name)
        if plugin is None and name in PUBLISHED.get(self.group, ()):
            remedy = "pip install cutlayer-published, or in a checkout pip install ./plugins/published"
            raise ConfigError.expected(f"{where}: the package cutlayer-published, which has {name}", "none", remedy)
        if plugin is None:
            raise ConfigError(unknown)
        if name not in self._loaded:
            self._loaded[name] = self._load(plugin, where)
        check_allowed(plugin.path, where)
        return self._loaded[name]

    def __missing__(self, name: str) -> K:
        if name not in self:
            raise KeyError(name)
        return self.look_up(name, name, "")

    def __contains__(self, name: object) -> bool:
        if self._is_own(name):
            return True
        plugin = self._plugin(name) if isinstance(name, str) else None
        return plugin is not None and is_allowed(plugin.module)

    def get(self, name: str, default: Any = None) -> Any:
        """What has the name, where it may be imported."""
        found = name in self
        return self[name] if found else default

    def _described(self, plugin: Plugin) -> str:
        if self._is_own(plugin.name):
            return f"ignored, since Cutlayer has one of this name: {plugin.path} of {plugin.package}"
        if plugin.name not in self:
            return f"{plugin.path} of {plugin.package}, imported with --allow-model {plugin.module.partition('.')[0]}"
        return f"{plugin.path} of {plugin.package}"

    def _is_own(self, name: object) -> bool:
        return dict.__contains__(self, name)

    def _plugin(self, name: str) -> Plugin | None:
        if self._is_own(name):
            return None
        return Plugin(name, name, "") if re.fullmatch(_PATH, name) else _installed(self.group).get(name)

    def _load(self, plugin: Plugin, where: str) -> K:
        found: Any = import_object(plugin.path, where)
        if not isinstance(found, self._needs):
            found = import_class(plugin.path, where, needs=self._needs)
        stated = getattr(found, "name", None) or getattr(found, "kind", None)
        parts = [key for key in vars(self._needs)["__annotations__"] if not hasattr(found, key)]
        parts += sorted(getattr(found, "__abstractmethods__", ()))
        if lacking := [part for part in parts if part != "no_guarantee"]:
            raise ConfigError.expected(
                f"{where}: {', '.join(lacking)} in {plugin.path}", "none", "see docs/extending.md"
            )
        if self._is_own(stated):
            wanted = f"{where}: a name in {plugin.path} that nothing of Cutlayer has"
            raise ConfigError.expected(wanted, repr(stated), "rename it")
        if plugin.package and stated != plugin.name:
            wanted = f"{where}: the entry point of {plugin.package} for {plugin.path} to be called {stated!r}"
            raise ConfigError.expected(wanted, repr(plugin.name))
        if not plugin.package and isinstance(found, type):
            # Under its path, two classes of one name cannot be taken for each other, in a report either.
            named = {"name": plugin.path, "__doc__": found.__doc__, "__module__": found.__module__}
            found = type(found)(found.__name__, (found,), named)
        loaded: K = found
        return loaded


@cache
def _installed(group: str) -> dict[str, Plugin]:
    found: dict[str, Plugin] = {}
    for point in entry_points(group=group):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
        if re.fullmatch(_PATH, point.value) and re.fullmatch(PLUGIN_NAME, point.name):
            found.setdefault(point.name, Plugin(point.name, point.value, package))
    return found


def is_plugin_name(name: str) -> bool:
    """Whether a name is of the form that something of somebody else's has, wherever that is installed."""
    return len(name) <= 200 and re.fullmatch(f"{PLUGIN_NAME}|{_PATH}", name) is not None


def import_object(path: str, where: str) -> object:
    """Import what a path names.

    Args:
        path: `package.module:Class`.
        where: Dotted path of the key that names it, for messages.

    Raises:
        ConfigError: No consent, nothing of that name, or the import fails.
    """
    check_allowed(path, where)
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as failure:
        raise ConfigError.expected(f"an importable {path}", failure, "is its folder on PYTHONPATH?") from None
    except (Exception, SystemExit) as failure:
        raise ConfigError.expected(f"an importable {path}", f"{type(failure).__name__}: {failure}") from failure


def import_class(path: str, where: str = "model", *, needs: type = object) -> type:
    """Import the class that a path names, without calling it.

    Args:
        path: `package.module:Class`.
        where: Dotted path of the model's section, for messages.
        needs: Class that it must be a subclass of.

    Raises:
        ConfigError: No consent; nothing of that name; no class, or no subclass of `needs`; or a class of a module that
            was not allowed, which the allowed one merely imports.
    """
    found = import_object(path, where)
    if not (isinstance(found, type) and issubclass(found, needs)):
        got = f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__
        wanted = "a class" if needs is object else f"a subclass of {'nn.' * (needs is nn.Module)}{needs.__name__}"
        raise ConfigError.expected(f"{path} to be {wanted}", got)
    if not is_allowed(found.__module__):
        module = path.partition(":")[0]
        remedy = f"name it there and allow {found.__module__} if you trust it"
        raise ConfigError.expected(f"{path} to be defined in {module}", f"a class of {found.__module__}", remedy)
    return found


def modules_of(model: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that a `model` section of a job names, for a caller in Python who has written it.

    Args:
        model: Mapping with `bottom` and `top`; the sections are checked elsewhere.
    """
    bottom = model.get("bottom")
    by_party = isinstance(bottom, Mapping) and "kind" not in bottom
    sections = [model.get("top"), *(bottom.values() if isinstance(bottom, Mapping) and by_party else [bottom])]
    paths = [part.get("path") for part in sections if isinstance(part, Mapping) and part.get("kind") in IMPORTED_KINDS]
    return tuple(path.partition(":")[0] for path in paths if isinstance(path, str) and ":" in path)
