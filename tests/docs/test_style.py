"""How-to pages begin with a command, commands parse, and sentences are short."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cutlayer.cli.app import all_verbs
from tests.docs.reading import PAGES, ROOT, blocks, prose, sentences, words

HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
MAX_WORDS = 25
FRONT = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/index.md",
    "docs/architecture.md",
    "docs/tutorial.md",
    "docs/extending.md",
)
"""Pages that use no private words, besides the how-to pages."""

each_how_to = pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
CHECKED = [page for page in PAGES if page.name != "CHANGELOG.md"]
each_page = pytest.mark.parametrize("page", CHECKED, ids=lambda page: str(page.relative_to(ROOT)))


def commands(page: Path) -> list[list[str]]:
    """The arguments of each `cutlayer` command in the console blocks of a page."""
    lines = [line for item in blocks(page, "console") for line in item.text.replace("\\\n", " ").splitlines()]
    lines = [re.sub(r" 2?>.*", "", line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]
    typed = [shlex.split(line, comments=True) for line in lines]
    return [each[each.index("cutlayer") + 1 :] for each in typed if "cutlayer" in each]


@cache
def verbs() -> dict[str, Any]:
    """Looked for once: each time all that is installed is read."""
    return all_verbs()


def parse(arguments: list[str]) -> None:
    """Parse a command as the program does, without running it."""
    commands: Any = verbs()
    while commands is not None:
        end = 2 if " ".join(arguments[:2]) in commands else 1
        name, arguments = " ".join(arguments[:end]), arguments[end:]
        command = commands[name]
        commands = getattr(command, "commands", None)
    command.make_context(name, arguments)


@each_how_to
def test_a_how_to_page_begins_with_a_command(page: Path) -> None:
    """Within 15 lines, after the title and at most two sentences."""
    start, fence, _ = page.read_text(encoding="utf-8").partition("```console\n$ ")
    assert fence
    assert start.count("\n") < 15
    assert start.startswith("# ")
    assert len([each for each in sentences_of(start) if each]) <= 2


def sentences_of(text: str) -> list[str]:
    """Sentences of a text before the first block, without its title."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [part.strip() for part in " ".join(lines).split(". ") if part.strip()]


@each_page
def test_every_command_parses(page: Path) -> None:
    for arguments in commands(page):
        parse(arguments)


def test_a_command_with_a_wrong_option_does_not_parse() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["run", "job.yaml", "--outt", "x"])


@each_page
def test_sentences_are_short(page: Path) -> None:
    long = [sentence for sentence in sentences(page) if words(sentence) > MAX_WORDS]
    assert not long, "\n".join(long)


def test_pages_use_no_private_words() -> None:
    """Words that the project's style replaces: a message is sent, a figure is measured."""
    pages = [*HOW_TO, *(ROOT / name for name in FRONT)]
    used = {page.name: re.findall(r"\b(?:told|said|lest|whoever|mend)\b", prose(page), re.I) for page in pages}
    assert {name: words for name, words in used.items() if words} == {}


def test_sentences_are_read_out_of_markup(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title of many words\n\nOne **bold** sentence, e.g.\n[a link](page.md#x). Two `code of words` here!\n\n"
        "- An item. And\n  another.\n\n| a | b |\n|---|---|\n| A cell | Two. Cells |\n\n"
        "```console\n$ no sentence\n```\n"
    )
    assert sentences(page) == [
        "One bold sentence, e.g. a link.",
        "Two `code of words` here!",
        "An item.",
        "And another.",
        "a",
        "b",
        "A cell",
        "Two.",
        "Cells",
    ]
    assert [words(sentence) for sentence in sentences(page)][:2] == [6, 3]
    assert "no sentence" not in prose(page)
