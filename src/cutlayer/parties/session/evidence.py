"""A passive party's evidence about its protections, as it is sent to the active party and reported."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from cutlayer.accounting.events import MAX_COUNT
from cutlayer.config import FrozenModel
from cutlayer.errors import ProtocolError
from cutlayer.kernels.noise.score_bands import MIN_EPSILON, lower_epsilons
from cutlayer.plugins import is_plugin_name
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Evidence, Side
from cutlayer.protections.contract.coverage import HOOK_OF, UNITS
from cutlayer.protections.grade_dp import GradeDP

MAX_METRICS = 64
MAX_NAME_LENGTH = 64
MAX_STATEMENTS = 64
COUNTED_METRICS = ("releases", "row_steps")
"""Metrics from which the ledger states a cost, each with `_planned` and `_allowed`."""


def _metric_name(name: str) -> str:
    if not (0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()):
        raise ValueError(f"a metric's name of 1 to {MAX_NAME_LENGTH} printable characters")
    return name


def _passive_protection(name: str) -> str:
    own = dict(REGISTRY).get(name)  # what it names is not imported for it: only the sender may have the plugin
    if (own is None and not is_plugin_name(name)) or (own is not None and own.side != Side.PASSIVE):
        raise ValueError("a protection that passive parties have")
    return name


def _unit(name: str) -> str:
    if name not in UNITS.values():
        raise ValueError(f"{', '.join(sorted(set(UNITS.values())))}")
    return name


def _message_kind(name: str) -> str:
    if name not in [kind.value for kind in HOOK_OF]:
        raise ValueError("a kind of message that a protection makes")
    return name


Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class _Statement(FrozenModel):
    """An entry of received evidence: exactly the fields of the report, with finite numbers."""

    protection: Annotated[str, AfterValidator(_passive_protection)]
    party: Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
    unit: Annotated[str, AfterValidator(_unit)]
    covered: Count
    sent: Count
    changed: Count
    metrics: Annotated[dict[Annotated[str, AfterValidator(_metric_name)], float], Field(max_length=MAX_METRICS)]
    kinds: Annotated[dict[Annotated[str, AfterValidator(_message_kind)], Count], Field(max_length=len(HOOK_OF))]


_STATEMENTS: TypeAdapter[list[_Statement]] = TypeAdapter(Annotated[list[_Statement], Field(max_length=MAX_STATEMENTS)])


def evidence_text(evidence: Iterable[Evidence]) -> str:
    """A passive party's evidence as strict JSON, without metrics that are not finite."""
    stated = [asdict(item) for item in evidence]
    for item in stated:
        item["metrics"] = {name: value for name, value in item["metrics"].items() if math.isfinite(value)}
    return json.dumps(stated, allow_nan=False)


def parse_evidence(text: str, party: str) -> list[Evidence]:
    """Parse a passive party's evidence, which is untrusted data.

    What passes here can be reported: the report is written after the whole training, too late to refuse anything.

    Args:
        text: JSON from the party.
        party: Name of the sender; a name in the text is ignored.

    Raises:
        ProtocolError: It has another form, is out of range, or an honest party could not have sent it.
    """
    try:
        stated = _STATEMENTS.validate_json(text)
    except ValidationError as mismatch:
        wrong = mismatch.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, wrong["loc"]))[:MAX_NAME_LENGTH]
        reason = f"{where}: {wrong['msg']}" if where.isprintable() else str(wrong["msg"])
        raise ProtocolError(f"{party} sent evidence of another form: {reason[:200]}") from None
    names = [item.protection for item in stated]
    if len(set(names)) != len(names):
        raise ProtocolError.expected(f"evidence of {party} with each protection once", "one twice")
    for item in stated:
        if not item.changed <= item.covered or not item.sent <= item.covered:
            got = f"{item.covered} covered, {item.sent} sent, {item.changed} changed"
            wanted = f"evidence of {party} that {item.protection} covered all that was sent, and more than it changed"
            raise ProtocolError.expected(wanted, got, "a party that misses some stops its run by itself")
        _check_counts(item, party)
        _check_epsilon(item, party)
    return [Evidence(**{**dict(item), "party": party}) for item in stated]


def parse_all_evidence(texts: Mapping[str, str]) -> list[Evidence]:
    """The evidence of all passive parties, from what each stated, by name; see `parse_evidence`."""
    return [item for party, text in texts.items() for item in parse_evidence(text, party)]


def _check_epsilon(item: _Statement, party: str) -> None:
    """Refuse an epsilon of grades that no party lowers its own to."""
    epsilon = item.metrics.get("epsilon")
    public = lower_epsilons(math.inf, MIN_EPSILON)
    if item.protection == GradeDP.name and epsilon is not None and epsilon not in public:
        wanted = f"evidence of {party} with an epsilon that grades are lowered to"
        raise ProtocolError.expected(f"{wanted}, {' or '.join(f'{each:g}' for each in public)}", f"{epsilon:g}")


def _check_counts(item: _Statement, party: str) -> None:
    """Refuse a count without its limits, or out of range: the ledger uses both."""
    for name in COUNTED_METRICS:
        counts = [item.metrics.get(f"{name}{limit}") for limit in ("", "_planned", "_allowed")]
        if counts == [None] * 3:
            continue
        if any(count is None or not 0 <= count <= MAX_COUNT or count != int(count) for count in counts):
            wanted = f"evidence of {party} with {name}, {name}_planned and {name}_allowed, whole and from 0 to 2**53"
            raise ProtocolError.expected(wanted, counts)
