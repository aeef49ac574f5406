"""Charts show the numbers, and need no style sheet of a page."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from studies.charts import Chart, Point, Series, series_of
from studies.results import SeedMean

SVG = "{http://www.w3.org/2000/svg}"


def plot_of(lines: list[Series], axes: tuple[str, str], label: str, **further: Any) -> str:
    return Chart("chart.svg", label, axes, tuple(lines), **further).svg()


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
    """Condition of each number written along an axis."""
    anchor = "middle" if axis == "x" else "end"
    texts = ElementTree.fromstring(picture).iter(f"{SVG}text")
    return {
        float(text.text): float(text.attrib[axis])
        for text in texts
        if text.attrib.get("text-anchor") == anchor and text.text and re.fullmatch(r"[\d.]+", text.text)
    }


def test_a_mark_stands_where_the_axes_say() -> None:
    points = (Point(0.5, 0.6, tip="low"), Point(0.7, 0.8, half_x=0.02, half_y=0.05, tip="high"))
    picture = plot_of([Series("a", points)], ("test AUC", "leak"), "both", reference=0.5)
    placed = marks(picture)
    for axis, place in (("x", 0), ("y", 1)):
        written = ticks(picture, axis)
        (v0, p0), (v1, p1) = sorted(written.items())[0], sorted(written.items())[-1]
        for tip, values in (("low", (0.5, 0.6)), ("high", (0.7, 0.8))):
            at = p0 + (values[place] - v0) / (v1 - v0) * (p1 - p0)
            assert placed[tip][place] == pytest.approx(at, abs=5)
    assert placed["low"][1] > placed["high"][1]


def test_whiskers_are_drawn_for_what_has_an_interval() -> None:
    points = (Point(1, 0.6), Point(2, 0.7, half_y=0.05), Point(3, 0.7, half_x=0.1, half_y=0.05))
    picture = plot_of([Series("a", points)], ("x", "y"), "some")
    assert len(re.findall(r'class="whisker', picture)) == 3
    assert 'class="line' in picture.partition("swatch")[0]
    apart = plot_of([Series("a", points, joined=False)], ("x", "y"), "some")
    assert 'class="line' not in apart.partition("swatch")[0]


def test_names_are_escaped_and_legends_complete() -> None:
    picture = plot_of([Series("<a&b>", (Point(0, 1),)), Series("none", ())], ("x", "y"), "label", names=("one<", "two"))
    texts = [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert {"<a&b>", "none", "one<", "two"} <= set(texts)


def test_nothing_to_draw_is_an_empty_frame() -> None:
    assert not marks(plot_of([Series("a", ())], ("x", "y"), "nothing"))


def test_what_is_not_known_is_left_out_of_a_series() -> None:
    line = series_of(
        "a", [(1.0, SeedMean(0.5, 0.1), "first"), (2.0, None, "second"), (SeedMean(3.0, 0.2), 0.7, "third")]
    )
    assert line.points == (Point(1.0, 0.5, None, 0.1, "first"), Point(3.0, 0.7, 0.2, None, "third"))
