"""Charts of a study's page: points with intervals, as SVG files that need no style sheet of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cutlayer.report.charts import swatch
from cutlayer.report.svg import Axis, Scale, axes, element, marker, padded_domain
from studies.results import SeedMean

WIDTH = 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 256
_AXIS = 44
_LETTER = 3.9
"""Height that a name below the axis takes for each of its letters, written at 40 degrees."""
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
class Point:
    """A point of a chart.

    Attributes:
        x: Position along the horizontal axis.
        y: Position along the vertical axis.
        half_x: Half-width of the interval of x; `None` without interval.
        half_y: Half-width of the interval of y; `None` without interval.
        tip: Text shown while the pointer is on the point.
    """

    x: float
    y: float
    half_x: float | None = None
    half_y: float | None = None
    tip: str = ""


@dataclass(frozen=True)
class Series:
    """Points of one colour and shape.

    Attributes:
        name: Name in the legend.
        points: Points, in the order in which a line joins them.
        joined: Whether a line joins them.
    """

    name: str
    points: tuple[Point, ...]
    joined: bool = True


def series_of(
    name: str, values: Iterable[tuple[float | SeedMean | None, float | SeedMean | None, str]], *, joined: bool = True
) -> Series:
    """A series of numbers or means; what is not known is left out.

    Args:
        name: Name in the legend.
        values: Horizontal and vertical value of each point, and its tip.
        joined: Whether a line joins the points.
    """
    known = [(_mean(x), _mean(y), tip) for x, y, tip in values if x is not None and y is not None]
    return Series(name, tuple(Point(x.value, y.value, x.half_width, y.half_width, tip) for x, y, tip in known), joined)


def series_over(name: str, values: Iterable[SeedMean | None], names: Sequence[str], *, joined: bool = True) -> Series:
    """A series over a horizontal axis of names, each point at the index of its name."""
    triples = [(float(index), value, names[index]) for index, value in enumerate(values)]
    return series_of(name, triples, joined=joined)


@dataclass(frozen=True)
class Chart:
    """Points with their intervals, six series at most.

    Attributes:
        file: Name of the SVG file.
        label: Description, for screen readers and where the picture cannot be shown.
        axes: Titles of the horizontal and the vertical axis.
        series: What is drawn, in the order of the legend.
        reference: Value of y marked by a line of its own, such as chance.
        names: Names of the positions 0, 1, ... of the horizontal axis; empty where it shows numbers.
    """

    file: str
    label: str
    axes: tuple[str, str]
    series: tuple[Series, ...]
    reference: float | None = None
    names: Sequence[str] = ()

    def svg(self) -> str:
        """The whole file."""
        points = [point for each in self.series for point in each.points]
        ys = [point.y + side * (point.half_y or 0) for point in points for side in (-1, 1)]
        xs = [point.x + side * (point.half_x or 0) for point in points for side in (-1, 1)]
        x = Scale(*padded_domain(xs + [float(index) for index in range(len(self.names))]), _LEFT, WIDTH - _RIGHT)
        y = Scale(*padded_domain(ys + ([] if self.reference is None else [self.reference])), _BOTTOM, _TOP)
        drawn = [_series(each, style, x, y) for style, each in enumerate(self.series)]
        depth = _AXIS + round(_LETTER * max(map(len, self.names), default=0))
        names = [(float(index), name) for index, name in enumerate(self.names)] or None
        across = Axis(x, self.axes[0], names, slanted=names is not None)
        frame = axes(across, Axis(y, self.axes[1], reference=self.reference), depth - 11)
        top, rows = _BOTTOM + depth, range(len(self.series))
        legend = [_legend_row(self.series[row].name, row, top + _LEGEND_ROW * row) for row in rows]
        size = (WIDTH, top + _LEGEND_ROW * len(self.series) + 8)
        return svg_file(self.label, _STYLE, size, [frame, *drawn, *legend])


def _mean(value: float | SeedMean) -> SeedMean:
    return value if isinstance(value, SeedMean) else SeedMean(value, None)


def svg_file(label: str, style: str, size: tuple[int, int], parts: Sequence[Markup]) -> str:
    """A whole SVG file on white ground.

    Args:
        label: Description, for screen readers.
        style: Style sheet of the file, constant text.
        size: Width and height in pixels.
        parts: Elements of the picture.
    """
    width, height = size
    picture = element(
        "svg",
        element("title", label),
        Markup("<style>{}</style>").format(Markup(style)),  # noqa: S704 (constant text)
        element("rect", width=width, height=height, fill="#fff"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
    )
    return f"{picture}\n"


def _legend_row(name: str, style: int, top: int) -> Markup:
    sample = element("svg", swatch(style), x=_LEFT, y=top, width=32, height=14)
    return element("g", sample, element("text", name, class_="name", x=_LEFT + 40, y=top + 11))


def _series(line: Series, style: int, x: Scale, y: Scale) -> Markup:
    parts = []
    if line.joined and len(line.points) > 1:
        path = "L".join(f"{x(point.x):.1f} {y(point.y):.1f}" for point in line.points)
        parts.append(element("path", class_=f"line thin s{style}", d=f"M{path}"))
    for point in line.points:
        if point.half_y is not None:
            d = f"M{x(point.x):.1f} {y(point.y - point.half_y):.1f}V{y(point.y + point.half_y):.1f}"
            parts.append(element("path", class_=f"whisker s{style}", d=d))
        if point.half_x is not None:
            d = f"M{x(point.x - point.half_x):.1f} {y(point.y):.1f}H{x(point.x + point.half_x):.1f}"
            parts.append(element("path", class_=f"whisker s{style}", d=d))
        parts.append(marker(style, x(point.x), y(point.y), point.tip))
    return element("g", *parts)
