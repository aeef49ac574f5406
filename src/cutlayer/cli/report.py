"""`cutlayer report`: build a run's report again; every verb that runs a job ends with this report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from cutlayer.cli.app import print_json, print_lines
from cutlayer.cli.verb import verb

if TYPE_CHECKING:
    from cutlayer.results.passive import PassiveReport
    from cutlayer.results.report import Report
    from cutlayer.training.folder import RunFolder

EXIT_GATE_FAILED = 1


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
    from cutlayer.training.folder import RunFolder

    if purpose is Purpose.DPIA:
        _card(RunFolder.open(path), as_json=json, as_markdown=markdown)
        return
    raise typer.Exit(finish(RunFolder.open(path), as_json=json, as_markdown=markdown))


def _card(folder: RunFolder, *, as_json: bool, as_markdown: bool) -> None:
    """Write the privacy card and its annex, and show who could learn what."""
    from cutlayer.report.card import annex_markdown, build_card, write_card
    from cutlayer.report.rounding import printable

    with folder.locked("a report"):
        card = build_card(folder.path)
        paths = write_card(card, folder.path)
    if as_json:
        print_json(card.model_dump(mode="json"))
        return
    if as_markdown:
        sys.stdout.write(annex_markdown(card))
        return
    console = Console()
    for sentence in (card.statement, *card.learns):
        console.print(printable(sentence), highlight=False, markup=False)
    blanks = sum(field.value is None for field in card.fields)
    print_lines(f"{blanks} fields are blank: for the controller", *(f"{kind:<9}{path}" for kind, path in paths.items()))


def finish(
    folder: RunFolder,
    *,
    as_json: bool,
    as_markdown: bool = False,
    show: Callable[[Report, Console], None] | None = None,
) -> int:
    """Write the report's files into the run folder and show it.

    Args:
        folder: The run folder; that of a passive party gets the report of its side.
        as_json: Whether to print the report as JSON.
        as_markdown: Whether to print its tables as Markdown.
        show: Prints the report otherwise; `None` prints every table.

    Returns:
        The exit code: 1 where a gate failed, or a guarantee that was tested does not hold.
    """
    if folder.is_passive:
        return _finish_passive(folder, as_json=as_json, as_markdown=as_markdown)
    from cutlayer.report.markdown import render_markdown
    from cutlayer.report.terminal import print_report

    with folder.locked("a report"):
        result = write_report(folder.path)
    if as_json:
        print_json(result.model_dump(mode="json"))
    elif as_markdown:
        sys.stdout.write(render_markdown(result))
    else:
        (show or print_report)(result, Console())
    return EXIT_GATE_FAILED if result.any_failed else 0


def _finish_passive(folder: RunFolder, *, as_json: bool, as_markdown: bool) -> int:
    """Write `report.json` and `report.html` of a passive party, and show them."""
    from cutlayer.report.passive.page import passive_markdown, print_passive

    with folder.locked("a report"):
        result = _write_passive(folder.path)
    if as_json:
        print_json(result.model_dump(mode="json"))
    elif as_markdown:
        sys.stdout.write(passive_markdown(result))
    else:
        print_passive(result, Console())
    return EXIT_GATE_FAILED if result.failed else 0


def _write_passive(path: Path) -> PassiveReport:
    from cutlayer.report.passive.build import build_passive
    from cutlayer.report.passive.page import passive_html
    from cutlayer.storage.durable import write_whole

    result = build_passive(path)
    result.write(path / "report.json")
    write_whole(path / "report.html", passive_html(result))
    return result


def has_failed(folder: RunFolder) -> bool:
    """Whether a gate of an ended run failed, or a guarantee that was tested; writes the report of a run without one."""
    from cutlayer.results.passive import PassiveReport
    from cutlayer.results.report import Report

    path, stored = folder.path, folder.path / "report.json"
    is_there = (path / "report.html").exists()
    with nullcontext() if is_there else folder.locked("a report"):
        if folder.is_passive:
            return (PassiveReport.read(stored) if is_there else _write_passive(path)).failed
        return (Report.read(stored) if is_there else write_report(path)).any_failed


def print_trail(trail: Path | None) -> None:
    """Say where every message that left a passive party is recorded."""
    if trail is not None:
        print_lines(f"every message that left: cutlayer trail show {trail}")


def write_report(path: Path) -> Report:
    """Build the report of a run folder: `report.json`, `report.html` and, where there are gates, `gates.xml`.

    Those of its further labels are built too, each in the folder of the label.
    """
    from cutlayer.report.build import build_report
    from cutlayer.report.html import write_html
    from cutlayer.report.junit import write_junit
    from cutlayer.training.folder import RunFolder

    result = build_report(path)
    result.write(path / "report.json")
    write_html(result, path / "report.html")
    if result.gates:
        write_junit(result, path / "gates.xml")
    for further in result.further_labels:
        write_report(RunFolder(path).of_label(further.label).path)
    return result
