"""`cutlayer report`: build a run's report again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.cli.app import Json, app
from cutlayer.cli.show import finish
from cutlayer.training.folder import RunFolder

RunPath = Annotated[Path, typer.Argument(help="The run folder.", show_default=False)]


Markdown = Annotated[bool, typer.Option("--markdown", help="Print the report's tables as Markdown.")]


@app.command()
def report(path: RunPath, markdown: Markdown = False, json: Json = False) -> None:
    """Write report.json and report.html of a run, and show it."""
    raise typer.Exit(finish(RunFolder.open(path), as_json=json, as_markdown=markdown))
