from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

import pytest

from cutlayer.report.charts import Series, bar_strip, layer_chart, line_chart, swatch
from cutlayer.report.svg import Axis, Scale, axes


def drawn(svg: str) -> Xml.Element:
    return Xml.fromstring(svg)


def path_of(svg: str, style: int) -> str:
    found = re.search(rf'class="line (?:thin )?s{style}" d="([^"]*)"', svg)
    assert found is not None
    return found[1]


def test_a_line_goes_through_its_points_and_lifts_the_pen_at_a_gap() -> None:
    points = ((1.0, 0.5), (2.0, 0.75), (3.0, None), (4.0, 1.0))
    svg = str(line_chart([Series("this run", 0, points)], "label", (0.5, 1.0), reference=0.5))
    x, y = Scale(1, 4, 40, 268), Scale(0.5, 1.0, 150, 8)
    assert path_of(svg, 0) == f"M{x(1):.1f} {y(0.5):.1f}L{x(2):.1f} {y(0.75):.1f}M{x(4):.1f} {y(1.0):.1f}"
    assert "this run, epoch 2: 0.750" in svg
    assert svg.count("chance") == 2


def test_every_run_has_its_own_mark_and_the_first_is_on_top() -> None:
    runs = [Series(f"run {style}", style, ((1.0, 0.6), (2.0, 0.7))) for style in range(6)]
    svg = str(line_chart(runs, "label", (0.5, 1.0)))
    assert len(set(re.findall(r'class="mark s\d" transform="[^"]*" d="([^"]*)"', svg))) == 6
    assert svg.index("mark s5") < svg.index("mark s0")


@pytest.mark.parametrize("epochs", [1, 2, 10, 500])
def test_any_number_of_epochs_is_drawn(epochs: int) -> None:
    points = tuple((float(epoch), 0.6) for epoch in range(1, epochs + 1))
    svg = drawn(str(line_chart([Series("this run", 0, points)], "label", (0.6, 0.6))))
    assert svg.get("aria-label") == "label"
    marks = [element for element in svg.iter("path") if (element.get("class") or "").startswith("mark")]
    assert len(marks) == (epochs if epochs < 25 else 1)


def test_layers_stand_below_each_other_and_long_names_are_shortened() -> None:
    layers = ["input", "a very long name of a layer", "<cut>"]
    svg = layer_chart(layers, [Series("this run", 0, ((0.0, 0.5), (1.0, 0.6), (2.0, 0.9)))], "label", (0.45, 1.0))
    root = drawn(str(svg))
    heights = [float(str(text.get("y"))) for text in root.iter("text") if text.get("class") == "layer"]
    assert heights == sorted(heights)
    assert "a very … a layer" in str(svg)
    assert "a very long name of a layer" in str(svg)
    assert "&lt;cut&gt;" in str(svg)


def test_a_bar_reaches_from_its_base_to_its_value_either_way() -> None:
    for value, left, width in ((0.9, 500.0, 400.0), (0.3, 300.0, 200.0)):
        root = drawn(str(bar_strip(value, None, 0.5, (0.0, 1.0), 0, "label")))
        rectangle = next(root.iter("rect"))
        assert float(str(rectangle.get("x"))) == pytest.approx(left)
        assert float(str(rectangle.get("width"))) == pytest.approx(width)


def test_the_legend_draws_what_the_chart_draws() -> None:
    assert 'class="line s2"' in swatch(2)
    assert 'class="mark s2"' in swatch(2)


def test_the_title_of_the_vertical_axis_is_beside_its_numbers() -> None:
    """Numbers of five characters, as 0.852, end 6 pixels before the axis."""
    left, right = 58, 268  # of the charts over a diagonal, which have a title there
    across, up = Scale(0.5, 1.0, left, right), Scale(0.8501, 0.8536, 190, 8)
    drawn = str(axes(Axis(across), Axis(up, "test AUC")))
    title = float(re.search(r"rotate\(-90 (\d+)", drawn)[1])  # type: ignore[index]
    assert title + 4 < left - 6 - 5 * 7, "letters of 12 pixels are 7 wide, and have 4 below their line"
