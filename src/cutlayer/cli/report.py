"""`cutlayer report`: build a run's report again; every verb that runs a job ends with this report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from cutlayer.cli.app import emit, say
from cutlayer.cli.verb import verb

if TYPE_CHECKING:
    from cutlayer.results.report import Report
    from cutlayer.training.folder import RunFolder

GATE_FAILED = 1


class Purpose(StrEnum):
    """Purpose of a report, besides reading a run."""

    DPIA = "dpia"


@verb(consent=("path",))
def report(path: Path, *, markdown: bool = False, purpose: Purpose | None = None, json: bool = False) -> None:
    """Write report.json and report.html of a run and print its tables, or write its privacy card.

    Args:
        markdown: Print the report's tables as Markdown.
        purpose: dpia: write the privacy card and its annex for a data-protection impact assessment.

    Example: cutlayer report runs/job --markdown
    """
    from cutlayer.cli.passive_outcome import show_outcome
    from cutlayer.training.folder import RunFolder

    if purpose is None and RunFolder.open(path).of_passive:
        show_outcome(RunFolder.open(path), as_json=json)
        return
    if purpose is Purpose.DPIA:
        _card(RunFolder.open(path), as_json=json, as_markdown=markdown)
        return
    raise typer.Exit(finish(RunFolder.open(path), as_json=json, as_markdown=markdown))


def _card(folder: RunFolder, *, as_json: bool, as_markdown: bool) -> None:
    """Write the privacy card and its annex, and show who could learn what."""
    from cutlayer.report.card import annex_markdown, build_card, write_card
    from cutlayer.report.rounding import plain

    with folder.locked("a report"):
        card = build_card(folder.path)
        paths = write_card(card, folder.path)
    if as_json:
        emit(card.model_dump(mode="json"))
        return
    if as_markdown:
        sys.stdout.write(annex_markdown(card))
        return
    console = Console()
    for sentence in (card.statement, *card.learns):
        console.print(plain(sentence), highlight=False, markup=False)
    blanks = sum(field.value is None for field in card.fields)
    say(f"{blanks} fields are blank: for the controller", *(f"{kind:<9}{path}" for kind, path in paths.items()))


def finish(
    folder: RunFolder,
    *,
    as_json: bool,
    as_markdown: bool = False,
    show: Callable[[Report, Console], None] | None = None,
) -> int:
    """Write the report's files into the run folder and show it.

    Args:
        folder: The run folder.
        as_json: Whether to print the report as JSON.
        as_markdown: Whether to print its tables as Markdown.
        show: Prints the report otherwise; `None` prints every table.

    Returns:
        The exit code: 1 where a gate failed, or a guarantee that was tested does not hold.
    """
    from cutlayer.report.markdown import render_markdown
    from cutlayer.report.terminal import print_report

    with folder.locked("a report"):
        result = write_report(folder.path)
    if as_json:
        emit(result.model_dump(mode="json"))
    elif as_markdown:
        sys.stdout.write(render_markdown(result))
    else:
        (show or print_report)(result, Console())
    return GATE_FAILED if result.failed else 0


def write_report(path: Path) -> Report:
    """Build the report of a run folder: `report.json`, `report.html` and, where there are gates, `gates.xml`."""
    from cutlayer.report.build import build
    from cutlayer.report.html import write_html
    from cutlayer.report.junit import write_junit

    result = build(path)
    result.write(path / "report.json")
    write_html(result, path / "report.html")
    if result.gates:
        write_junit(result, path / "gates.xml")
    return result
