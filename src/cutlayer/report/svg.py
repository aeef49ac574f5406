"""Scales, axes and escaped SVG elements: what all charts are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cutlayer.report.rounding import printable
from cutlayer.results.decimals import minus

MARKERS = (
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
    "M-2.8 -2.8h5.6v5.6h-5.6z",
    "M0 -3.6L3.4 2.6H-3.4z",
    "M0 -3.8L3.8 0L0 3.8L-3.8 0z",
    "M0 3.6L3.4 -2.6H-3.4z",
    "M-3 -3L3 3M-3 3L3 -3",
)


@dataclass(frozen=True)
class Scale:
    """A straight map from a domain to pixels.

    >>> Scale(0.5, 1.0, 100, 0)(0.75)
    50.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Pixels of a value; a domain without width maps to its start."""
        if self.high == self.low:
            return self.start
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def element(tag: str, *children: str, **attributes: object) -> Markup:
    """One element; text and attribute values are escaped, `Markup` children are not.

    A trailing underscore is dropped from a name and others become dashes; `None` leaves the attribute out.

    >>> str(element("text", "<b>", x=1.25, text_anchor="end", class_="tick"))
    '<text x="1.2" text-anchor="end" class="tick">&lt;b&gt;</text>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(printable(_short(value)))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = "".join(child if isinstance(child, Markup) else escape(printable(child)) for child in children)
    return Markup(f"<{tag}{written}>{inner}</{tag}>")  # noqa: S704 (all parts are escaped above)


def marker(style: int, x: float, y: float, title: str = "") -> Markup:
    """The mark of a run at a point; the shape differs by run, so that colour is never alone."""
    shape = MARKERS[style % len(MARKERS)]
    tip = (element("title", title),) if title else ()
    position = f"translate({_short(x)} {_short(y)})"
    return element("path", *tip, class_=f"mark s{style % len(MARKERS)}", transform=position, d=shape)


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Attributes:
        scale: From values to pixels.
        title: Label of the axis.
        ticks: Values and their texts; `None` writes round numbers.
        about: Approximate number of round numbers.
        grid: Whether a line crosses the chart at every tick.
        slanted: Whether the texts are rotated by 40 degrees.
        reference: Value marked by a dashed line, such as chance.
        reference_name: Label of that line.
    """

    scale: Scale
    title: str = ""
    ticks: Sequence[tuple[float, str]] | None = None
    about: int = 4
    grid: bool = True
    slanted: bool = False
    reference: float | None = None
    reference_name: str = ""

    def texts(self) -> list[tuple[float, str]]:
        """The values that are written along the axis, each with its text."""
        if self.ticks is not None:
            return list(self.ticks)
        values = ticks(self.scale.low, self.scale.high, self.about)
        return list(zip(values, tick_texts(values), strict=True))


def axes(x: Axis, y: Axis, title_gap: float = 33) -> Markup:
    """Both axes of a chart with grid, texts, titles and reference lines.

    Args:
        x: Horizontal axis.
        y: Vertical axis.
        title_gap: Pixels from the lower end of the chart to the title of the horizontal axis, 18 below its texts.
    """
    left, right = x.scale.start, x.scale.end
    top, bottom = min(y.scale.start, y.scale.end), max(y.scale.start, y.scale.end)
    parts = []
    for value, text in y.texts():
        if y.grid:
            parts.append(element("path", class_="grid", d=f"M{_short(left)} {y.scale(value):.1f}H{right}"))
        parts.append(element("text", text, x=left - 6, y=y.scale(value) + 4.0, text_anchor="end"))
    for value, text in x.texts():
        at = x.scale(value)
        if x.grid:
            parts.append(element("path", class_="grid", d=f"M{at:.1f} {top}V{_short(bottom)}"))
        if x.slanted:
            rotation = f"rotate(-40 {at:.1f} {bottom + 12})"
            parts.append(element("text", text, x=at + 4, y=bottom + 12, text_anchor="end", transform=rotation))
        else:
            parts.append(element("text", text, x=at, y=bottom + title_gap - 18, text_anchor="middle"))
    if x.reference is not None and x.scale.low <= x.reference <= x.scale.high:
        parts.append(element("path", class_="chance", d=f"M{x.scale(x.reference):.1f} {top}V{_short(bottom)}"))
    if y.reference is not None and y.scale.low <= y.reference <= y.scale.high:
        at = y.scale(y.reference)
        parts.append(element("path", class_="chance", d=f"M{_short(left)} {at:.1f}H{right}"))
        if y.reference_name:
            parts.append(element("text", y.reference_name, x=right, y=at + 11.0, text_anchor="end"))
    if x.title:
        parts.append(element("text", x.title, x=(left + right) / 2, y=bottom + title_gap, text_anchor="middle"))
    if y.title:
        middle = (top + bottom) / 2
        rotation = f"rotate(-90 11 {middle:.0f})"
        parts.append(element("text", y.title, x=11, y=middle, text_anchor="middle", transform=rotation))
    return element("g", *parts)


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers within [low, high], some `about` of them.

    >>> ticks(0.45, 1.0), ticks(0, 0)
    ([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], [0])
    """
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda choice: abs(choice - rough))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def whole_ticks(low: int, high: int) -> list[int]:
    """Whole numbers to write below an axis of epochs: all of ten, else multiples of a round step.

    >>> whole_ticks(1, 4), whole_ticks(1, 25), whole_ticks(1, 300)
    ([1, 2, 3, 4], [5, 10, 15, 20, 25], [50, 100, 150, 200, 250, 300])
    """
    if high - low < 10:
        return list(range(low, high + 1))
    steps = (factor * 10**power for power in range(9) for factor in (1, 2, 5))
    step = next(choice for choice in steps if high - low < 6.5 * choice)
    return list(range(-(-low // step) * step, high + 1, step))


def tick_texts(values: list[float]) -> list[str]:
    """Ticks of one axis with the same number of decimals.

    >>> tick_texts([0.6, 0.8, 1.0]), tick_texts([2000.0, 4000.0])
    (['0.6', '0.8', '1.0'], ['2,000', '4,000'])
    """
    decimals = max((len(f"{value:.10f}".rstrip("0").partition(".")[2]) for value in values), default=0)
    return [minus(f"{value:,.{decimals}f}") for value in values]


def padded_domain(values: list[float]) -> tuple[float, float]:
    """A domain around values with some air.

    >>> padded_domain([1.0, 2.0]), padded_domain([]), padded_domain([3.0])
    ((0.94, 2.06), (0.0, 1.0), (2.5, 3.5))
    """
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if low == high:
        return low - 0.5, high + 0.5
    air = 0.06 * (high - low)
    return low - air, high + air


def _short(value: object) -> str:
    """A coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
