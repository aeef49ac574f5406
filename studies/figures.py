"""Figures of a study's page: SVG files that stand on their own, with the report's marks and scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cutlayer.report.charts import swatch
from cutlayer.report.svg import Scale, element, marker, padded, tick_texts, ticks

WIDTH = 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 256
_AXIS = 44
_LETTER = 3.9
"""How much lower a name hangs for each of its letters, written at 40 degrees."""
_LEGEND_ROW = 18
_COLOURS = ("#0d6472", "#3b4046", "#8a6d1f", "#71588f", "#55742f", "#8f4f5e")
_DASHES = ("none", "6 3", "2 2", "8 3 2 3", "4 4", "1 3")
_STYLE = (
    "text{font:11.5px system-ui,sans-serif;fill:#596066}.layer,.name{fill:#1c1f22}"
    ".grid{stroke:#edebe5;fill:none}.chance{stroke:#596066;stroke-dasharray:2 3;fill:none}"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}.line.thin{stroke-width:1;opacity:.6}"
    ".whisker{fill:none;stroke-width:1;opacity:.6}.mark{stroke:#fff;stroke-width:.8}"
) + "".join(
    f".line.s{style}{{stroke:{colour};stroke-dasharray:{dash}}}.whisker.s{style}{{stroke:{colour}}}"
    f".mark.s{style}{{{'stroke' if style == 5 else 'fill'}:{colour}}}"
    for style, (colour, dash) in enumerate(zip(_COLOURS, _DASHES, strict=True))
)


@dataclass(frozen=True)
class Dot:
    """A point of a plot, with the half-widths of its intervals and a tip."""

    x: float
    y: float
    half_x: float | None = None
    half_y: float | None = None
    tip: str = ""


@dataclass(frozen=True)
class Dots:
    """One series; `joined` draws a line through its points in their order."""

    name: str
    dots: tuple[Dot, ...]
    joined: bool = True


def plot(
    series: Sequence[Dots],
    axes: tuple[str, str],
    label: str,
    reference: float | None = None,
    names: Sequence[str] = (),
) -> str:
    """Points with their intervals, six series at most.

    Args:
        axes: what stands along x and y.
        label: what a screen reader says.
        reference: a value of y to mark by a line of its own, such as chance.
        names: of the places 0, 1, ... of the horizontal axis, where it is no number.
    """
    dots = [dot for one in series for dot in one.dots]
    ys = [dot.y + side * (dot.half_y or 0) for dot in dots for side in (-1, 1)]
    xs = [dot.x + side * (dot.half_x or 0) for dot in dots for side in (-1, 1)]
    x = Scale(*padded(xs + [float(place) for place in range(len(names))]), _LEFT, WIDTH - _RIGHT)
    y = Scale(*padded(ys + ([] if reference is None else [reference])), _BOTTOM, _TOP)
    drawn = [_series(one, place, x, y) for place, one in enumerate(series)]
    room = _AXIS + round(_LETTER * max(map(len, names), default=0))
    frame = _frame(x, y, axes, reference, names, room)
    return _file([frame, *drawn], _BOTTOM + room, [one.name for one in series], label)


def _file(parts: Sequence[Markup], height: int, names: Sequence[str], label: str) -> str:
    """A whole SVG file on white ground, the legend below the chart."""
    whole = height + _LEGEND_ROW * len(names) + 8
    style = Markup("<style>{}</style>").format(Markup(_STYLE))  # noqa: S704 (constant text)
    ground = element("rect", width=WIDTH, height=whole, fill="#fff")
    legend = [_legend_row(name, place, height + _LEGEND_ROW * place) for place, name in enumerate(names)]
    picture = element(
        "svg",
        element("title", label),
        style,
        ground,
        *parts,
        *legend,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {whole}",
        width=WIDTH,
        height=whole,
        role="img",
    )
    return f"{picture}\n"


def _legend_row(name: str, place: int, top: int) -> Markup:
    sample = element("svg", swatch(place), x=_LEFT, y=top, width=32, height=14)
    return element("g", sample, element("text", name, class_="name", x=_LEFT + 40, y=top + 11))


def _frame(
    x: Scale, y: Scale, axes: tuple[str, str], reference: float | None, names: Sequence[str], room: int
) -> Markup:
    right, parts = WIDTH - _RIGHT, []
    rows = ticks(y.low, y.high)
    for tick, text in zip(rows, tick_texts(rows), strict=True):
        parts.append(element("path", class_="grid", d=f"M{_LEFT} {y(tick):.1f}H{right}"))
        parts.append(element("text", text, x=_LEFT - 6, y=y(tick) + 4.0, text_anchor="end"))
    columns = [float(place) for place in range(len(names))] or ticks(x.low, x.high)
    for tick, text in zip(columns, names or tick_texts(columns), strict=True):
        parts.append(element("path", class_="grid", d=f"M{x(tick):.1f} {_TOP}V{_BOTTOM}"))
        parts.append(_below(text, x(tick), turned=bool(names)))
    if reference is not None:
        parts.append(element("path", class_="chance", d=f"M{_LEFT} {y(reference):.1f}H{right}"))
    middle = (_TOP + _BOTTOM) / 2
    parts.append(element("text", axes[0], x=(_LEFT + right) / 2, y=_BOTTOM + room - 11, text_anchor="middle"))
    turned = f"rotate(-90 14 {middle:.0f})"
    parts.append(element("text", axes[1], x=14, y=middle, text_anchor="middle", transform=turned))
    return element("g", *parts)


def _below(text: str, x: float, *, turned: bool) -> Markup:
    """What stands under a grid line."""
    if turned:
        place = f"rotate(-40 {x:.1f} {_BOTTOM + 12})"
        return element("text", text, x=x + 4, y=_BOTTOM + 12, text_anchor="end", transform=place)
    return element("text", text, x=x, y=_BOTTOM + 15, text_anchor="middle")


def _series(one: Dots, style: int, x: Scale, y: Scale) -> Markup:
    parts = []
    if one.joined and len(one.dots) > 1:
        path = "L".join(f"{x(dot.x):.1f} {y(dot.y):.1f}" for dot in one.dots)
        parts.append(element("path", class_=f"line thin s{style}", d=f"M{path}"))
    for dot in one.dots:
        if dot.half_y is not None:
            d = f"M{x(dot.x):.1f} {y(dot.y - dot.half_y):.1f}V{y(dot.y + dot.half_y):.1f}"
            parts.append(element("path", class_=f"whisker s{style}", d=d))
        if dot.half_x is not None:
            d = f"M{x(dot.x - dot.half_x):.1f} {y(dot.y):.1f}H{x(dot.x + dot.half_x):.1f}"
            parts.append(element("path", class_=f"whisker s{style}", d=d))
        parts.append(marker(style, x(dot.x), y(dot.y), dot.tip))
    return element("g", *parts)
