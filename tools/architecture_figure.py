"""Write `docs/figures/ways.svg` from the layers in pyproject.toml and the three lists in `docs/architecture.md`.

    python -m tools.architecture_figure

`tests/docs/test_architecture.py` checks the lists, and that the figure is the one that this writes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
FIGURE = ROOT / "docs" / "figures" / "ways.svg"

WIDTH, ROW, TOP, FIRST, STEP = 600, 30, 44, 344, 98
"""Pixels: width of the figure, height of a layer, of the head, position of the first way, and distance of the next."""
DESCRIPTION = "One band for each layer, the command line at the top. The numbers count the files of a way in a layer."


class Way(NamedTuple):
    """A way through the package.

    Attributes:
        name: What goes this way.
        down: Whether it goes from the command line downwards.
        files: Paths in the package, in order.
    """

    name: str
    down: bool
    files: Sequence[str]


def layers() -> list[str]:
    """The layers of the contract from the top, packages of one layer joined by a bar."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    (contract,) = [each for each in tool["importlinter"]["contracts"] if each["type"] == "layers"]
    return list(contract["layers"])


def layer_of(path: str) -> int:
    """Index of the layer of a file, 0 at the top."""
    package = path.removesuffix(".py").split("/")[0]
    (index,) = [index for index, layer in enumerate(layers()) if package in layer.split(" | ")]
    return index


def ways() -> list[Way]:
    """The ways that the page lists, in its order."""
    text = PAGE.read_text(encoding="utf-8")
    sections = re.findall(r"^## The way of ([^\n]+)\n\n\*\*(Down|Up)\.\*\*(.+?)(?=^## )", text, re.M | re.S)
    return [Way(name, word == "Down", re.findall(r"^\d+\. `([^`]+)`", body, re.M)) for name, word, body in sections]


def figure() -> str:
    """The figure as SVG."""
    names = layers()
    height = TOP + ROW * len(names) + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<title id="t">The layers and the three ways</title>\n<desc id="d">{DESCRIPTION}</desc>',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fbfaf8"/>',
        '<defs><marker id="a" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#0d6472"/></marker></defs>',
    ]
    for index, name in enumerate(names):
        fill, y = ("#ffffff", "#eaf3f4")[index % 2], TOP + ROW * index
        parts.append(f'<rect x="12" y="{y}" width="{WIDTH - 24}" height="{ROW}" fill="{fill}" stroke="#d5dadd"/>')
        parts.append(f'<text x="22" y="{y + 20}" fill="#1c1f22">{name.replace(" | ", " · ")}</text>')
    for number, way in enumerate(ways()):
        parts += _drawn(way, FIRST + STEP * number)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(way: Way, x: int) -> list[str]:
    """A vertical arrow with a point in every layer in which the way has files, and their number."""
    counts = [(index, len(list(files))) for index, files in groupby(way.files, layer_of)]
    heights = [TOP + ROW * index + ROW // 2 for index, _ in counts]
    end = heights[-1] + (-9 if way.down else 9)
    head = f'<text x="{x}" y="28" text-anchor="middle" fill="#1c1f22" font-weight="600">{way.name}</text>'
    line = f'<path d="M{x} {heights[0]}V{end}" stroke="#0d6472" stroke-width="1.6" marker-end="url(#a)"/>'
    points = [
        f'<circle cx="{x}" cy="{y}" r="5" fill="#0d6472"/>\n'
        f'<text x="{x + 12}" y="{y + 5}" fill="#1c1f22">{count}</text>'
        for y, (_, count) in zip(heights, counts, strict=True)
    ]
    return [head, line, *points]


if __name__ == "__main__":
    FIGURE.write_text(figure(), encoding="utf-8")
