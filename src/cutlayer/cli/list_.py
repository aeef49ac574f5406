"""`cutlayer list`: the registered protections, attacks and models."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.cli.app import Json, app, emit
from cutlayer.models import BOTTOMS, TOPS
from cutlayer.protections import REGISTRY as PROTECTIONS


class Catalogue(StrEnum):
    """What can be listed."""

    PROTECTIONS = "protections"
    ATTACKS = "attacks"
    MODELS = "models"


@app.command(name="list")
def list_(what: Annotated[Catalogue, typer.Argument(help="Which catalogue.")], json: Json = False) -> None:
    """List what can be named in a job."""
    rows = _ROWS[what]()
    if json:
        emit(rows)
        return
    console = Console()
    for row in rows:
        console.print(Text(row.pop("name"), "bold"))
        console.print(Padding(_details(row), (0, 0, 0, 2)))


def _details(row: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    for key, value in row.items():
        told = ", ".join(value) if isinstance(value, list) else str(value)
        table.add_row(key, Text(told or "none"))
    return table


def _protections() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "side": str(kind.side),
            "protects": str(kind.protects),
            "tasks": sorted(kind.tasks),
            "settings": list(kind.config.model_fields),
            "reference": kind.reference,
        }
        for name, kind in sorted(PROTECTIONS.items())
    ]


def _attacks() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "reads": [str(target) for target in kind.reads],
            "knows": sorted(kind.needs),
            "tasks": sorted(kind.tasks),
            "reference": kind.reference,
        }
        for name, kind in sorted(ATTACKS.items())
    ]


def _models() -> list[dict[str, Any]]:
    return [
        {"name": name, "place": place, "settings": [key for key in kind.config.model_fields if key != "kind"]}
        for place, kinds in (("bottom", BOTTOMS), ("top", TOPS))
        for name, kind in kinds.items()
    ]


_ROWS = {Catalogue.PROTECTIONS: _protections, Catalogue.ATTACKS: _attacks, Catalogue.MODELS: _models}
