"""Check of an archive of skops: arrays, plain values and objects of estimators' classes, but no function.

skops reads more: functions, methods, matrices that are packed, and every name that its caller trusts.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from cutlayer.consent import is_allowed
from cutlayer.errors import ConfigError
from cutlayer.storage.json_values import parse_json

_SCHEMA = "schema.json"
_REMEDY = "take kind boosting or a forest; or, for a class of your own, allow its module by --allow-model"
_NPY = b"\x93NUMPY"
_PLAIN = {
    "DictNode": ("builtins.dict",),
    "ListNode": ("builtins.list",),
    "TupleNode": ("builtins.tuple",),
    "JsonNode": ("builtins.str",),
    "NdArrayNode": ("numpy.ndarray",),
    "TypeNode": ("builtins.str", "builtins.int", "builtins.float", "builtins.bool"),
    "RandomStateNode": ("numpy.random.mtrand.RandomState",),
}
"""Types by the loader of a node, where these are all that it may make, besides types of numbers."""
_LOSSES = ("sklearn._loss._loss", "sklearn.linear_model._sgd_fast")
_PARTS = (
    "sklearn._loss.link",
    "sklearn._loss.loss",
    "sklearn.gaussian_process.kernels",
    "sklearn.neural_network._stochastic_optimizers",
)
"""Modules with parts of the estimators below."""
_ESTIMATORS = (
    "sklearn.cross_decomposition.",
    "sklearn.discriminant_analysis.",
    "sklearn.dummy.",
    "sklearn.gaussian_process.",
    "sklearn.kernel_ridge.",
    "sklearn.linear_model.",
    "sklearn.multiclass.",
    "sklearn.naive_bayes.",
    "sklearn.neural_network.",
    "sklearn.preprocessing._label.",
    "sklearn.svm._classes.LinearSV",
)
"""Estimators of scikit-learn that predict by NumPy. The compiled code of others follows indices of a file unchecked."""


def check_archive(content: bytes) -> None:
    """Refuse an archive with any part that a fitted estimator has no need of; nothing of it is made.

    Args:
        content: Archive as skops writes it.

    Raises:
        ConfigError: A part is of a type that is no class, is not defined where it is named, or is of a module that was
            not allowed; or the archive takes more memory than it has bytes.
        Exception: It is no archive of skops.
    """
    try:
        opened = ZipFile(io.BytesIO(content))
    except BadZipFile:
        raise ConfigError.expected(
            "a fitted estimator as it was stored", "other bytes", "train the model again"
        ) from None
    with opened as archive:
        files = archive.infolist()
        # Compressed members, and members that overlap, would take more memory than the archive has bytes.
        if any(file.compress_type != ZIP_STORED for file in files) or sum(f.file_size for f in files) > len(content):
            raise ConfigError.expected("an archive as large as its content", "one that is packed")
        arrays: dict[str, object] = {}
        for node in _nodes(parse_json(archive.read(_SCHEMA)), {}):
            module = node["__module__"]
            name = node["__class__"]
            loader = node["__loader__"]
            if not _may_be_made(loader, module, name):
                got = f"a part of type {module}.{name}"[:200]
                raise ConfigError.expected("an estimator of arrays and of classes that may be stored", got, _REMEDY)
            if "file" in node:
                with archive.open(node["file"]) as member:
                    is_array = member.read(len(_NPY)) == _NPY
                # Nodes of one id are read once.
                if not is_array or arrays.setdefault(node["file"], node["__id__"]) != node["__id__"]:
                    raise ConfigError.expected("an archive that holds each array once", node["file"][:80])


def _nodes(value: Any, known: dict[Any, Any]) -> Iterator[Mapping[str, Any]]:
    """All nodes of a schema. Of one id all are equal, since skops takes the first in place of any other."""
    if isinstance(value, dict):
        if "__loader__" in value or "__id__" in value:
            if known.setdefault(value["__id__"], value) != value:
                raise ValueError("two parts of one id")
            yield value
        for part in value.values():
            yield from _nodes(part, known)
    elif isinstance(value, list):
        for part in value:
            yield from _nodes(part, known)


def _may_be_made(loader: str, module: str, name: str) -> bool:
    path = f"{module}.{name}"
    if loader in ("NdArrayNode", "TypeNode") and module == "numpy":
        made = getattr(np, name, None)
        if isinstance(made, type) and issubclass(made, np.number | np.bool_ | np.str_):
            return True
    if loader == "LossNode":
        return module in _LOSSES and _class_of(module, name) is not None
    if loader != "ObjectNode":
        return path in _PLAIN.get(loader, ())
    if module in _PARTS:
        return _class_of(module, name) is not None
    if module.partition(".")[0] != "sklearn":
        return is_allowed(module) and _class_of(module, name) is not None
    # An import of a second, for such a model alone.
    from sklearn.base import BaseEstimator

    made = _class_of(module, name) if path.startswith(_ESTIMATORS) else None
    return made is not None and issubclass(made, BaseEstimator)


def _class_of(module: str, name: str) -> type | None:
    """The class that a module defines by a name; none if it only imports it, or if it is something else."""
    made = getattr(import_module(module), name, None)
    is_there = isinstance(made, type) and (made.__module__, made.__qualname__) == (module, name)
    return made if is_there else None
