"""The page's charts: pure functions from numbers to SVG.

No plotting library: it would bring fonts, scripts or images of several hundred kilobytes to draw a few lines, and fix
colours when the page is written. These charts carry class names only; the page's style sheet colours them through CSS
variables, so that they follow dark mode and print. One chart is a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cutlayer.report.rounding import auc, metric
from cutlayer.report.svg import MARKERS, Axis, Scale, axes, element, marker, whole_ticks

WIDTH = 280
MARKED = 24
STYLES = len(MARKERS)
Point = tuple[float, float | None]


@dataclass(frozen=True)
class Series:
    """One run's line; `style` is its place in the legend (0 is this run). A value of `None` is a gap."""

    name: str
    style: int
    points: tuple[Point, ...]


def lines(
    series: Sequence[Series],
    label: str,
    domain: tuple[float, float],
    reference: float | None = None,
    write: Callable[[float | None], str] = metric,
) -> Markup:
    """A line per run over the epochs.

    Args:
        series: the runs; the first is drawn on top.
        label: what a screen reader says.
        domain: of the vertical axis.
        reference: a value to mark by a line of its own, such as chance.
        write: how a value is written on a point.
    """
    xs = [x for one in series for x, _ in one.points] or [1.0]
    x = Scale(min(xs), max(xs), 40, WIDTH - 12)
    y = Scale(*domain, 150, 8)
    if x.low == x.high:
        x = Scale(x.low - 1, x.high + 1, 40, WIDTH - 12)
    epochs = [(float(epoch), f"{epoch}") for epoch in whole_ticks(int(min(xs)), int(max(xs)))]
    parts = [axes(Axis(x, "epoch", epochs, grid=False), Axis(y, reference=reference, reference_name="chance"), 40)]
    parts += [_line(one, x, y, write) for one in reversed(series)]
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} 196", role="img", aria_label=label)


def profile(layers: Sequence[str], series: Sequence[Series], label: str, domain: tuple[float, float]) -> Markup:
    """A dot per run and layer, the layers from top to bottom in the order of the network.

    Args:
        layers: names.
        series: points are (place in `layers`, AUC).
        label: what a screen reader says.
        domain: of the horizontal axis, the same for all charts that are compared.
    """
    bottom = 12.0 + 22 * len(layers)
    left = 12 + 6.4 * max((len(_fitted(name)) for name in layers), default=0)
    x = Scale(*domain, left, WIDTH - 12)
    y = Scale(0, 1, 19, 41)
    # The vertical axis of the frame ends below the last layer; the layers' names are written apart, with their tips.
    parts = [axes(Axis(x, "leak", reference=0.5), Axis(Scale(0, 1, 8, bottom), ticks=()))]
    parts += [_layer(name, left - 8, y(place)) for place, name in enumerate(layers)]
    turned = [Series(one.name, one.style, tuple(sorted(one.points))) for one in reversed(series)]
    parts += [_profile_line(one, layers, x, y) for one in turned]
    height = f"{bottom + 38:.0f}"
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)


def bar(
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


def summary(
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


def _line(one: Series, x: Scale, y: Scale, write: Callable[[float | None], str]) -> Markup:
    known = [(at, value) for at, value in one.points if value is not None]
    parts = [element("path", class_=f"line s{one.style % STYLES}", d=_path(one.points, x, y))] if known else []
    if len(known) <= MARKED:
        tips = [(at, value, f"{one.name}, epoch {at:g}: {write(value)}") for at, value in known]
        parts += [marker(one.style, x(at), y(value), tip) for at, value, tip in tips]
    elif known:
        parts.append(marker(one.style, x(known[-1][0]), y(known[-1][1]), one.name))
    return element("g", *parts, class_="series")


def _path(points: Sequence[Point], x: Scale, y: Scale) -> str:
    """Move and line commands; a gap lifts the pen."""
    commands, down = [], False
    for at, value in points:
        if value is None:
            down = False
            continue
        commands.append(f"{'L' if down else 'M'}{x(at):.1f} {y(value):.1f}")
        down = True
    return "".join(commands)


def _layer(name: str, x: float, y: float) -> Markup:
    return element("text", element("title", name), _fitted(name), class_="layer", x=x, y=y + 4, text_anchor="end")


def _fitted(name: str) -> str:
    """A layer's name in the room it has; its middle is left out first."""
    return name if len(name) <= 16 else f"{name[:7]}…{name[-8:]}"


def _profile_line(one: Series, layers: Sequence[str], x: Scale, y: Scale) -> Markup:
    known = [(int(place), value) for place, value in one.points if value is not None]
    path = "L".join(f"{x(value):.1f} {y(place):.1f}" for place, value in known)
    line = element("path", class_=f"line thin s{one.style % STYLES}", d=f"M{path}" if known else "")
    tips = [(place, value, f"{one.name}, {layers[place]}: {auc(value)}") for place, value in known]
    marks = [marker(one.style, x(value), y(place), tip) for place, value, tip in tips]
    return element("g", line, *marks, class_="series")
