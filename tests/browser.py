"""Chromium without a screen, for the tests that open a page in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
]
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
def page_of(opened: Browser, path: Path, width: int, *, dark: bool = False) -> Iterator[Page]:
    """A file on a screen of some pixels, without a network."""
    context = opened.new_context(
        viewport={"width": width, "height": 844},
        color_scheme="dark" if dark else "light",
        bypass_csp=True,
        offline=True,
    )
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
    for width in widths:
        with page_of(opened, path, width) as page:
            found[width] = int(page.evaluate("document.documentElement.scrollWidth"))
    return {screen: width for screen, width in found.items() if width > screen}


def violations(opened: Browser, *paths: Path, width: int = 390) -> list[str]:
    """What axe-core finds on pages, light and dark: contrast, headings, text alternatives, names and landmarks."""
    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    found = []
    for path, dark in ((path, dark) for path in paths for dark in (False, True)):
        with page_of(opened, path, width, dark=dark) as page:
            page.evaluate(axe)
            result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            scheme = "dark" if dark else "light"
            found += [
                f"{path.name} ({scheme}): {rule['id']}: {node['html'][:120]}"
                for rule in result["violations"]
                for node in rule["nodes"]
            ]
    return found
