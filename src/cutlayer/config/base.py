"""The base of every configuration section, and one way to validate it with a helpful error."""

from __future__ import annotations

import difflib
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cutlayer.errors import ConfigError


class Section(BaseModel):
    """A frozen, keyword-only part of a job file. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


S = TypeVar("S", bound=BaseModel)


def validated(section: type[S], raw: object, where: str) -> S:
    """Turn a mapping into `section`, or say in one sentence per fault what is wrong.

    Args:
        section: the pydantic model that reads the mapping.
        raw: what the user wrote; `None` counts as an empty mapping.
        where: dotted path of the mapping in the file, for the message.

    Raises:
        ConfigError: names the key, what was expected, what came, and a near miss where there is one.

    >>> class Noise(Section):
    ...     scale: float
    >>> validated(Noise, {"scal": 1.0}, "privacy.noise")
    Traceback (most recent call last):
    ...
    cutlayer.errors.ConfigError: privacy.noise.scal: unknown key; did you mean 'scale'?
    privacy.noise.scale: missing
    """
    try:
        return section.model_validate({} if raw is None else raw)
    except ValidationError as failure:
        faults = sorted(failure.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        lines = [_sentence(section, raw, where, fault) for fault in faults]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None


def near_miss(word: str, known: list[str]) -> str:
    """Return `; did you mean ...?`, or the list of what is known.

    >>> near_miss("marvel", ["marvell", "max_norm"])
    "; did you mean 'marvell'?"
    """
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(sorted(known))}" if known else ""


def _sentence(section: type[BaseModel], raw: object, where: str, fault: Any) -> str:
    path = [str(part) for part in fault["loc"]]
    place = ".".join([where, *path]) if where else ".".join(path)
    if fault["type"] == "extra_forbidden":
        return f"{place}: unknown key{near_miss(path[-1], _keys_at(section, path[:-1]))}"
    if fault["type"] == "missing":
        return f"{place}: missing"
    got = _value_at(raw, list(fault["loc"]))
    message = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{place}: expected {message}, got {got!r}" if message != fault["msg"] else f"{place}: {message}"


def _value_at(raw: object, path: list[int | str]) -> object:
    for part in path:
        if isinstance(raw, dict):
            raw = raw.get(part, raw)
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
    return raw


def _keys_at(section: type[BaseModel], path: list[str]) -> list[str]:
    """Known keys of the (nested) section that `path` leads to."""
    for part in path:
        inner = section.model_fields.get(part)
        found = _sections_in(inner.annotation) if inner else _sections_in(section)
        if not found:
            return list(section.model_fields)
        section = found[0]
    return list(section.model_fields)


def _sections_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in _sections_in(argument)]
