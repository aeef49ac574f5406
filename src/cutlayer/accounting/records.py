"""Events as plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

from cutlayer.accounting.events import Event, GaussianRelease
from cutlayer.accounting.plan import ReleasePlan
from cutlayer.errors import ConfigError

_KINDS = {kind.__name__: kind for kind in get_args(Event)}


def event_to_json(event: Event) -> dict[str, Any]:
    """The event's fields, with `kind`."""
    return {"kind": type(event).__name__, **asdict(event)}


def event_from_json(raw: Mapping[str, Any]) -> Event:
    """Undo `event_to_json`.

    Raises:
        ConfigError: a kind that the ledger does not know, or other fields than it has.
    """
    fields = dict(raw)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise ConfigError.expected(f"an event that the ledger knows ({', '.join(_KINDS)})", kind)
    try:
        if kind == GaussianRelease.__name__:
            fields["releases"] = ReleasePlan(**fields["releases"])
        event: Event = _KINDS[kind](**fields)
    except (KeyError, TypeError) as fault:
        raise ConfigError.expected(f"the fields of {kind}", f"{fault!r}", "run the job again") from None
    return event
