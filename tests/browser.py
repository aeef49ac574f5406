"""Chromium without a screen, for the tests that open a page in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

CHROMIUM = shutil.which("chromium")
HEIGHT = 844
SCHEMES: dict[Literal["light", "dark"], dict[str, Any]] = {
    "light": {},
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
}
"""Rules of axe-core: all on a light screen, and on a dark one those of colours, which are all that it changes."""
IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
]


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's Chromium under Playwright, which downloads none of its own."""
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@contextmanager
def page_of(opened: Browser, path: Path, width: int) -> Iterator[Page]:
    """A file on a screen of some pixels, without a network; to open it takes longer than to change its screen."""
    screen: ViewportSize = {"width": width, "height": HEIGHT}
    context = opened.new_context(viewport=screen, color_scheme="light", bypass_csp=True, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    yield page
    context.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for the pages of a file: each start takes a second."""
    with browser() as opened:
        yield opened


def too_wide(opened: Browser, path: Path, *widths: int) -> dict[int, int]:
    """Width of a page by that of the screen, where it is the larger one."""
    found = {}
    with page_of(opened, path, widths[0]) as page:
        for width in widths:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            found[width] = int(page.evaluate("document.documentElement.scrollWidth"))
    return {screen: width for screen, width in found.items() if width > screen}


def violations(opened: Browser, *paths: Path, width: int = 390) -> list[str]:
    """What axe-core finds on pages: contrast, headings, text alternatives, names and landmarks; if dark, of colours."""
    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    found = []
    for path in paths:
        with page_of(opened, path, width) as page:
            page.evaluate(axe)
            for scheme, rules in SCHEMES.items():
                page.emulate_media(color_scheme=scheme)
                result = page.evaluate("rules => axe.run(document, {resultTypes: ['violations'], ...rules})", rules)
                found += [
                    f"{path.name} ({scheme}): {rule['id']}: {node['html'][:120]}"
                    for rule in result["violations"]
                    for node in rule["nodes"]
                ]
    return found
