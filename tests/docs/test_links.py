"""Links lead somewhere, pages are in the navigation, and nothing is loaded from a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser
from tests.docs.reading import PAGES, ROOT, anchors, links, links_in
from tools.front_pages import FILES, as_page

INCLUDED = {page: ROOT / name for page, name in FILES.items()}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} of {page.name}"
        if anchor:
            assert anchor in anchors(INCLUDED.get(found.name, found)), f"{target} of {page.name}"


@each_page
def test_nothing_is_loaded_from_a_network(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "```mermaid" not in text
    assert not re.search(r"!\[[^\]]*\]\(http|<script|<img|<iframe", text)


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    docs = ROOT / "docs"
    written = {str(page.relative_to(docs)) for page in PAGES if page.is_relative_to(docs)}
    assert written <= named
    assert all(page.startswith("results/") for page in named - written)


def test_pages_of_the_root_lead_to_the_same_pages_from_the_site() -> None:
    docs = ROOT / "docs"
    for page, name in FILES.items():
        assert (docs / page).read_text(encoding="utf-8").startswith(f"<!-- {name}, which ")
        for target in links_in(as_page((ROOT / name).read_text(encoding="utf-8"))):
            path = target.partition("#")[0]
            assert target.startswith("https://") or not path or (docs / path).exists(), f"{target} of {name}"


def test_the_site_uses_no_foreign_fonts() -> None:
    assert re.search(r"^  font: false$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs comes with `make docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    if browser.CHROMIUM is not None:
        pages = [tmp_path / "site" / name / "index.html" for name in ("", "concepts", "reference/protections")]
        with browser.browser() as opened:
            assert browser.violations(opened, *pages) == []
    page = (tmp_path / "site" / "reference" / "api" / "index.html").read_text(encoding="utf-8")
    assert all(
        f"cutlayer.{name}" in page for name in ("VerticalClassifier", "protections.label_dp", "attacks.label.spectral")
    )
    sources = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?:[^\" >]+)", page)
    assert not sources
