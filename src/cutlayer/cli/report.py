"""`cutlayer report`: build a run's report again; every verb that runs a job ends with this report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cutlayer.cli.app import Json, app, emit

if TYPE_CHECKING:
    from cutlayer.report import Report
    from cutlayer.training.folder import RunFolder

GATE_FAILED = 1

RunPath = Annotated[Path, typer.Argument(help="The run folder.", show_default=False)]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the report's tables as Markdown.")]


@app.command()
def report(path: RunPath, markdown: Markdown = False, json: Json = False) -> None:
    """Write report.json and report.html of a run, and show it."""
    from cutlayer.training.folder import RunFolder

    raise typer.Exit(finish(RunFolder.open(path), as_json=json, as_markdown=markdown))


def finish(folder: RunFolder, *, as_json: bool, as_markdown: bool = False) -> int:
    """Write the report's files into the run folder and show it.

    Returns:
        The exit code: 1 where a gate failed, or a guarantee that was tested does not hold.
    """
    from cutlayer.report import print_report, render_markdown

    with folder.locked("a report"):
        result = write_report(folder.path)
    if as_json:
        emit(result.model_dump(mode="json"))
    elif as_markdown:
        sys.stdout.write(render_markdown(result))
    else:
        print_report(result, Console())
    return GATE_FAILED if result.failed else 0


def write_report(path: Path) -> Report:
    """Build the report of a run folder: `report.json`, `report.html` and, where there are gates, `gates.xml`."""
    from cutlayer.report import write_html, write_junit
    from cutlayer.report.build import build

    result = build(path)
    result.write(path / "report.json")
    write_html(result, path / "report.html")
    if result.gates:
        write_junit(result, path / "gates.xml")
    return result
