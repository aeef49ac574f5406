"""`cutlayer list`: the registered protections, attacks and models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cutlayer.cli.app import print_json
from cutlayer.cli.verb import verb

if TYPE_CHECKING:
    from pydantic import BaseModel

    from cutlayer.attacks.base import Attack
    from cutlayer.plugins import Registry

K = TypeVar("K")


class Catalogue(StrEnum):
    """Kinds of things to list."""

    PROTECTIONS = "protections"
    ATTACKS = "attacks"
    MODELS = "models"


@verb("list", consent=("model",))
def list_(what: Catalogue, *, json: bool = False) -> None:
    """List the protections, attacks or models that a job may name, those of installed plugins too.

    Args:
        what: The catalogue to list.

    Example: cutlayer list protections
    """
    found = list(entries(what))
    if json:
        print_json(found)
        return
    console = Console()
    for entry in found:
        console.print(Text(entry.pop("name"), "bold"))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        for key, value in entry.items():
            if isinstance(value, dict):
                value = [f"{name} ({default})" for name, default in value.items()]
            text = ", ".join(value) if isinstance(value, list) else str(value)
            grid.add_row(key, Text(text or "none"))
        console.print(Padding(grid, (0, 0, 0, 2)))


def _when(attack: type[Attack[Any, Any]]) -> str:
    """When the audit runs an attack, and so what it costs."""
    from cutlayer.attacks.label.base import LabelAttack
    from cutlayer.attacks.label.history import HistoryAttack

    if issubclass(attack, LabelAttack):
        return "in every epoch, on sampled steps"
    if issubclass(attack, HistoryAttack):
        return "after the run, on the messages of the followed rows in every epoch"
    if attack.live:
        return "after the run, on what a party released once"
    return "after the run, by training models"


def entries(what: Catalogue) -> Iterator[dict[str, Any]]:
    """Entries of a catalogue, each with its name, description and properties."""
    if what is Catalogue.PROTECTIONS:
        return _protections()
    return _attacks() if what is Catalogue.ATTACKS else _models()


def _protections() -> Iterator[dict[str, Any]]:
    from cutlayer.protections import REGISTRY

    for name, protection in _with_plugins(REGISTRY):
        if isinstance(protection, str):
            yield {"name": name, "plugin": protection}
            continue
        sides = {"side": str(protection.side), "protects": str(protection.protects)}
        settings = {"tasks": sorted(protection.tasks), "settings": _settings(protection.config)}
        source = {"reference": protection.reference, **_origin(REGISTRY, name)}
        yield {"name": name, **_does(protection), **sides, **settings, **source}


def _attacks() -> Iterator[dict[str, Any]]:
    from cutlayer.attacks import REGISTRY
    from cutlayer.attacks.knowledge import in_words

    for name, attack in _with_plugins(REGISTRY):
        if isinstance(attack, str):
            yield {"name": name, "plugin": attack}
            continue
        known = {"reads": [str(target) for target in attack.reads], "knows": sorted(in_words(attack.needs))}
        catalogue = "auto, full" if attack.live else "full" if attack.thorough else "none; name it"
        if attack.graded and not attack.live:
            catalogue = "auto, full (of a party that releases grades)"
        catalogue += "".join(f", auto in a {kind}" for kind in sorted(attack.live_tasks))
        catalogue += " (on messages that no other attack reads whole)" * attack.costly
        audited = {"catalogue": catalogue, "runs": _when(attack)}
        tasks = {"tasks": sorted(attack.tasks), "reference": attack.reference}
        yield {"name": name, **_does(attack), **known, **audited, **tasks, **_origin(REGISTRY, name)}


def _with_plugins(registry: Registry[K]) -> Iterator[tuple[str, K | str]]:
    """Cutlayer's own by name, then the plugins: what may not be imported as its description."""
    yield from sorted(registry.items())
    for name, text in registry.plugins().items():
        yield name, registry[name] if registry.origin(name) and name in registry else text


def _origin(registry: Registry[K], name: str) -> dict[str, str]:
    return {"plugin": registry.plugins()[name]} if registry.origin(name) else {}


def _models() -> Iterator[dict[str, Any]]:
    from cutlayer.models import BOTTOMS, TOPS

    for side, kinds in (("bottom", BOTTOMS), ("top", TOPS)):
        for name, model in kinds.items():
            settings = {key: value for key, value in _settings(model.config).items() if key != "kind"}
            yield {"name": name, **_does(model.config), "place": side, "settings": settings}


def _does(kind: type[object]) -> dict[str, str]:
    """Description of a class: the first paragraph of its docstring."""
    return {"description": " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())}


def _settings(config: type[BaseModel]) -> dict[str, str]:
    """Each setting with its default, or `required`."""
    fields = config.model_fields.items()
    return {
        key: "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        for key, field in fields
    }


def _default(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
