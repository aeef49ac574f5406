"""The report of a passive party as one page, in the terminal, and as Markdown."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from cutlayer.report.alignment import alignment_line
from cutlayer.report.card.annex import framework_tables
from cutlayer.report.card.passive import passive_card
from cutlayer.report.markdown import escape_markdown, section_markdown
from cutlayer.report.page import render_page
from cutlayer.report.passive.headline import passive_headline
from cutlayer.report.passive.sections import passive_sections
from cutlayer.report.rounding import date, printable
from cutlayer.report.section import Fold, Paragraph, Section
from cutlayer.report.terminal import print_named, print_section
from cutlayer.results.passive import PassiveReport


def passive_html(report: PassiveReport) -> str:
    """The page as text; everything that came from a user is escaped."""
    meta = (
        f"The part of {report.party} in a run with {report.active}, from its own folder. Ended {date(report.created)}. "
        f"Run `{report.job_digest[:12]}`."
    )
    footer = (
        f"Written by Cutlayer {report.cutlayer}. This page is one file and loads nothing. `report.json` has the same. "
        f"It names columns of {report.party}: it is for {report.party}, and not for its partners."
    )
    sections = (*passive_sections(report), _annex(report))
    heading = passive_headline(report)
    kind, aligned = f"report of {report.party}", alignment_line(report.alignment)
    return render_page(report.name, kind, heading, sections, meta=meta, footer=footer, verdict=aligned)


def passive_markdown(report: PassiveReport) -> str:
    """The sections as Markdown; names that came from a user cannot break them."""
    parts = [f"**{escape_markdown(passive_headline(report))}**\n", *map(section_markdown, passive_sections(report))]
    return "\n".join(part for part in parts if part)


def print_passive(report: PassiveReport, console: Console) -> None:
    """Print what the person who signs reads first; the page has the rest."""
    console.print(Text(printable(passive_headline(report)), "bold"))
    if aligned := alignment_line(report.alignment):
        console.print(Text(printable(aligned)))
    console.print()
    for section in passive_sections(report):
        print_section(section, console)
    print_named(console, ("run folder", report.folder), ("report", Path(report.folder) / "report.html"))


def _annex(report: PassiveReport) -> Section:
    """The fields of the frameworks, folded by framework."""
    card = passive_card(report)
    blanks = sum(field.value is None for field in card.fields)
    text = (
        f"What this folder answers of the frameworks for an impact assessment. {blanks} fields are blank: only the "
        "controller knows them. `cutlayer report --for dpia` writes them to files of their own."
    )
    folds = (Fold(framework, tables) for framework, tables in framework_tables(card).items())
    return Section("annex", "Annex for the impact assessment", (Paragraph(text, "lead"), *folds), nav="Annex")
