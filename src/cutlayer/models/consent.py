"""Consent to import users' modules: none is imported unless the person who runs the process allows it.

The path of a model of kind `python` is in the part of a job that all parties share, so that a partner may have written
it. To import a module is to run it. Consent is therefore never read from a job: it comes from the command line,
from a party's private file, or from a caller in Python.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cutlayer.config.names import module_name
from cutlayer.errors import ConfigError
from cutlayer.lazy import nn

_ALLOWED: ContextVar[frozenset[str]] = ContextVar("allowed_models", default=frozenset())
"""A thread that a run starts begins with none, and so refuses."""


IMPORTED_KINDS = ("python", "sklearn")
"""Kinds of models whose class a section names."""


@contextmanager
def allowed_models(*modules: str) -> Iterator[None]:
    """Consent to the import of modules while the context is open, besides those allowed around it.

    Args:
        modules: Dotted names; each allows the module and all modules below it.

    Raises:
        ConfigError: A name is no dotted name of a module.

    >>> with allowed_models("my_models"):
    ...     is_allowed("my_models.towers"), is_allowed("my_models_2")
    (True, False)
    """
    try:
        added = frozenset(map(module_name, modules))
    except ValueError as unfit:
        raise ConfigError(f"expected {unfit}") from None
    token = _ALLOWED.set(_ALLOWED.get() | added)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def is_allowed(module: str) -> bool:
    """Whether the module, or a package that it is in, may be imported."""
    return any(module == allowed or module.startswith(f"{allowed}.") for allowed in _ALLOWED.get())


def check_allowed(path: str, where: str) -> None:
    """Refuse a path that nobody consented to; nothing is imported.

    Args:
        path: `package.module:Class`.
        where: Dotted path of the model's section, for the message.

    Raises:
        ConfigError: There is no consent for its module.
    """
    module = path.partition(":")[0]
    if not is_allowed(module):
        remedy = (
            "a job may come from somebody else, and an import runs code: read the module, then allow it by "
            f"--allow-model {module} or, for a party, by allow_models: [{module}] in its private file"
        )
        raise ConfigError.expected(f"consent before {where} imports {path}", "none", remedy)


def resolved(path: str, where: str = "model", *, needs: type = object) -> type:
    """Import the class that a path names, without calling it.

    Args:
        path: `package.module:Class`.
        where: Dotted path of the model's section, for messages.
        needs: Class that it must be a subclass of.

    Raises:
        ConfigError: No consent; nothing of that name; no class, or no subclass of `needs`; or a class of a module that
            was not allowed, which the allowed one merely imports.
    """
    check_allowed(path, where)
    module, _, name = path.partition(":")
    try:
        model: object = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as failure:
        raise ConfigError.expected(f"an importable {path}", failure, "is its folder on PYTHONPATH?") from None
    if not (isinstance(model, type) and issubclass(model, needs)):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        wanted = "a class" if needs is object else f"a subclass of {'nn.' * (needs is nn.Module)}{needs.__name__}"
        raise ConfigError.expected(f"{path} to be {wanted}", got)
    if not is_allowed(model.__module__):
        remedy = f"name it there and allow {model.__module__} if you trust it"
        raise ConfigError.expected(f"{path} to be defined in {module}", f"a class of {model.__module__}", remedy)
    return model


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
