"""Import of the classes that users name for models, each with consent."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from cutlayer.consent import DOTTED_NAME, NAME, check_allowed, is_allowed
from cutlayer.errors import ConfigError
from cutlayer.lazy import nn

IMPORTED_KINDS = ("python", "sklearn")
"""Kinds of models whose class a section names."""


def _class_path(path: str) -> str:
    module, _, name = path.partition(":")
    if not (re.fullmatch(DOTTED_NAME, module) and re.fullmatch(NAME, name)):
        raise ValueError("a path as package.module:Class")
    return path


ClassPath = Annotated[str, AfterValidator(_class_path)]
"""A class as `package.module:Class`."""


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
