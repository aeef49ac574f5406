"""Events as plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from cutlayer.accounting.events import Event, GaussianRelease
from cutlayer.accounting.plan import ReleasePlan
from cutlayer.errors import ConfigError

_KINDS = {kind.__name__: kind for kind in get_args(Event)}


def event_to_json(event: Event) -> dict[str, Any]:
    """The event's fields, with `kind`."""
    return {"kind": type(event).__name__, **asdict(event)}


def event_from_json(raw: Any) -> Event:
    """Invert `event_to_json`.

    Raises:
        ConfigError: A kind that the ledger does not know, other fields than it has, or other values than they take.
    """
    fields: dict[str, Any] = dict(raw) if isinstance(raw, Mapping) else {"kind": type(raw).__name__}
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigError.expected(f"an event that the ledger knows ({', '.join(_KINDS)})", kind)
    try:
        if kind == GaussianRelease.__name__:
            fields["releases"] = ReleasePlan(**fields["releases"])
        # Made twice: the constructor refuses fields that the event lacks, the adapter values of other types.
        event: Event = _adapter(kind).validate_python(asdict(_KINDS[kind](**fields)))
    except ValidationError as failure:
        fault = failure.errors()[0]
        got = f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        raise ConfigError.expected(f"the fields of {kind}", got, "run the job again") from None
    except (KeyError, TypeError) as failure:
        raise ConfigError.expected(f"the fields of {kind}", f"{failure!r}", "run the job again") from None
    return event


@cache  # to make one takes longer than to read a hundred events
def _adapter(kind: str) -> TypeAdapter[Event]:
    return TypeAdapter(_KINDS[kind])
