"""The page of a sweep: one self-contained file with the utility-leak front, its knee and every trial."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from jinja2 import Environment
from markupsafe import Markup

from cutlayer.report import rounding
from cutlayer.report.environment import asset, environment
from cutlayer.report.svg import Scale, element, marker, padded, tick_texts, ticks
from cutlayer.sweeps.found import UNCOUNTED, Found, SweptTrial
from cutlayer.sweeps.measure import Measured
from cutlayer.sweeps.space import written

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 18, 16, 48
_FRONT, _OTHER = 0, 1
"""How the points are drawn: as the report draws this run and the undefended one."""


@dataclass(frozen=True)
class _At:
    trial: SweptTrial
    measured: Measured
    x: float
    y: float


def render_page(found: Found) -> str:
    """The page as text; everything that came from a user is escaped, and a policy inside it forbids any load."""
    return (
        _environment()
        .get_template("sweep.html.j2")
        .render(
            found=found,
            verdict=verdict(found),
            chart=front_chart(found),
            style=Markup(asset("report.css")),  # noqa: S704 (the package's own file)
            measured=found.complete,
            uncounted=UNCOUNTED,
        )
    )


def verdict(found: Found) -> str:
    """One sentence: the knee, or why there is none."""
    if not found.complete:
        return "No trial has ended yet"
    knee = next((one for one in found.complete if one[0].number == found.knee), None)
    if knee is None:
        return f"The front has {rounding.times(len(found.front), 'trial')} and no knee: weigh its ends yourself"
    trial, measured = knee
    figures = f"{found.rows} {rounding.name_of(found.metric)} {rounding.metric(measured.utility)}"
    return f"The knee is {found.told(trial)}: {figures} at leak {rounding.auc(measured.leak)}"


def front_chart(found: Found) -> Markup:
    """Utility against leak: every trial a mark, a line through the front, the knee in a ring."""
    x = Scale(*padded([0.5, *(one.leak for _, one in found.complete)]), LEFT, WIDTH - RIGHT)
    y = Scale(*padded([one.utility for _, one in found.complete]), HEIGHT - BOTTOM, TOP)
    points = {trial.number: _At(trial, one, x(one.leak), y(one.utility)) for trial, one in found.complete}
    front = [points[number] for number in found.front]
    parts = [_axes(found, x, y)]
    if len(front) > 1:
        path = "L".join(f"{at.x:.1f} {at.y:.1f}" for at in front)
        parts.append(element("path", class_="line s0", d=f"M{path}"))
    others = [at for number, at in points.items() if number not in found.front]
    parts += [marker(_OTHER, at.x, at.y, _tip(found, at)) for at in others]
    parts += [marker(_FRONT, at.x, at.y, _tip(found, at)) for at in front]
    if found.knee is not None:
        at = points[found.knee]
        parts.append(element("circle", class_="ring", cx=at.x, cy=at.y, r=8))
        left = at.x > (LEFT + WIDTH - RIGHT) / 2
        words = f"knee: {found.told(at.trial)}"
        place = {"x": at.x + (-14.0 if left else 14.0), "y": at.y + 18.0, "text_anchor": "end" if left else "start"}
        parts.append(element("text", words, class_="named", **place))
    label = f"{rounding.name_of(found.metric)} against leak of {rounding.times(len(points), 'trial')}"
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _axes(found: Found, x: Scale, y: Scale) -> Markup:
    parts = []
    across, up = ticks(x.low, x.high, 6), ticks(y.low, y.high, 5)
    for tick, text in zip(up, tick_texts(up), strict=True):
        parts.append(element("path", class_="grid", d=f"M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"))
        parts.append(element("text", text, class_="tick", x=LEFT - 8, y=y(tick) + 4, text_anchor="end"))
    for tick, text in zip(across, tick_texts(across), strict=True):
        parts.append(element("path", class_="grid", d=f"M{x(tick):.1f} {TOP}V{HEIGHT - BOTTOM}"))
        parts.append(element("text", text, class_="tick", x=x(tick), y=HEIGHT - BOTTOM + 17, text_anchor="middle"))
    parts.append(element("path", class_="chance", d=f"M{x(0.5):.1f} {TOP}V{HEIGHT - BOTTOM}"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    words = "leak of the strongest attack (0.5 is chance)"
    parts.append(element("text", words, class_="tick", x=middle, y=HEIGHT - 8, text_anchor="middle"))
    words = f"{found.rows} {rounding.name_of(found.metric)}"
    centre = (TOP + HEIGHT - BOTTOM) / 2
    turned = f"rotate(-90 12 {centre:.0f})"
    parts.append(element("text", words, class_="tick", x=12, y=centre, text_anchor="middle", transform=turned))
    return element("g", *parts)


def _tip(found: Found, at: _At) -> str:
    one = at.measured
    return (
        f"trial {at.trial.number}: {found.told(at.trial)}: {rounding.name_of(found.metric)} "
        f"{rounding.metric(one.utility)}, leak {rounding.auc(one.leak)} ({one.where})"
    )


@cache
def _environment() -> Environment:
    made = environment("cutlayer.sweeps", ("auc", "metric", "name_of", "times", "seconds"))
    made.globals.update(interval=rounding.interval, written=written)
    return made
