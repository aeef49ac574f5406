"""Imports at the first use: the names of a package, and PyTorch.

A file that states something, such as the settings of a defence or what an attack needs, takes PyTorch from here:

    from cutlayer.lazy import Tensor, torch

Importing the file then does not load PyTorch, which takes longer than to read a job. A subclass of `Module` from here
is one of `nn.Module` from its first instance on. What else PyTorch defines, such as a subclass of `autograd.Function`,
is in a file that is imported where it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
    from torch import nn as nn
    from torch.nn import Module as Module
    from torch.nn import functional as functional
else:

    class _OnFirstUse:
        """Stands for a module, and imports it when an attribute is read."""

        __slots__ = ("__dict__", "_name")

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            module = import_module(self._name)
            # A training step reads a hundred names, which are found here from now on as they are in the module.
            self.__dict__ = vars(module)
            return getattr(module, name)

    class _Checked(type):
        """The type of a class that stands for `torch.Tensor` in annotations and `isinstance`."""

        def __instancecheck__(cls, value: object) -> bool:
            return "torch" in sys.modules and isinstance(value, torch.Tensor)

    class Tensor(metaclass=_Checked):
        """Stands for `torch.Tensor`."""

    class Module:
        """Stands for `nn.Module` as a base class."""

        def __new__(cls, *_args: object, **_settings: object) -> Module:
            """Make an instance of PyTorch's class, which its constructor then fills."""
            return object.__new__(_with_pytorch(cls))

        def __reduce__(self) -> tuple[Any, ...]:
            """Be copied, and pickled with a user's estimator, by the class that the file has."""
            return _blank, (type(self).__mro__[1],), self.__getstate__()

    def _blank(kind: type) -> Any:
        return kind.__new__(kind)

    @cache
    def _with_pytorch(kind: type) -> type:
        """The class of this name whose last base is `nn.Module`."""
        named = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
        return kind if issubclass(kind, nn.Module) else type(kind)(kind.__name__, (kind, nn.Module), named)

    torch, nn, functional = map(_OnFirstUse, ("torch", "torch.nn", "torch.nn.functional"))


def on_first_use(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` (PEP 562) of a package whose public names are imported on first use.

    A command line that only prints its help, or a small module of the package, then does not load the tensor library.

    Args:
        package: Name of the package, its `__name__`.
        modules: Module of each public name, relative to the package or absolute. No name may be that of a module of the
            package: importing the module would replace it.
    """

    def attribute(name: str) -> Any:
        if f".{name}" in modules.values():  # a module of the package, as if the package had imported it
            return import_module(f".{name}", package)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return attribute, names


def called_on_first_use(name: str) -> Callable[..., Any]:
    """A function that imports what it calls when it is called.

    Args:
        name: Absolute name of the module, a dot, and the name of the function or class.
    """
    module, _, attribute = name.rpartition(".")

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), attribute)(*args, **kwargs)

    return call
