from __future__ import annotations

import re
from importlib import resources

import pytest

STYLE = resources.files("cutlayer.report").joinpath("templates", "report.css").read_text(encoding="utf-8")
SCHEMES = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[:2]
TEXT = [("ink", ground) for ground in ("paper", "card", "wash", "h0", "h1", "h2", "h3", "h4", "h5")]
TEXT += [(colour, ground) for colour in ("muted", "accent", "bad", "warn", "good") for ground in ("paper", "card")]
TEXT += [("muted", "wash")]
LINES = [(colour, "paper") for colour in ("accent", "run1", "run2", "run3", "run4", "run5")]


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2, section 1.4.3)."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_on_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (LINES, 3.0)], ids=["text", "lines"])
def test_colours_can_be_told_apart(scheme: str, pairs: list[tuple[str, str]], least: float) -> None:
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", scheme))
    measured = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    assert {pair: found for pair, found in measured.items() if found < least} == {}
