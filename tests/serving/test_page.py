"""The page in a real browser: parties, drift and a prediction, without a complaint in its console."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import httpx
from playwright.sync_api import expect

from benchmarks.serving_kills import wait_until_whole
from benchmarks.serving_parties import Party, start_parties
from tests import browser
from tests.browser import CHROMIUM, IN_A_BROWSER
from tests.serving.test_requests import CALLER, KEY
from tests.serving.world import ACTIVE, MISSING_AT_SHOP, PASSIVES

FLAGS = [*browser.FLAGS, "--virtual-time-budget=5000", "--window-size=1000,1100"]
pytestmark = IN_A_BROWSER


def test_the_page_shows_the_parties_and_a_prediction(plain: Path, tmp_path: Path) -> None:
    parties = start_parties(plain, ACTIVE, PASSIVES, deadline_ms=2000)
    url = parties[ACTIVE].started["url"]
    try:
        wait_until_whole(url)
        for _ in range(3):
            httpx.post(f"{url}/v1/predict", json={"ids": [*range(MISSING_AT_SHOP)]}).raise_for_status()
        parties["shop"].kill()
        # Ids in the address fill in the form and send it, so that a link can show a prediction.
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}"]
        done = subprocess.run(
            [*command, "--dump-dom", f"{url}/#ids=3,%3Cimg%20src%3Dx%3E,7"],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
        page = done.stdout
        assert "version " in page
        assert all(name in page for name in (ACTIVE, *PASSIVES))
        assert "absent" in page
        assert "<img src=x>" not in page  # shown as text
        assert "income" in page
        assert "bank has no row of this id" in page
        done = subprocess.run(
            [*command, "--dump-dom", f"{url}/#ids=3,7"], capture_output=True, text=True, timeout=120, check=True
        )
        assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
        assert "shop: it is not connected" in done.stdout
        if folder := os.environ.get("CUTLAYER_SCREENSHOTS"):
            shot = f"--screenshot={folder}/serve.png"
            subprocess.run([*command, shot, f"{url}/#ids=3,7"], timeout=120, check=True)
    finally:
        for party in parties.values():
            party.kill()


def test_the_page_asks_for_a_key_and_takes_another_after_a_wrong_one(plain: Path) -> None:
    """At the width of a phone, where no word is broken and nothing is wider than the screen."""
    http = {"address": "127.0.0.1:0", "callers": [CALLER]}
    bank = Party(plain, ACTIVE, {"address": "127.0.0.1:0", "http": http})
    try:
        bank.start()
        with browser.browser() as opened:
            page = opened.new_page(viewport={"width": 390, "height": 844})
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
            heights = page.eval_on_selector_all("#parties td:first-child", "all => all.map(one => one.offsetHeight)")
            assert max(heights) < 45, "a name is broken over lines"
    finally:
        bank.kill()
