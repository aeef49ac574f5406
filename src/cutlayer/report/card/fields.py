"""Fields of a privacy card, those of `fields.yaml`, filled from a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cutlayer.config.load import read_yaml
from cutlayer.results.privacy_card import CardField, Origin

_CONTENT: dict[str, Any] = read_yaml(Path(__file__).with_name("fields.yaml"))
NOT_SHOWN = tuple(_CONTENT["not_shown"])
ROWS_FORGOTTEN = (
    "Rows of {party} were forgotten before this training. Decisions by earlier predictions, what others learned and "
    "copies are not undone; cutlayer ledger lists the receipts."
)


def fields_of(facts: SimpleNamespace) -> tuple[CardField, ...]:
    """All fields of the frameworks, blanks included."""
    fields = []
    for framework, groups in _CONTENT["frameworks"].items():
        for group, entries in groups.items():
            for name, answer in entries.items():
                value, origin = _answered(answer, facts)
                fields.append(CardField(framework=framework, group=group, name=name, value=value, origin=origin))
    return tuple(fields)


def _answered(answer: dict[Origin, str] | None, facts: SimpleNamespace) -> tuple[str | None, Origin]:
    for origin, template in (answer or {}).items():
        if text := template.format(facts=facts):
            return text, origin
    return None, "for the controller"


def registry_of(facts: SimpleNamespace) -> dict[str, dict[str, str | None]]:
    """An entry of the Differential Privacy Deployments Registry, by its three tiers."""
    return {
        tier: {name: template and template.format(facts=facts) for name, template in entries.items()}
        for tier, entries in _CONTENT["registry"].items()
    }
