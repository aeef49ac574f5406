"""The page in a real browser: parties, drift and a prediction, without a complaint in its console."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.serving_kills import wait_until_whole
from benchmarks.serving_parties import Party, start_parties
from tests.browser import IN_A_BROWSER, chromium, heard
from tests.serving.test_requests import CALLER, KEY
from tests.serving.world import ACTIVE, MISSING_AT_SHOP, PASSIVES

__all__ = ["chromium"]

pytestmark = IN_A_BROWSER
expect.set_options(timeout=60_000)  # on a busy machine an answer of the service takes seconds


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    """One page for all visits: each further one is another process."""
    opened = chromium.new_page(viewport={"width": 1000, "height": 1100})
    yield opened
    opened.close()


@contextmanager
def quiet_visit(page: Page, url: str) -> Iterator[None]:
    """A page that says nothing in its console."""
    page.goto("about:blank")  # from an address that differs in its fragment alone nothing would be loaded
    with heard(page) as said:
        page.goto(url)
        yield
        assert said == []


def test_the_page_shows_the_parties_and_a_prediction(plain: Path, page: Page) -> None:
    parties = start_parties(plain, ACTIVE, PASSIVES, deadline_ms=2000)
    url = parties[ACTIVE].started["url"]
    try:
        wait_until_whole(url)
        for _ in range(3):
            httpx.post(f"{url}/v1/predict", json={"ids": [*range(MISSING_AT_SHOP)]}, timeout=60).raise_for_status()
        parties["shop"].kill()
        # Ids in the address fill in the form and send it, so that a link can show a prediction.
        with quiet_visit(page, f"{url}/#ids=3,%3Cimg%20src%3Dx%3E,7"):
            for name in (ACTIVE, *PASSIVES, "absent"):
                expect(page.locator("#parties")).to_contain_text(name)
            expect(page.locator("#version")).to_contain_text("version ")
            expect(page.locator("#drift")).to_contain_text("income")
            expect(page.locator("#rows")).to_contain_text("bank has no row of this id")
            expect(page.locator("#rows")).to_contain_text("<img src=x>")  # shown as text
            assert "<img src=x>" not in page.content()
        with quiet_visit(page, f"{url}/#ids=3,7"):
            expect(page.locator("#rows")).to_contain_text("shop: it is not connected")
            if folder := os.environ.get("CUTLAYER_SCREENSHOTS"):
                page.screenshot(path=f"{folder}/serve.png")
    finally:
        for party in parties.values():
            party.kill()


def test_the_page_asks_for_a_key_and_takes_another_after_a_wrong_one(plain: Path, page: Page) -> None:
    """At the width of a phone, where no word is broken and nothing is wider than the screen."""
    http = {"address": "127.0.0.1:0", "callers": [CALLER]}
    bank = Party(plain, ACTIVE, {"address": "127.0.0.1:0", "http": http})
    try:
        bank.start()
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(bank.started["url"])
        message = page.locator("#message")
        expect(message).to_have_text("This service asks for an API key: enter it below.")
        assert not page.is_visible("#service")
        page.fill("#key", "wrong")
        page.click("#key-form button")
        expect(message).to_have_text("This key is not one of a caller of this service.")
        page.fill("#key", KEY)
        page.click("#key-form button")
        expect(page.locator("#service")).to_be_visible()
        expect(message).to_be_hidden()
        expect(page.locator("#login")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        expect(page.locator("#parties td").first).to_be_visible()
        heights = page.eval_on_selector_all("#parties td:first-child", "all => all.map(one => one.offsetHeight)")
        assert max(heights) < 45, "a name is broken over lines"
    finally:
        bank.kill()
