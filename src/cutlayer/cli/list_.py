"""`cutlayer list`: the registered protections, attacks and models."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cutlayer.cli.app import Json, app, emit

if TYPE_CHECKING:
    from cutlayer.attacks import Attack


class Catalogue(StrEnum):
    """Kinds of things to list."""

    PROTECTIONS = "protections"
    ATTACKS = "attacks"
    MODELS = "models"


@app.command(name="list")
def list_(what: Annotated[Catalogue, typer.Argument(help="Which catalogue.")], json: Json = False) -> None:
    """List what can be named in a job."""
    entries = list(_entries(what))
    if json:
        emit(entries)
        return
    console = Console()
    for entry in entries:
        console.print(Text(entry.pop("name"), "bold"))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        for key, value in entry.items():
            text = ", ".join(value) if isinstance(value, list) else str(value)
            grid.add_row(key, Text(text or "none"))
        console.print(Padding(grid, (0, 0, 0, 2)))


def _when(attack: type[Attack[Any, Any]]) -> str:
    """When the audit runs an attack, and so what it costs."""
    from cutlayer.attacks import HistoryAttack, LabelAttack

    if issubclass(attack, LabelAttack):
        return "in every epoch, on sampled steps"
    if issubclass(attack, HistoryAttack):
        return "after the run, on the messages of the followed rows in every epoch"
    return "after the run, by training models"


def _entries(what: Catalogue) -> Iterator[dict[str, Any]]:
    from cutlayer.attacks import REGISTRY as ATTACKS
    from cutlayer.models import BOTTOMS, TOPS
    from cutlayer.protections import REGISTRY as PROTECTIONS

    if what is Catalogue.PROTECTIONS:
        for name, protection in sorted(PROTECTIONS.items()):
            sides = {"side": str(protection.side), "protects": str(protection.protects)}
            settings = {"tasks": sorted(protection.tasks), "settings": list(protection.config.model_fields)}
            yield {"name": name, **sides, **settings, "reference": protection.reference}
    elif what is Catalogue.ATTACKS:
        for name, attack in sorted(ATTACKS.items()):
            known = {"reads": [str(target) for target in attack.reads], "knows": sorted(attack.needs)}
            catalogue = "auto, full" if attack.live else "full" if attack.thorough else "none; name it"
            audited = {"catalogue": catalogue, "runs": _when(attack)}
            yield {"name": name, **known, **audited, "tasks": sorted(attack.tasks), "reference": attack.reference}
    else:
        for side, kinds in (("bottom", BOTTOMS), ("top", TOPS)):
            for name, model in kinds.items():
                keys = [key for key in model.config.model_fields if key != "kind"]
                yield {"name": name, "place": side, "settings": keys}
