"""The page's charts: pure functions from numbers to SVG.

No plotting library: it would need fonts, scripts or images of several hundred kilobytes to draw a few lines, and fix
colours when the page is written. These charts carry class names only; the page's style sheet colours them through CSS
variables, so that they follow dark mode and print. One chart is a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from markupsafe import Markup

from cutlayer.report.rounding import auc, metric
from cutlayer.report.svg import MARKERS, Axis, Scale, axes, element, marker, whole_ticks

WIDTH = 280
ROW_HEIGHT, MIN_BAR_WIDTH = 26, 3.0
"""Pixels of a chart with a line for each run: height of a line, and the narrowest bar."""
MAX_MARKED_EPOCHS, MAX_LAYERS = 24, 1000
"""Numbers of epochs and of layers up to which every point has a mark."""
STYLES = len(MARKERS)
Point = tuple[float, float | None]


class Series(NamedTuple):
    """The line of one run.

    Attributes:
        name: Name of the run.
        style: Index of the run in the legend; 0 is this run.
        points: Positions and values; a value of `None` is a gap.
    """

    name: str
    style: int
    points: tuple[Point, ...]


def line_chart(
    series: Sequence[Series],
    label: str,
    domain: tuple[float, float],
    reference: float | None = None,
    write: Callable[[float | None], str] = metric,
) -> Markup:
    """A line per run over the epochs.

    Args:
        series: The runs; the first is drawn on top.
        label: Description for screen readers.
        domain: Ends of the vertical axis.
        reference: Value marked by a line of its own, such as chance.
        write: Formats a value.
    """
    xs = [x for line in series for x, _ in line.points] or [1.0]
    margin = 1 if min(xs) == max(xs) else 0
    x = Scale(min(xs) - margin, max(xs) + margin, 40, WIDTH - 12)
    y = Scale(*domain, 150, 8)
    epochs = [(float(epoch), f"{epoch}") for epoch in whole_ticks(int(min(xs)), int(max(xs)))]
    parts = [axes(Axis(x, "epoch", epochs, grid=False), Axis(y, reference=reference, reference_name="chance"), 40)]
    for line in reversed(series):
        points = [
            (x(at), None if value is None else y(value), f"epoch {at:g}: {write(value)}") for at, value in line.points
        ]
        parts.append(_series(line, points, "line"))
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} 196", role="img", aria_label=label)


class IntervalBar(NamedTuple):
    """A value of one run with its interval.

    Attributes:
        name: Name of the run.
        value: The value.
        bounds: Lower and upper bound of it; `None` where it has no interval.
        step: Step of the colour scale of leaks; `None` of a value that is none.
        own: Whether it is of this run.
        tip: The same in words.
    """

    name: str
    value: float
    bounds: tuple[float, float] | None
    step: int | None
    own: bool
    tip: str


def interval_chart(
    bars: Sequence[IntervalBar], domain: tuple[float, float], title: str, reference: float | None, label: str
) -> Markup:
    """A line for each run: its interval as a bar, a mark at its value, and for a leak its colour up to there.

    Args:
        bars: The runs, from top to bottom.
        domain: Ends of the horizontal axis; what is drawn is within them.
        title: Title of the horizontal axis.
        reference: Value marked by a line of its own.
        label: Description for screen readers.
    """
    x = Axis(
        Scale(*domain, _label_width(bar.name for bar in bars), WIDTH - 12),
        title,
        about=3 if bars[0].step is None else 4,
        reference=reference,
    )
    bottom = 8.0 + ROW_HEIGHT * len(bars)
    parts = [axes(x, Axis(Scale(0, 1, 8, bottom), ticks=()))]
    for index, bar in enumerate(bars):
        y = 8.0 + ROW_HEIGHT * (index + 0.5)
        css = "b0" if bar.own else "b1"
        drawn = [element("title", bar.tip)]
        start, at = x.scale.start, x.scale(bar.value)
        if bar.step is not None:  # of a narrow interval no colour would be seen
            drawn.append(element("rect", class_=f"h{bar.step}", x=start, y=y - 3, width=max(at - start, 0.0), height=6))
        if bar.bounds:
            low, high = (x.scale(end) for end in bar.bounds)
            wide = max(high - low, MIN_BAR_WIDTH)
            low = (low + high - wide) / 2
            filled = css if bar.step is None else f"h{bar.step}"
            drawn.append(element("rect", class_=f"ci {filled}", x=low, y=y - 6, width=wide, height=12))
        drawn.append(element("path", class_=f"at {css}", d=f"M{at:.1f} {y - 9}V{y + 9}"))
        parts += [_layer(bar.name, x.scale.start - 8, y), element("g", *drawn)]
    height = f"{bottom + 38:.0f}"
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)


def layer_chart(layers: Sequence[str], series: Sequence[Series], label: str, domain: tuple[float, float]) -> Markup:
    """A dot per run and layer, the layers from top to bottom in the order of the network.

    Args:
        layers: Names of the layers.
        series: Points are pairs of an index of `layers` and a leak.
        label: Description for screen readers.
        domain: Ends of the horizontal axis, the same for all charts that are compared.
    """
    bottom = 12.0 + 22 * len(layers)
    left = _label_width(layers)
    x = Scale(*domain, left, WIDTH - 12)
    y = Scale(0, 1, 19, 41)
    # The vertical axis ends below the last layer; the layers' names are written apart, with their full names as tips.
    parts = [axes(Axis(x, "leak", reference=0.5), Axis(Scale(0, 1, 8, bottom), ticks=()))]
    parts += [_layer(name, left - 8, y(index)) for index, name in enumerate(layers)]
    for line in reversed(series):
        known = [(index, value) for index, value in sorted(line.points, key=itemgetter(0)) if value is not None]
        points = [(x(value), y(index), f"{layers[int(index)]}: {auc(value)}") for index, value in known]
        parts.append(_series(line, points, "line thin", MAX_LAYERS))
    height = f"{bottom + 38:.0f}"
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)


def calibration_chart(
    points: Sequence[tuple[float, float, str]], titles: tuple[str, str], label: str, domain: tuple[float, float]
) -> Markup:
    """Observed over predicted values, with the diagonal on which both are equal.

    Args:
        points: Predicted value, observed value and tip of each group, ascending.
        titles: Titles of the horizontal and the vertical axis.
        label: Description for screen readers.
        domain: Ends of both axes.
    """
    x, y = _square(domain)
    line = [(x(predicted), y(observed), tip) for predicted, observed, tip in points]
    return _over_diagonal(x, y, titles, label, [_series(Series("this run", 0, ()), line, "line")])


def curve_chart(series: Sequence[Series], titles: tuple[str, str], label: str) -> Markup:
    """Lines over the unit interval, such as ROC curves.

    Args:
        series: The curves; the first is drawn on top.
        titles: Titles of the horizontal and the vertical axis.
        label: Description for screen readers.
    """
    x, y = _square((0.0, 1.0))
    drawn = [
        _series(line, [(x(at), y(value or 0.0), "") for at, value in line.points], "line", 0)
        for line in reversed(series)
    ]
    return _over_diagonal(x, y, titles, label, drawn)


def _square(domain: tuple[float, float]) -> tuple[Scale, Scale]:
    return Scale(*domain, 58, WIDTH - 12), Scale(*domain, 224, 8)


def _over_diagonal(x: Scale, y: Scale, titles: tuple[str, str], label: str, drawn: Sequence[Markup]) -> Markup:
    """Lines over the diagonal on which both axes have the same value."""
    diagonal = f"M{x(x.low):.1f} {y(y.low):.1f}L{x(x.high):.1f} {y(y.high):.1f}"
    parts = [axes(Axis(x, titles[0]), Axis(y, titles[1]), 40), element("path", class_="chance", d=diagonal), *drawn]
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} 270", role="img", aria_label=label)


def bar_strip(
    value: float, bounds: tuple[float, float] | None, base: float, domain: tuple[float, float], style: int, label: str
) -> Markup:
    """One horizontal bar from `base` to `value` with its interval; stretches to the width it is given."""
    x = Scale(*domain, 0, 1000)
    left, right = sorted((x(base), x(value)))
    parts = [element("rect", class_=f"bar b{min(style, 1)}", x=left, y=5, width=right - left, height=10)]
    if bounds:
        low, high = x(bounds[0]), x(bounds[1])
        path = f"M{low:.1f} 10H{high:.1f}M{low:.1f} 5V15M{high:.1f} 5V15"
        parts += [element("path", class_=name, d=path) for name in ("halo", "whisker")]
    parts.append(element("path", class_="base", d=f"M{x(base):.1f} 0V20"))
    return element(
        "svg", *parts, class_="strip", viewBox="0 0 1000 20", preserveAspectRatio="none", role="img", aria_label=label
    )


def series_in_words(
    series: Sequence[Series], word: str, pick: Callable[[Sequence[float]], float], write: Callable[[float | None], str]
) -> str:
    """One value of each run in words, for screen readers.

    Args:
        series: The runs; each has at least one value.
        word: What the value is, such as `worst`.
        pick: Chooses the value from all values of a run.
        write: Formats a value.
    """
    known = {line.name: [value for _, value in line.points if value is not None] for line in series}
    return "; ".join(f"{name}: {word} {write(pick(values))}" for name, values in known.items()) + "."


def swatch(style: int) -> Markup:
    """How a run is drawn, for the legend."""
    line = element("path", class_=f"line s{style % STYLES}", d="M1 7H31")
    return element("svg", line, marker(style, 16.0, 7.0), class_="swatch", viewBox="0 0 32 14", aria_hidden="true")


def _series(
    line: Series, points: Sequence[tuple[float, float | None, str]], css: str, max_marks: int = MAX_MARKED_EPOCHS
) -> Markup:
    """A line through pixels with a mark and a tip at each; a gap lifts the pen.

    More than `max_marks` points have a mark at the last one alone.
    """
    path = []
    pen = "M"
    marks = []
    for x, y, tip in points:
        if y is not None:
            path.append(f"{pen}{x:.1f} {y:.1f}")
            marks.append((x, y, f"{line.name}, {tip}"))
        pen = "M" if y is None else "L"
    if len(marks) > max_marks:
        marks = [(*marks[-1][:2], line.name)]
    drawn = [marker(line.style, *mark) for mark in marks]
    drawn_line = element("path", class_=f"{css} s{line.style % STYLES}", d="".join(path))
    return element("g", drawn_line, *drawn, class_="series")


def _layer(name: str, x: float, y: float) -> Markup:
    return element("text", element("title", name), _shortened(name), class_="layer", x=x, y=y + 4, text_anchor="end")


def _label_width(names: Iterable[str]) -> float:
    """Pixels that the longest of the names takes to the left of a chart."""
    return 12 + 7 * max((len(_shortened(name)) for name in names), default=0)


def _shortened(name: str) -> str:
    """A layer's name in the room it has; its middle is left out first."""
    return name if len(name) <= 16 else f"{name[:7].rstrip('.')}…{name[-8:].lstrip('.')}"
