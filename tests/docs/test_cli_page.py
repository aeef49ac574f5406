"""The page of the command line lists every verb, and no option without a meaning."""

from __future__ import annotations

import re

import typer

from cutlayer.cli import app
from tests.docs.reading import ROOT
from tools.cli_page import MARKER, verbs


def test_every_verb_has_a_section_and_every_option_a_meaning() -> None:
    text = verbs()
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"## `cutlayer {name}" in text
    assert not re.findall(r"^\| .* \|\s+\|$", text, re.M)


def test_the_page_has_the_marker() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page.count(MARKER) == 1
