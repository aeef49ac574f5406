"""Reads code blocks, headings and links out of the project's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tools.reference_pages import filled, listed

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "results" not in page.parts),
)

_FENCE = re.compile(
    r"^(?:<!-- tested: (?P<name>[\w.-]+) -->\n)?```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S
)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<words>.+?)(?: \{#(?P<anchor>[\w-]+)\})?$", re.M)


class Block(NamedTuple):
    """One fenced block; `name` is that of the `<!-- tested: NAME -->` line before it, or empty."""

    page: Path
    name: str
    language: str
    text: str


@cache
def shown(page: Path) -> str:
    """The page as the site has it, with what is generated."""
    text = page.read_text(encoding="utf-8")
    docs = ROOT / "docs"
    return filled(page.relative_to(docs).as_posix(), text) if page.is_relative_to(docs) else text


def own_words(page: Path) -> str:
    """The page without its fenced blocks and without the keys of the configuration."""
    docs = ROOT / "docs"
    text = page.read_text(encoding="utf-8")
    return _FENCE.sub("", listed(page.relative_to(docs).as_posix(), text) if page.is_relative_to(docs) else text)


def blocks(page: Path, language: str | None = None) -> list[Block]:
    parsed = [
        Block(page, match["name"] or "", match["language"], match["text"])
        for match in _FENCE.finditer(page.read_text(encoding="utf-8"))
    ]
    return [block for block in parsed if language is None or block.language == language]


def block(page: Path, name: str) -> str:
    (named,) = [example for example in blocks(page) if example.name == name]
    return named.text


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", shown(page))


def links(page: Path) -> Iterator[str]:
    yield from links_in(shown(page))


def links_in(text: str) -> Iterator[str]:
    for match in _LINK.finditer(_FENCE.sub("", text)):
        yield match["target"]


def anchors(page: Path) -> set[str]:
    """What a link to the page may name after `#`, as Python-Markdown makes it."""
    return {match["anchor"] or _slug(match["words"]) for match in _HEADING.finditer(prose(page))}


def table_rows(text: str) -> list[list[str]]:
    """Cells of all table rows, heads and rules left out; a cell may hold an escaped bar."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [index for index, row in enumerate(cells) if all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    return [row for index, row in enumerate(cells) if index not in rules and index + 1 not in rules]


def _slug(words: str) -> str:
    words = re.sub(r"[^\w\s-]", "", words.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


_SENTENCE = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_`\[]*[A-Z0-9`])|(?<=:)\n")
_MARKUP = re.compile(r"<!--.*?-->|!?\[([^\]]*)\]\([^)]*\)|[*_]{1,2}(?=\S)|(?<=\S)[*_]{1,2}", re.S)


def sentences(page: Path) -> list[str]:
    """The sentences of paragraphs, list items and table cells; headings, code blocks and targets of links left out."""
    text = re.sub(r"^#.*$|^\|[\s:|-]+$", "\n", own_words(page), flags=re.M)
    text = re.sub(r"(?<!\\)\|", "\n\n", text)
    text = re.sub(r"^\s*(?:[-*]|\d+\.|- \[ \]) ", "\n\n", text, flags=re.M)
    text = _MARKUP.sub(lambda match: match[1] or "", text)
    parts = [part for paragraph in re.split(r"\n\s*\n", text) for part in _SENTENCE.split(paragraph)]
    return [" ".join(part.split()) for part in parts if part.strip()]


def words(sentence: str) -> int:
    """Number of words; code of several words is one."""
    return len(re.sub(r"`[^`]*`", "code", sentence).split())
