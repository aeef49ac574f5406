"""Reads a page as a person does: its visible words, its tables, its elements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from html.parser import HTMLParser
from typing import Any

from cutlayer.report import rounding
from cutlayer.report.markdown import section_markdown, table_markdown
from cutlayer.report.section import Answer, Block, Fold, Section, Table
from cutlayer.report.sections import sections_of
from cutlayer.results.report import Report

UNSEEN = {"script", "style", "title", "svg"}


class Page(HTMLParser):
    """Collects words outside charts, words by table, start tags and the embedded JSON."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tables: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.json = ""
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in UNSEEN or tag == "table":
            self._open.append("json" if dict(attrs).get("id") == "report" else tag)
        if tag == "table":
            self.tables.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and (self._open[-1] == tag or (tag == "script" and self._open[-1] == "json")):
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if "json" in self._open:
            self.json += data
        elif not UNSEEN.intersection(self._open):
            self.words.append(data)
            if "table" in self._open:
                self.tables[-1] += f" {data}"

    @cached_property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


class Seen(HTMLParser):
    """The words of a page that are seen before any fold is opened, outside charts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNSEEN or tag == "summary" or (tag == "details" and "open" not in dict(attrs)):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open[-1:] == [tag]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open in ([], ["details", "summary"]):
            self.words += data.split()


def blocks_of(section: Section) -> Iterator[Block]:
    """The blocks of a section, those in folds too."""
    waiting = list(section.blocks)
    while waiting:
        block = waiting.pop(0)
        yield block
        waiting[:0] = block.blocks if isinstance(block, Fold) else ()


def visible(page: str) -> str:
    """The words of a page outside charts, as `Page.text` has them but for spaces, at a fraction of its time."""
    return re.sub(r"<(script|style|title|svg)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value of a JSON document with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path, value


def writings(value: float) -> set[str]:
    """The ways the report may write a number."""
    ways = {rounding.metric(value), rounding.amount(value), rounding.setting(value), rounding.rate(value)}
    ways |= {rounding.seconds(value), rounding.share(value, 1)}
    ways |= {rounding.size(value), rounding.count(value)} if isinstance(value, int) else set()
    return {" ".join(way.split()) for way in ways}


def shown(value: float, text: str) -> bool:
    """Whether a number stands in a text, not as a part of a longer one."""
    ways = writings(value)
    return not ways.isdisjoint(_words(text)) or any(_stands(way, text) for way in ways)


@lru_cache(maxsize=8)
def _words(text: str) -> frozenset[str]:
    """Most numbers stand alone: the rest of the text is searched for the others only."""
    return frozenset(word.lstrip("(").rstrip(".,;:)") for word in text.split())


def _stands(way: str, text: str) -> bool:
    """Whether a number written so stands in a text; a regular expression of each would take most of a test's time."""
    start = text.find(way)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(way) : start + len(way) + 2]
        longer = after[:1].isdecimal() or (after[:1] in {".", ","} and after[1:].isdecimal())
        if not (before.isdecimal() or before in {".", ","} or longer):
            return True
        start = text.find(way, start + 1)
    return False


def section_of(report: Report, anchor: str) -> Section | None:
    """The section of a report with an anchor, if it has one."""
    return next((section for section in sections_of(report) if section.anchor == anchor), None)


def table_of(report: Report, anchor: str) -> Table:
    """The first table that the terminal and Markdown show of a section."""
    section = section_of(report, anchor)
    assert section is not None
    return next(block for block in section.brief if isinstance(block, Table))


def cells_of(table: Table, name: str) -> list[str]:
    """The text of a column's cells and what stands below it, row by row."""
    index = [column.name for column in table.columns].index(name)
    return ["\n".join((row.cells[index].text, *row.cells[index].lines)) for row in table.rows]


def markdown_of(report: Report, anchor: str) -> str:
    """A section in Markdown; empty where the report has none."""
    section = section_of(report, anchor)
    return section_markdown(section) if section else ""


def markdown_rows(report: Report, anchor: str) -> list[str]:
    """The rows of a section's table in Markdown, without its head."""
    return table_markdown(table_of(report, anchor)).splitlines()[2:]


def answers(report: Report) -> tuple[Answer, ...]:
    """The reviewer's questions with their answers, in the order of the sections."""
    return tuple(answer for section in sections_of(report) for answer in section.answers)
