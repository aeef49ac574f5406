"""Every key of a job, of a private file and of a model's section, with odd values for its type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

Key = tuple[str, ...]
PATHS = ("{outside}/bait.csv", "{outside}/new", "/dev/zero")
ADDRESSES = (
    "http://127.0.0.1:{trap}",
    "postgresql+psycopg://reader@127.0.0.1:{trap}/bank",
    "sqlite:///{outside}/bait.db",
    "sqlite:///file:{outside}/bait.db?mode=rw&uri=true",
    "sqlite:///{outside}/made.db",
    "mysql://127.0.0.1:{trap}/bank",
    "127.0.0.1:{trap}",
)
TEXTS = ("../../outside/bait", "\x1b[2Jx", "x" * 100_000, "hostile_model:Model", "this:Model")
NUMBERS = (10**15, -1, 1e308)
NAMES = tuple(f"c{number}x1..c{number}x100000" for number in range(30))
NEEDED: Mapping[str, Mapping[str, Any]] = {"url": {"path": "telco.sql"}, "arrays": {"path": "telco.npz"}}
"""Keys without which another one of their section is refused before it is read."""
SHORT = {"table": "path", "id": "column"}
"""The key of a section that a text alone stands for."""


def keys_of(
    model: type[BaseModel], names: Mapping[str, tuple[str, ...]], at: Key = ()
) -> Iterator[tuple[Key, set[Any]]]:
    """Every key of a section, with the types that its value may have.

    Args:
        model: The section.
        names: Names of the entries of a mapping of sections, by its key.
        at: Keys above the section.
    """
    for name, field in model.model_fields.items():
        kinds = set(_kinds(field.annotation))
        yield (*at, name), kinds
        for section in (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)):
            for entry in names.get(name, ("",)):
                yield from keys_of(section, names, (*at, name, entry) if entry else (*at, name))


def _kinds(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _kinds(part)
    elif origin is not None and origin is not Literal:
        yield tuple if issubclass(origin, tuple) else dict
        for part in get_args(annotation):
            yield from _kinds(part)
    elif annotation not in (NoneType, Ellipsis):
        yield annotation


def values_of(name: str, kinds: set[Any]) -> Iterator[tuple[Any, bool]]:
    """Odd values for a key of these types, and whether each names something outside of the file's folder."""
    if Path in kinds or any(isinstance(kind, type) and "path" in getattr(kind, "model_fields", ()) for kind in kinds):
        yield from ((path, True) for path in PATHS)
    if str in kinds:
        reaches = name in ("url", "mlflow", "address", "listen", "metrics") or Path in kinds
        yield from ((address, True) for address in ADDRESSES if reaches)
        yield from ((text, text.startswith(("hostile", "this"))) for text in TEXTS)
    if int in kinds or float in kinds:
        yield from ((number, False) for number in NUMBERS)
    if tuple in kinds:
        yield NAMES, False
    if dict in kinds:
        yield {"kind": "python", "path": "hostile_model:Model"}, True
        yield {f"name{number}": {} for number in range(5000)}, False


def with_value(raw: Mapping[str, Any], key: Key, value: Any) -> dict[str, Any]:
    """A copy of nested mappings with one value changed, and with what must stand beside it."""
    first, *rest = key
    if not rest:
        return {**raw, **NEEDED.get(first, {}), first: value}
    inner = raw.get(first)
    inner = {SHORT[first]: inner} if first in SHORT and isinstance(inner, str) else inner
    return {**raw, first: with_value(inner if isinstance(inner, Mapping) else {}, tuple(rest), value)}
