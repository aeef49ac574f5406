"""Chromium without a screen, for the tests that open a page in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The first, a package of its own, has no windows, and takes half the time of the second."""
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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for the pages of a file: each start takes a second."""
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def screen(chromium: Browser) -> Iterator[Page]:
    """One page that shows the files of all tests in turn, without a network: each further page is another process."""
    page = chromium.new_context(offline=True).new_page()
    yield page
    page.context.close()


def show(screen: Page, path: Path, width: int = 1280) -> None:
    """Open a file, in light colours, on a screen of some pixels."""
    screen.set_viewport_size({"width": width, "height": HEIGHT})
    screen.emulate_media(color_scheme="light")
    screen.goto(path.as_uri())


@contextmanager
def heard(page: Page) -> Iterator[list[str]]:
    """What a page says in its console, and the errors of its scripts."""
    said: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        said.append(message.text)

    def fail(error: Error) -> None:
        said.append(str(error))

    page.on("console", hear)
    page.on("pageerror", fail)
    try:
        yield said
    finally:
        page.remove_listener("console", hear)
        page.remove_listener("pageerror", fail)


def too_wide(screen: Page, path: Path, *widths: int) -> dict[int, int]:
    """Width of a page by that of the screen, where it is the larger one."""
    found = {}
    show(screen, path, widths[0])
    for width in widths:
        screen.set_viewport_size({"width": width, "height": HEIGHT})
        found[width] = int(screen.evaluate("document.documentElement.scrollWidth"))
    return {width: shown for width, shown in found.items() if shown > width}


def violations(screen: Page, path: Path, width: int = 390) -> list[str]:
    """What axe-core finds on a page: contrast, headings, text alternatives, names, landmarks; if dark, of colours."""
    found = []
    show(screen, path, width)
    screen.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    for scheme, rules in SCHEMES.items():
        screen.emulate_media(color_scheme=scheme)
        result = screen.evaluate("rules => axe.run(document, {resultTypes: ['violations'], ...rules})", rules)
        found += [
            f"{path.name} ({scheme}): {rule['id']}: {node['html'][:120]}"
            for rule in result["violations"]
            for node in rule["nodes"]
        ]
    return found
