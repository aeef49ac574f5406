"""Errors in the words of a notebook: arguments of an estimator instead of keys of a job file."""

from __future__ import annotations

import inspect
import re
from functools import wraps
from typing import Any, TypeVar

from cutlayer.config import near_miss
from cutlayer.errors import ConfigError
from cutlayer.estimator.job import KEYS
from cutlayer.estimator.privacy import CONFIGS
from cutlayer.estimator.tables import EVENT, EXPOSURE, LABEL, WEIGHT

_E = TypeVar("_E")
_ARGUMENTS = {key: argument for argument, key in KEYS.items()}
"""Arguments by the key of a job that they set."""
_OF_PARTIES = {"features": "features", "fit": "bottom_fit", "privacy": "protections"}
"""Arguments that have settings by party, by the key of a party."""
_KEY = re.compile(rf"(?<![\w.])(\w+\.)?({'|'.join(map(re.escape, _ARGUMENTS))})(?!\w)")
_PARTY_KEY = re.compile(rf"(?<![\w.])(\w+\.)?parties\.([\w-]+)\.({'|'.join(_OF_PARTIES)})(?!\w)")
_PARTY = re.compile(
    r"(?<![\w.])(\w+\.)?parties\.[\w-]+\.(?:audit\.(attacks)|(serving)|(coverage|exposure|event))(?!\w)"
)
_FIT = re.compile(r"(?<![\w.])fit\.(?=[a-z])")
_PRIVACY = re.compile(rf"(?<![\w.])privacy: \{{({'|'.join(CONFIGS)}): \{{([\w.:, ]*)\}}\}}")
"""A protection as a job has it, which is an object here."""
_QUOTED = re.compile(r"('[^'\n]*')")


class ArgumentError(ConfigError, TypeError):
    """An argument that an estimator does not have; a `TypeError` too, as Python's own."""


def arguments_named(text: str) -> str:
    """An error of a parameter, with arguments where it names keys of a job; what it quotes stays as it is.

    Args:
        text: The error.

    >>> arguments_named("VerticalClassifier.train.epochs: expected 'auto', got 'train.epochs'")
    "VerticalClassifier.epochs: expected 'auto', got 'train.epochs'"
    >>> arguments_named("VerticalClassifier.parties.bank.features.categorical: expected a list")
    'VerticalClassifier.features.bank.categorical: expected a list'
    >>> arguments_named("raise fit.limits, or write privacy: {label_dp: {eps: 1.0}}")
    'raise bottom_fit[party].limits, or write protections: [LabelDPConfig(eps=1.0)]'
    """
    # Quoted are values and names of columns, which may be those of keys.
    return "".join(part if part.startswith("'") else _renamed(part) for part in _QUOTED.split(text))


def _renamed(text: str) -> str:
    text = _PARTY_KEY.sub(lambda key: f"{key[1] or ''}{_OF_PARTIES[key[3]]}.{key[2]}", text)
    text = _FIT.sub("bottom_fit[party].", _PRIVACY.sub(_as_object, text))
    text = _PARTY.sub(lambda key: f"{key[1] or ''}{key[4] or ('attacks' if key[2] else 'predictions')}", text)
    return _KEY.sub(lambda key: (key[1] or "") + _ARGUMENTS[key[2]], text)


def _as_object(protection: re.Match[str]) -> str:
    return f"protections: [{CONFIGS[protection[1]].__name__}({protection[2].replace(': ', '=')})]"


def columns_named(text: str, active: str) -> str:
    """An error of data, with `y` and `sample_weight` where it names the columns that an estimator adds for them.

    Args:
        text: The error.
        active: Name of the active party.

    >>> columns_named("party bank: label 'label': expected different labels, got 1 in all rows", "bank")
    'y: expected different labels, got 1 in all rows'
    """
    for column, argument in ((LABEL, "y"), (WEIGHT, "sample_weight"), (EXPOSURE, EXPOSURE), (EVENT, EVENT)):
        text = re.sub(rf"party {re.escape(active)}[^:\n]*: (?:{column} )?'{column}'", argument, text)
    return text


def refuse_unknown(estimator: type[_E]) -> type[_E]:
    """Have a class name itself and a similar argument where it is given one that it does not have."""
    init: Any = estimator.__init__
    known = [*inspect.signature(init).parameters][1:]

    @wraps(init)
    def checked(*given: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise ArgumentError(f"{type(given[0]).__name__}: no argument {name!r}{near_miss(name, known)}")
        init(*given, **named)

    estimator.__init__ = checked  # type: ignore[method-assign]
    return estimator
