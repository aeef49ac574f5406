"""`cutlayer list`: the registered protections, attacks and models."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

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
    table = Table(*rows[0].keys(), box=None)
    for row in rows:
        table.add_row(*(", ".join(value) if isinstance(value, list) else str(value) for value in row.values()))
    Console().print(table)


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
