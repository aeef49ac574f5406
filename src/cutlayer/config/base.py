"""The base of frozen models: sections of a job, encoders, results; and their validation with a helpful error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar, get_origin

from pydantic import VERSION, BaseModel, ConfigDict, ValidationError, model_validator

from cutlayer.config.names import FOLDER
from cutlayer.config.wording import near_miss, sentences
from cutlayer.errors import ConfigError

_BUILT_ON_FIRST_USE = tuple(map(int, VERSION.split(".")[:2])) >= (2, 14)
"""Whether pydantic may build a model when it is first used, of which two threads could be in each other's way before.

A verb uses few of the models that it imports, and to build all takes about a twentieth of a small check.
"""


class FrozenModel(BaseModel):
    """A frozen, keyword-only record of plain values. Unknown keys are errors; an empty section is one without keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True, defer_build=_BUILT_ON_FIRST_USE
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, raw: Any) -> Any:
        """Read a section whose lines are all commented out as an empty section."""
        if not isinstance(raw, Mapping) or all(value is not None for value in raw.values()):
            return raw
        return {key: value for key, value in raw.items() if value is not None or not cls._holds_keys(key)}

    def _faults(self) -> Iterator[str]:
        """Yield the conflicts between keys of the section, each worded as "WANTED, got GOT; REMEDY".

        A section overrides it with the rules between its keys. Validation raises a `ValueError` of the first one.
        """
        return iter(())

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if (fault := next(self._faults(), None)) is not None:
            raise ValueError(fault)
        return self

    @classmethod
    def _holds_keys(cls, name: object) -> bool:
        kind = cls.model_fields[name].annotation if name in cls.model_fields else None
        return get_origin(kind) is Mapping or (isinstance(kind, type) and issubclass(kind, FrozenModel))


S = TypeVar("S", bound=BaseModel)
K = TypeVar("K")


def registered(registry: Mapping[str, K], raw: Mapping[str, Any], where: str) -> K:
    """The entry of a registry that the key `kind` of a section names.

    Raises:
        ConfigError: Unknown kind; names a near miss where there is one.
    """
    name = raw.get("kind")
    if not isinstance(name, str) or name not in registry:
        raise ConfigError(f"{where}.kind: unknown kind {name!r:.40}{near_miss(str(name), list(registry))}")
    return registry[name]


def validated(section: type[S], raw: object, where: str, folder: Path | None = None) -> S:
    """Turn a mapping into `section`, or raise an error with a sentence per fault.

    Args:
        section: Pydantic model that reads the mapping.
        raw: Mapping that the user wrote; `None` counts as an empty one.
        where: Dotted path of the mapping in the file, for the message.
        folder: Folder of the file, which relative paths in it start from; `None` leaves them as they are.

    Raises:
        ConfigError: Names the key, what was expected, what came, and a near miss where there is one.

    >>> class Noise(FrozenModel):
    ...     scale: float
    >>> validated(Noise, {"scal": 1.0}, "privacy.noise")
    Traceback (most recent call last):
    ...
    cutlayer.errors.ConfigError: privacy.noise.scal: unknown key; did you mean 'scale'?
    privacy.noise.scale: missing
    """
    try:
        return section.model_validate({} if raw is None else raw, context={FOLDER: folder})
    except ValidationError as failure:
        raise ConfigError("\n".join(sentences(section, raw, where, failure.errors()))) from None
