"""The page of the command line lists every verb, and no option without a meaning."""

from __future__ import annotations

import re

from cutlayer.cli.app import all_verbs
from tests.docs.reading import ROOT
from tools.cli_page import MARKER, verbs


def test_every_verb_has_a_section_and_every_option_a_meaning() -> None:
    text = verbs()
    assert {"run", "serve", "nvflare"} <= all_verbs().keys()
    for name in all_verbs():
        assert f"## `cutlayer {name}" in text
    assert not re.findall(r"^\| .* \|\s+\|$", text, re.M)


def test_the_page_has_the_marker() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page.count(MARKER) == 1
