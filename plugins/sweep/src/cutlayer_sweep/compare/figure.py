"""Categories as points with intervals, in panels side by side; one drawing, as SVG and as PDF.

No plotting library is a dependency: lines, dots and texts are all that the figure has. The PDF uses Helvetica, which
every viewer has, so that it embeds no font.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from cutlayer.errors import ConfigError
from cutlayer.report.rounding import printable
from cutlayer.report.svg import Scale, element, padded_domain, tick_texts, ticks
from cutlayer.storage.durable import write_whole
from cutlayer_sweep.seed_mean import SeedMean

_PANEL, _GAP, _ROW, _TOP, _BOTTOM, _SIZE = 190.0, 26.0, 24.0, 16.0, 46.0, 11.0
_LETTER = 5.8
"""Width that a letter of a name is given, in points, of `_SIZE`."""
_INK, _GREY = ("#1c1f22", "0.11 0.12 0.13", ""), ("#b9b7b0", "0.73 0.72 0.69", "")
_DASHED = (*_INK[:2], "3 3")
"""Colours as SVG and as PDF write them, and the dashes of a line."""
_Drawn = tuple[Markup, str]
"""A part of a figure: the element of an SVG, and the operators of a PDF, in which y goes upwards from the bottom."""


class Panel(NamedTuple):
    """One quantity of all categories.

    Attributes:
        title: Name of the quantity.
        means: Mean of each category; `None` draws nothing.
        reference: Value marked by a dashed line, such as chance.
    """

    title: str
    means: tuple[SeedMean | None, ...]
    reference: float | None = None


@dataclass(frozen=True)
class Figure:
    """Categories below each other, a panel for each quantity.

    Attributes:
        title: Description, for screen readers and as the title of the PDF.
        names: The categories.
        panels: The quantities.
    """

    title: str
    names: tuple[str, ...]
    panels: tuple[Panel, ...]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in points."""
        width = self._left + len(self.panels) * (_PANEL + _GAP)
        return width, _TOP + _ROW * len(self.names) + _BOTTOM

    @property
    def _left(self) -> float:
        return 12 + _LETTER * max(map(len, self.names))

    def _parts(self) -> Iterator[_Drawn]:
        height, bottom = self.size[1], _TOP + _ROW * len(self.names)
        rows = [_TOP + _ROW * (index + 0.5) for index in range(len(self.names))]
        for name, y in zip(self.names, rows, strict=True):
            yield _text(6, y + 4, height, name, "start")
        for index, panel in enumerate(self.panels):
            start = self._left + index * (_PANEL + _GAP)
            known = [mean for mean in panel.means if mean is not None]
            ends = [mean.value + side * (mean.half_width or 0) for mean in known for side in (-1, 1)]
            scale = Scale(
                *padded_domain(ends + ([] if panel.reference is None else [panel.reference])), start, start + _PANEL
            )
            values = ticks(scale.low, scale.high, 3)
            for value, text in zip(values, tick_texts(values), strict=True):
                yield _line(scale(value), _TOP, scale(value), bottom, height, _GREY)
                yield _text(scale(value), bottom + 14, height, text, "middle")
            yield _text(start + _PANEL / 2, bottom + 34, height, panel.title, "middle")
            if (at := panel.reference) is not None:
                yield _line(scale(at), _TOP, scale(at), bottom, height, _DASHED)
            for mean, y in zip(panel.means, rows, strict=True):
                if mean is not None:
                    low, high = (scale(mean.value + side * (mean.half_width or 0.0)) for side in (-1, 1))
                    yield _line(low, y, high, y, height)
                    yield _dot(scale(mean.value), y, height)

    def svg(self) -> str:
        """The figure as an SVG file on white ground; texts of users are escaped."""
        width, height = self.size
        ground = element("rect", width=width, height=height, fill="#fff")
        drawn = [element("title", self.title), ground, *(part for part, _ in self._parts())]
        size = {"width": width, "height": height, "viewBox": f"0 0 {width:.0f} {height:.0f}"}
        return f"{element('svg', *drawn, xmlns='http://www.w3.org/2000/svg', role='img', **size)}\n"

    def pdf(self) -> bytes:
        """The figure as a PDF of one page; what Helvetica's Latin letters lack is a question mark."""
        width, height = self.size
        page = "\n".join(part for _, part in self._parts()).encode("cp1252", "replace")
        objects = [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:.1f} {height:.1f}] /Contents 5 0 R "
            "/Resources << /Font << /F 4 0 R >> >> >>".encode(),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(page), page),
            f"<< /Title ({_pdf_text(self.title)}) >>".encode("cp1252", "replace"),
        ]
        content, offsets = b"%PDF-1.4\n", []
        for index, each in enumerate(objects, 1):
            offsets.append(len(content))
            content += b"%d 0 obj\n%s\nendobj\n" % (index, each)
        table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets).encode()
        count = len(objects) + 1
        trailer = b"trailer\n<< /Size %d /Root 1 0 R /Info 6 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (count, len(content))
        return content + b"xref\n0 %d\n0000000000 65535 f \n%s%s" % (count, table, trailer)

    def save(self, path: Path | str) -> None:
        """Write the figure.

        Raises:
            ConfigError: The name ends neither in `.svg` nor in `.pdf`.
        """
        ending = Path(path).suffix.lower()
        if ending not in (".svg", ".pdf"):
            raise ConfigError.expected("a file that ends in .svg or .pdf", Path(path).name)
        write_whole(Path(path), self.svg() if ending == ".svg" else self.pdf())

    def _repr_svg_(self) -> str:
        """The figure in a notebook."""
        return self.svg()


def _line(x: float, y: float, to_x: float, to_y: float, height: float, ink: tuple[str, str, str] = _INK) -> _Drawn:
    path = f"M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"
    operators = f"{x:.1f} {height - y:.1f} m {to_x:.1f} {height - to_y:.1f} l S"
    drawn = element("path", d=path, stroke=ink[0], fill="none", stroke_dasharray=ink[2] or None)
    return drawn, f"{ink[1]} RG 1 w 0 J [{ink[2]}] 0 d {operators}"


def _dot(x: float, y: float, height: float) -> _Drawn:
    """A circle; in a PDF a line without length and with round ends."""
    at = f"{x:.1f} {height - y:.1f}"
    return element("circle", cx=x, cy=y, r=3.5, fill=_INK[0]), f"{_INK[1]} RG 7 w 1 J [] 0 d {at} m {at} l S"


def _text(x: float, y: float, height: float, text: str, anchor: str) -> _Drawn:
    font = {"font_family": "Helvetica,Arial,sans-serif", "font_size": _SIZE, "fill": _INK[0]}
    left = x if anchor == "start" else x - 0.5 * _LETTER * len(text)
    operators = f"BT /F {_SIZE:.0f} Tf {_INK[1]} rg {left:.1f} {height - y:.1f} Td ({_pdf_text(text)}) Tj ET"
    return element("text", text, x=x, y=y, text_anchor=anchor, **font), operators


def _pdf_text(text: str) -> str:
    return printable(text).replace("\u2212", "-").replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
