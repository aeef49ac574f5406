from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cutlayer.report.html import render_html, write_html
from cutlayer.results.report import Report
from tests import browser
from tests.browser import CHROMIUM, IN_A_BROWSER
from tests.report.reading import Page, leaves, shown
from tests.report.samples import binary, hostile, multiclass

FLAGS = [*browser.FLAGS, "--virtual-time-budget=3000"]
pytestmark = IN_A_BROWSER


def opened(path: Path, profile: Path) -> tuple[str, list[str]]:
    """The document as the browser has it, and what it said in its console."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("make", [binary, multiclass, hostile], ids=lambda make: make.__name__)
def test_the_page_opens_without_a_complaint_and_shows_the_figures(make: object, tmp_path: Path) -> None:
    report = Report.model_validate(make())  # type: ignore[operator]
    document, console = opened(write_html(report, tmp_path / "report.html"), tmp_path / "profile")
    assert console == []
    page = Page(document)
    assert Report.model_validate(json.loads(page.json)) == report
    numbers = [(path, value) for path, value in leaves(json.loads(page.json)) if type(value) in (int, float)]
    assert [(path, value) for path, value in numbers if not shown(value, page.text)] == []


def test_a_complaint_would_be_noticed(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(
        render_html(report).replace("<footer>", '<img src="data:image/x"><script>alert(1)</script><footer>')
    )
    _, console = opened(path, tmp_path / "profile")
    assert any("Content Security Policy" in line for line in console)


def test_nothing_is_wider_than_the_screen(report: Report, tmp_path: Path) -> None:
    assert browser.too_wide(write_html(report, tmp_path / "report.html"), 360, 390, 768, 1200) == {}


def test_axe_finds_nothing(report: Report, tmp_path: Path) -> None:
    assert browser.violations(write_html(report, tmp_path / "report.html")) == []


def test_axe_and_the_width_would_find_something(tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        '<!DOCTYPE html><html lang="en"><title>x</title><main><h1>x</h1><h3>y</h3><img src="data:,">'
        '<p style="color: #aaa; width: 500px">pale</p></main></html>'
    )
    found = " ".join(browser.violations(path))
    assert all(rule in found for rule in ("color-contrast", "image-alt", "heading-order"))
    assert browser.too_wide(path, 390, 1200).keys() == {390}
