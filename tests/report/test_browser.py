from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page as Screen

from cutlayer.accounting import Ledger
from cutlayer.consent import allowed
from cutlayer.report.card import annex_html, build_card
from cutlayer.report.html import render_html, write_html
from cutlayer.report.passive.page import passive_html
from cutlayer.results.report import Report
from tests import browser
from tests.browser import IN_A_BROWSER, chromium, screen
from tests.docs.reading import ROOT
from tests.report.passive_samples import exact, passive_report, rebuilt
from tests.report.reading import Page, leaves, shown
from tests.report.samples import binary, short
from tests.report.test_passive import NOISE
from tests.serving.world import ACTIVE, train

__all__ = ["chromium", "screen"]

pytestmark = IN_A_BROWSER


def shown_by(screen: Screen, path: Path) -> tuple[str, list[str]]:
    """The document as the browser has it, and what it said in its console; its content security policy applies."""
    with browser.heard(screen) as said:
        browser.show(screen, path)
        return screen.content(), said


def test_the_page_opens_without_a_complaint_and_shows_the_figures(
    hostile_report: Report, screen: Screen, tmp_path: Path
) -> None:
    """With names that would break a page; all else is that of `binary`."""
    report = hostile_report
    document, console = shown_by(screen, write_html(report, tmp_path / "report.html"))
    assert console == []
    page = Page(document)
    assert Report.model_validate(json.loads(page.json)) == report
    numbers = [(path, value) for path, value in leaves(json.loads(page.json)) if type(value) in (int, float)]
    assert [(path, value) for path, value in numbers if not shown(value, page.text)] == []


def test_a_complaint_would_be_noticed(brief: Report, screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(brief).replace("<footer>", '<img src="data:image/x"><script>alert(1)</script><footer>'))
    _, console = shown_by(screen, path)
    assert any("Content Security Policy" in line for line in console)


def test_nothing_is_wider_than_the_screen(report: Report, screen: Screen, tmp_path: Path) -> None:
    assert browser.too_wide(screen, write_html(report, tmp_path / "report.html"), 360, 390, 768, 1200) == {}


def test_a_link_of_the_navigation_and_a_printer_open_folds(report: Report, screen: Screen, tmp_path: Path) -> None:
    browser.show(screen, write_html(report, tmp_path / "report.html"))
    closed = "document.querySelectorAll('details:not([open])').length"
    whole = screen.evaluate(closed)
    assert whole > 10
    screen.click("nav a[href='#quality']")
    screen.wait_for_function("document.querySelector('#quality > details').open")
    assert screen.evaluate(closed) == whole - 1
    screen.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert screen.evaluate(closed) == 0
    screen.evaluate("dispatchEvent(new Event('afterprint'))")
    assert screen.evaluate(closed) == whole - 1


def test_axe_finds_nothing(screen: Screen, tmp_path: Path) -> None:
    """With two rows of each table, of which a third would add time and no rule; findings have a colour each."""
    report = Report.model_validate({**short(), **{name: binary()[name] for name in ("findings", "gates")}})
    assert browser.violations(screen, write_html(report, tmp_path / "report.html")) == []


def test_the_page_of_a_passive_party_fits_a_phone_and_passes_the_accessibility_rules(
    screen: Screen, tmp_path: Path
) -> None:
    report = passive_report(features=(exact(42, 50), rebuilt(0.97)), ledger=Ledger((NOISE,)))
    (tmp_path / "page.html").write_text(passive_html(report))
    assert browser.too_wide(screen, tmp_path / "page.html", 390, 1280) == {}
    assert browser.violations(screen, tmp_path / "page.html") == []


def test_the_annex_of_a_card_fits_the_screen_and_axe_finds_nothing(screen: Screen, tmp_path: Path) -> None:
    sections = {"telco": {"audit": {"attacks": ["inversion"], "every": "end"}}}
    with allowed(paths=["/"]):
        card = build_card(train(tmp_path, parties={ACTIVE: {"audit": {"attacks": ["spectral"]}}} | sections))
    path = tmp_path / "annex.html"
    path.write_text(annex_html(card), encoding="utf-8")
    assert browser.too_wide(screen, path, 390, 1280) == {}
    assert browser.violations(screen, path) == []


def test_figures_cut_no_text(screen: Screen) -> None:
    """A page of the documentation shows a figure as an image, which hides what lies beyond its edge."""
    cut = """() => { const size = document.documentElement.viewBox.baseVal;
      const right = box => size.width - box.x - box.width, below = box => size.height - box.y - box.height;
      const inside = box => Math.min(box.x, box.y, right(box), below(box)) >= 0;
      const texts = [...document.querySelectorAll("text")];
      return texts.filter(text => !inside(text.getBBox())).map(text => text.textContent) }"""
    figures = sorted((ROOT / "docs" / "figures").glob("*.svg"))
    assert figures
    for figure in figures:
        browser.show(screen, figure)
        assert screen.evaluate(cut) == [], figure.name


def test_axe_and_the_width_would_find_something(screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<!DOCTYPE html><style>@media (prefers-color-scheme: dark) {h1 {color: #333; background: #222}}</style>"
        '<html lang="en"><title>x</title><main><h1>head</h1><h3>y</h3><img src="data:,">'
        '<p style="color: #aaa; width: 500px">pale</p></main></html>'
    )
    found = " ".join(browser.violations(screen, path))
    assert "(dark): color-contrast: <h1>head" in found
    assert "(light): color-contrast: <h1>head" not in found
    assert all(rule in found for rule in ("color-contrast", "image-alt", "heading-order"))
    assert browser.too_wide(screen, path, 390, 1200).keys() == {390}
