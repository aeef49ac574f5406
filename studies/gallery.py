"""Reconstructed images next to the true images, as one SVG file: a row for each setting."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from cutlayer.report.png import png_uri
from cutlayer.report.svg import element
from studies.charts import svg_file

_NAME, _PAIR, _HEAD, _IMAGE, _ROW = 150, 110, 24, 72, 100
_STYLE = "text{font:11.5px system-ui,sans-serif;fill:#596066}.name{fill:#1c1f22}image{image-rendering:pixelated}"
Pictures = Sequence[Mapping[str, Any]]
"""Pictures as `audit.json` holds them: `title`, `shape`, `truth` and `rebuilt` in base64, `psnr` in dB."""


@dataclass(frozen=True)
class Gallery:
    """A picture with the images inside.

    Attributes:
        file: Name of the SVG file.
        label: Description, for screen readers and where the picture cannot be shown.
        rows: Name of each row, as `setting: release`, and its pictures; the first row's titles head the columns.
    """

    file: str
    label: str
    rows: tuple[tuple[str, Pictures], ...]

    def svg(self) -> str:
        """The whole file."""
        columns = max((len(pictures) for _, pictures in self.rows), default=0)
        size = (_NAME + _PAIR * columns, _HEAD + _ROW * len(self.rows))
        heads = [
            element("text", str(picture["title"]), x=_NAME + _PAIR * column, y=15)
            for column, picture in enumerate(self.rows[0][1] if self.rows else ())
        ]
        rows = [_row(name, pictures, _HEAD + _ROW * row) for row, (name, pictures) in enumerate(self.rows)]
        return svg_file(self.label, _STYLE, size, [*heads, *rows])


def _row(name: str, pictures: Pictures, top: int) -> Markup:
    setting, _, release = name.partition(": ")
    parts = [
        element("text", setting, class_="name", x=8, y=top + 32),
        element("text", release, x=8, y=top + 48),
    ]
    for column, picture in enumerate(pictures):
        left = _NAME + _PAIR * column
        _, height, width = picture["shape"]
        across = round(_IMAGE * width / height)
        for index, key in enumerate(("truth", "rebuilt")):
            uri = png_uri(base64.b64decode(picture[key]), tuple(picture["shape"]))
            size = {"width": across, "height": _IMAGE, "preserveAspectRatio": "none"}
            parts.append(element("image", href=uri, x=left + index * (across + 4), y=top, **size))
        parts.append(element("text", f"PSNR {picture['psnr']:.1f} dB", x=left, y=top + _IMAGE + 14))
    return element("g", *parts)
