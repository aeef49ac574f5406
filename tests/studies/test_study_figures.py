"""Figures say what the numbers say, and stand on their own."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from studies.figures import Dot, Dots, plot

SVG = "{http://www.w3.org/2000/svg}"


def marks(picture: str) -> dict[str, tuple[float, float]]:
    """Where each mark stands, by its tip."""
    found = {}
    for path in ElementTree.fromstring(picture).iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is not None and title.text:
            x, y = re.findall(r"-?[\d.]+", path.attrib["transform"])
            found[title.text] = (float(x), float(y))
    return found


def ticks(picture: str, axis: str) -> dict[float, float]:
    """Place of each number written along an axis."""
    anchor = "middle" if axis == "x" else "end"
    texts = ElementTree.fromstring(picture).iter(f"{SVG}text")
    return {
        float(text.text): float(text.attrib[axis])
        for text in texts
        if text.attrib.get("text-anchor") == anchor and text.text and re.fullmatch(r"[\d.]+", text.text)
    }


def test_a_mark_stands_where_the_axes_say() -> None:
    dots = (Dot(0.5, 0.6, tip="low"), Dot(0.7, 0.8, half_x=0.02, half_y=0.05, tip="high"))
    picture = plot([Dots("a", dots)], ("test AUC", "leak"), "both", 0.5)
    placed = marks(picture)
    for axis, place in (("x", 0), ("y", 1)):
        written = ticks(picture, axis)
        (v0, p0), (v1, p1) = sorted(written.items())[0], sorted(written.items())[-1]
        for tip, values in (("low", (0.5, 0.6)), ("high", (0.7, 0.8))):
            at = p0 + (values[place] - v0) / (v1 - v0) * (p1 - p0)
            assert placed[tip][place] == pytest.approx(at, abs=5)
    assert placed["low"][1] > placed["high"][1]


def test_whiskers_are_drawn_for_what_has_an_interval() -> None:
    dots = (Dot(1, 0.6), Dot(2, 0.7, half_y=0.05), Dot(3, 0.7, half_x=0.1, half_y=0.05))
    picture = plot([Dots("a", dots)], ("x", "y"), "some")
    assert len(re.findall(r'class="whisker', picture)) == 3
    assert 'class="line' in picture.partition("swatch")[0]
    apart = plot([Dots("a", dots, joined=False)], ("x", "y"), "some")
    assert 'class="line' not in apart.partition("swatch")[0]


def test_names_are_escaped_and_legends_complete() -> None:
    picture = plot([Dots("<a&b>", (Dot(0, 1),)), Dots("none", ())], ("x", "y"), "label", names=("one<", "two"))
    texts = [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert {"<a&b>", "none", "one<", "two"} <= set(texts)


def test_nothing_to_draw_is_an_empty_frame() -> None:
    assert not marks(plot([Dots("a", ())], ("x", "y"), "nothing"))
